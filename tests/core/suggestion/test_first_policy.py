"""First policy: what workloads want at once, and the Pods as they are now."""

from typing import Any

import pytest

from webhook.core.kubernetes.pod import Pod
from webhook.core.suggestion.first_policy import SeenNamespace, is_left_out
from webhook.core.suggestion.observed_pods import ObservedPods

OWNED = {"ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "u", "controller": True}]}
COMPLETE, FAILED = ({"type": name, "status": "True"} for name in ("Complete", "Failed"))
Json = dict[str, Any]
NOW_US = 1_800_000_000_000_000
NOW = "2027-01-15T08:00:00Z"


def pod(
    created: str = NOW, phase: str = "Running", ready: str = "", kind: str = "", **container: Any
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}] if ready else []
    owners = [{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": True}] if kind else []
    return {
        "metadata": {"name": "p", "namespace": "shop", "creationTimestamp": created, "ownerReferences": owners},
        "spec": {"containers": [{"name": "c", "image": "i", **container}]},
        "status": {"phase": phase, "conditions": conditions},
    }


@pytest.mark.parametrize(
    ("kind", "metadata", "fields", "wanted"),
    [
        ("Deployment", {}, {"spec": {"replicas": 7}}, 7),
        ("Deployment", {}, {"spec": {}}, 1),
        ("StatefulSet", {}, {"spec": {"replicas": 0}}, 0),
        ("Job", {}, {"spec": {"parallelism": 5}}, 5),
        ("Job", {}, {"spec": {"parallelism": 5}, "status": {"completionTime": NOW, "conditions": [COMPLETE]}}, 0),
        ("Job", {}, {"spec": {"parallelism": 5}, "status": {"failed": 7, "conditions": [FAILED]}}, 0),
        ("Job", {}, {"spec": {"parallelism": 5}, "status": {"conditions": [{**FAILED, "status": "False"}]}}, 5),
        ("Job", {}, {"spec": {"parallelism": 5, "completions": 2}}, 2),
        ("Job", {}, {"spec": {"parallelism": 5, "completions": 9}, "status": {"succeeded": 6, "conditions": None}}, 3),
        ("Job", {}, {"spec": {"suspend": True}}, 0),
        ("CronJob", {}, {"spec": {"jobTemplate": {"spec": {"parallelism": 4}}}}, 4),
        ("CronJob", {}, {"spec": {"jobTemplate": {"spec": {"parallelism": 4, "completions": 1}}}}, 1),
        ("CronJob", {}, {"spec": {"suspend": True}}, 0),
        ("DaemonSet", {}, {"spec": {}}, 0),
        ("ReplicaSet", OWNED, {"spec": {"replicas": 3}}, 0),
    ],
)
def test_pods_that_a_workload_wants(kind: str, metadata: dict[str, Any], fields: dict[str, Any], wanted: int) -> None:
    seen = SeenNamespace()
    seen.add_workload(kind, {"metadata": {"name": "a", **metadata}, **fields})
    found = seen.suggest("shop", 25)
    assert found.wanted == wanted
    assert seen.is_empty == (kind == "DaemonSet" or bool(metadata))


def test_pods_of_daemon_sets_and_ended_ones_are_no_live_ones() -> None:
    seen = SeenNamespace()
    seen.add_pod(pod(kind="DaemonSet"))
    seen.add_pod(pod(phase="Succeeded"))
    assert not seen.is_empty
    assert seen.suggest("shop", 25).live == 0
    seen.add_pod(pod(resources={"requests": {"cpu": "2"}}))
    limits = {(limit.window, limit.resource): limit.hard for limit in seen.suggest("shop", 25).limits}
    assert limits == {("1m", "pods"): 3, ("1h", "pods"): 5, ("standing", "pods"): 2, ("standing", "requests.cpu"): 2500}


@pytest.mark.parametrize("name", ["kube-system", "kube-public", "podgate-system", "kube-node-lease"])
def test_namespaces_of_kubernetes_are_left_out(name: str) -> None:
    assert is_left_out(name)
    assert not is_left_out(f"my-{name}")


def test_starts_of_the_pods_that_exist() -> None:
    seen = ObservedPods(300_000_000, NOW_US)
    seen.add(Pod.from_document(pod("2027-01-15T07:00:00Z", ready="2027-01-15T07:00:04Z")))
    seen.add(Pod.from_document(pod("2027-01-15T07:00:00Z", ready="2027-01-15T07:00:30Z")))
    seen.add(Pod.from_document(pod("2027-01-15T07:59:00Z", "Pending")))
    seen.add(Pod.from_document(pod("2027-01-15T07:00:00Z", "Pending")))
    assert list(seen.describe()) == [
        "live now: 4 pods",
        "starts of the Pods that exist: 2 well, usual 30s, longest 30s",
        "starts not done: 1 StartDeadline, 1 pending",
    ]
