"""Limits on live Pods in a whole cluster: used and freed capacity, and enforcement."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from webhook.core.quota import STANDING

pytest_plugins = ("tests.redis_servers.fixtures",)

SERVICES = ("rolled", "drained", "finished", "lowered", "away", "resized")
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
defaults: {failureMode: Closed, quota: {windows: [{window: 1h, hard: {pods: 100}}]}}
services:
- {name: rolled, match: {namespaces: [standing-rolled-STORE]}, quota: {standing: {hard: {pods: 4}, surge: 0}}}
- {name: drained, match: {namespaces: [standing-drained-STORE]}, quota: {standing: {hard: {pods: 4}, surge: 50%}}}
- {name: finished, match: {namespaces: [standing-finished-STORE]}, quota: {standing: {hard: {pods: 3}, surge: 0}}}
- {name: lowered, match: {namespaces: [standing-lowered-STORE]}, quota: {standing: {hard: {pods: 3}, surge: 0}}}
- name: away
  match: {namespaces: [standing-away-STORE]}
  failureMode: Open
  quota: {standing: {hard: {pods: 2}, surge: 0}}
- name: resized
  match: {namespaces: [standing-resized-STORE]}
  failureMode: Open
  quota:
    windows: [{window: 1h, hard: {pods: 100, requests.cpu: "1"}}]
    standing: {hard: {requests.cpu: 400m}, surge: 0}
"""
DENIAL = "pods live at one time: hard "


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    namespaces = [f"standing-{name}-{store}" for name in SERVICES]
    with controller_fixture(plane, identities, POLICY.replace("STORE", store), namespaces, store_url) as fixture:
        fixture.wait(
            lambda: all(is_enforced(fixture, name) for name in SERVICES if name != "resized"), "limits to be enforced"
        )
        yield fixture


def is_enforced(running: ControllerFixture, service: str) -> bool:
    return bool(running.limit(service, STANDING)["enforced"])


def deploy(running: ControllerFixture, namespace: str, **strategy: Any) -> None:
    """Create a Deployment of 4 Pods, and wait until all run."""
    pod = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
    strategy_fields = {"strategy": {"type": "RollingUpdate", "rollingUpdate": strategy}} if strategy else {}
    metadata = {"name": "web", "namespace": namespace}
    running.plane.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {**spec, **strategy_fields}}
    )
    running.plane.wait(lambda: len(list_running(running, namespace)) == 4, f"4 Pods in {namespace}")


def list_running(running: ControllerFixture, namespace: str, image: str = "i") -> list[dict[str, Any]]:
    """Return the running Pods that are not terminating."""
    return [
        pod
        for pod in running.installation.pods(namespace)
        if pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        and pod["spec"]["containers"][0]["image"] == image
    ]


def creation_failures(running: ControllerFixture, namespace: str) -> list[str]:
    """Return the ReplicaFailure messages of ReplicaSets."""
    replica_sets = running.plane.api.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")["items"]
    conditions = [
        condition for replica_set in replica_sets for condition in replica_set["status"].get("conditions", [])
    ]
    return [condition["message"] for condition in conditions if condition["type"] == "ReplicaFailure"]


def change(running: ControllerFixture, old: str, new: str) -> None:
    """Change the policy in force."""
    text = running.installation.policy
    assert text.count(old) == 1
    running.installation.policy = text.replace(old, new)
    running.installation.change_policy(running.installation.policy)


def test_rollout_at_the_limit_completes_with_surge(running: ControllerFixture, store: str) -> None:
    namespace = f"standing-rolled-{store}"
    deploy(running, namespace, maxSurge=1, maxUnavailable=0)
    assert running.count_standing("rolled") == 4
    running.plane.kubectl("set", "image", "deployment/web", "c=new", "-n", namespace)
    [message] = running.plane.wait(lambda: creation_failures(running, namespace), "the new ReplicaSet to be denied")
    assert f"{DENIAL}4, used 4, asked 1; could pass when enough of the service's live Pods have ended" in message
    limit = "{hard: {pods: 4}, surge: %s}"
    change(running, limit % "0", limit % "25%")
    running.wait(lambda: len(list_running(running, namespace, "new")) == 4, "the rollout to complete")
    running.wait(lambda: running.count_standing("rolled") == 4, "the old Pods to be removed from the live Pods")
    assert running.count_used("rolled") == 8


def test_replacements_of_a_drained_node_are_admitted(running: ControllerFixture, store: str) -> None:
    namespace, plane = f"standing-drained-{store}", running.plane
    deploy(running, namespace)
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in list_running(running, namespace)}
    node = next(iter(before.values()))
    evicted = {uid for uid, name in before.items() if name == node}
    try:
        plane.kubectl("drain", node, "--pod-selector=app=web", "--force", "--ignore-daemonsets", "--timeout=300s")
        running.wait(lambda: len(list_running(running, namespace)) == 4, "the replacements")
        after = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in list_running(running, namespace)}
        assert (evicted.isdisjoint(after), node in after.values()) == (True, False)
        running.wait(
            lambda: running.count_standing("drained") == 4, "the evicted Pods to be removed from the live Pods"
        )
    finally:
        plane.kubectl("uncordon", node)


def test_finished_job_frees_live_pods_and_not_its_window(running: ControllerFixture, store: str) -> None:
    namespace = f"standing-finished-{store}"
    job = ("create", "job", "--image=i", "-n", namespace)
    running.plane.kubectl(*job, "one")
    manifest = json.loads(running.plane.kubectl(*job, "three", "--dry-run=client", "-o", "json").stdout)
    manifest["spec"] |= {"parallelism": 3, "completions": 3}
    running.plane.kubectl("apply", "-f", "-", "-n", namespace, input=json.dumps(manifest))

    def has_finished() -> bool:
        pods = running.installation.pods(namespace)
        return [pod["status"].get("phase") for pod in pods] == ["Succeeded"] * 4

    running.wait(has_finished, "the Jobs to finish")
    running.wait(lambda: running.count_standing("finished") == 0, "the live Pods to be removed")
    assert running.count_used("finished") == 4
    assert [running.installation.create_pod(namespace)[0] for _ in range(4)] == [201, 201, 201, 429]
    assert running.count_used("finished") == 7


def test_lowered_limit_evicts_no_pod_and_admits_none(running: ControllerFixture, store: str) -> None:
    namespace = f"standing-lowered-{store}"
    names = [running.installation.create_pod(namespace)[1]["metadata"]["name"] for _ in range(3)]
    limit = "[standing-lowered-STORE]}, quota: {standing: {hard: {pods: %d}".replace("STORE", store)
    change(running, limit % 3, limit % 1)
    status, response = running.installation.create_pod(namespace)
    assert (status, f"{DENIAL}1, used 3, asked 1" in response["message"]) == (429, True), response
    assert sorted(pod["metadata"]["name"] for pod in running.installation.pods(namespace)) == sorted(names)
    running.plane.kubectl("delete", "pod", *names, "-n", namespace, "--grace-period=0", "--force")
    running.wait(lambda: running.count_standing("lowered") == 0, "the live Pods to be removed")
    assert [running.installation.create_pod(namespace)[0] for _ in range(2)] == [201, 429]


def test_pods_created_during_an_outage_are_charged_afterwards(running: ControllerFixture, store: str) -> None:
    namespace = f"standing-away-{store}"
    [server] = running.installation.servers
    running.installation.stop_server(server)
    assert [running.installation.create_pod(namespace)[0] for _ in range(3)] == [201] * 3
    running.start_server()
    running.wait(lambda: running.count_standing("away") == 3, "all of them to be counted")
    assert (running.count_charged_afterwards("away"), running.count_used("away")) == (3, 3)
    running.wait(lambda: is_enforced(running, "away"), "the limit to be enforced")
    running.installation.wait_for_calls()
    status, response = running.installation.create_pod(namespace)
    assert (status, f"{DENIAL}2, used 3, asked 1" in response["message"]) == (429, True), response


def test_resize_is_charged_by_its_maximum_and_live_at_its_current_size(running: ControllerFixture, store: str) -> None:
    namespace, plane = f"standing-resized-{store}", running.plane

    def cpu() -> tuple[Any, Any]:
        window_used = running.limit("resized", "1h", "requests.cpu")["used"]
        return running.limit("resized", STANDING, "requests.cpu")["used"], window_used

    def containers(quantity: str) -> dict[str, Any]:
        return {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": quantity}}}]}

    def resize(quantity: str) -> str:
        patch = json.dumps({"spec": containers(quantity)})
        command = ("patch", "pod", "web", "--subresource=resize", "--patch", patch, "-n", namespace)
        return plane.kubectl(*command, check=False).stderr

    assert running.installation.create_pod(namespace, "web", **containers("100m"))[0] == 201
    plane.kubectl("wait", "--for=condition=Ready", "pod/web", "-n", namespace, "--timeout=300s")
    for quantity, charged in (("300m", "300m"), ("200m", "300m"), ("250m", "300m")):
        assert resize(quantity) == ""
        running.wait(partial(_equals, cpu, (quantity, charged)), f"{quantity} to be counted")
    assert "requests.cpu live at one time: hard 400m, used 250m, asked 250m" in resize("500m")
    assert cpu() == ("250m", "300m")


def _equals(current: Callable[[], object], expected: object) -> bool:
    return current() == expected
