"""Reviews of workloads and Pods of a service with shares: the split, the slot of one Pod, and what is committed."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.command_runner import podgate

POLICY = """
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  placement:
    nodeSelector: {disk: ssd}
    shares:
      base: {variant: on-demand, pods: 2}
      variants:
      - {name: spot, weight: 80, nodeSelector: {capacity: spot}, tolerations: [{key: spot, operator: Exists}]}
      - {name: on-demand, weight: 20, nodeSelector: {capacity: on-demand}}
"""
SPEC = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "rs-1", "controller": True}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": SPEC}
    is_job = kind in {"Job", "CronJob"}
    inner: dict[str, Any] = {"template": template, **spec}
    if not is_job:
        inner["selector"] = {"matchLabels": {"app": "web"}}
    version = "batch/v1" if is_job else "apps/v1"
    outer = {"schedule": "0 1 * * *", "jobTemplate": {"spec": inner}} if kind == "CronJob" else inner
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": outer}


def pod(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    metadata = {"generateName": "web-7d4b9c-", "namespace": "shop", "ownerReferences": [OWNER]}
    more = {"labels": {"app": "web", **(labels or {})}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, **more}, "spec": SPEC}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def review(files: Path, document: dict[str, Any], *options: str, code: int = 0) -> Any:
    (files / "object.yaml").write_text(yaml.safe_dump(document))
    done = podgate("review", files / "object.yaml", "--policy", files / "policy.yaml", *options)
    assert done.code == code, done.err
    return done


SPLITS = [
    (workload("Deployment", replicas=10), "slots 1-2 on-demand, 3-10: spot x6, on-demand x2", 10),
    (workload("Deployment"), "slots 1 on-demand", 1),
    (workload("Deployment", replicas=0), "no slots", 0),
    (workload("ReplicaSet", replicas=4), "slots 1-2 on-demand, 3-4: spot x2", 4),
    (workload("StatefulSet", replicas=3), "slots 1-2 on-demand, 3: spot x1", 3),
    (workload("StatefulSet", replicas=3, ordinals={"start": 1}), "slots 2 on-demand, 3-4: spot x2", 3),
    (workload("StatefulSet", replicas=5, ordinals={"start": 2}), "slots 3-7: spot x4, on-demand x1", 5),
    (workload("Job", parallelism=4, completions=20), "slots 1-2 on-demand, 3-4: spot x2", 4),
    (workload("Job", parallelism=4, completions=3), "slots 1-2 on-demand, 3: spot x1", 3),
    (workload("Job", parallelism=4), "slots 1-2 on-demand, 3-4: spot x2", 4),
    (
        workload("Job", parallelism=4, completions=12, completionMode="Indexed"),
        "slots 1-2 on-demand, 3-12: spot x8, on-demand x2",
        12,
    ),
    (workload("CronJob", parallelism=3), "slots 1-2 on-demand, 3: spot x1", 3),
    (
        workload("Deployment", replicas=2_000_000_002),
        "slots 1-2 on-demand, 3-2000000002: spot x1600000000, on-demand x400000000",
        2_000_000_002,
    ),
]


@pytest.mark.parametrize(("document", "text", "pods"), SPLITS)
def test_the_split_of_a_workload_is_shown(files: Path, document: dict[str, Any], text: str, pods: int) -> None:
    assert f"# shares: {text}\n" in review(files, document).out
    [line] = review(files, document, "-o", "json").lines
    assert (line["split"]["text"], line["split"]["pods"], sum(line["split"]["byVariant"].values())) == (
        text,
        pods,
        pods,
    )


def test_a_pod_of_a_controller_gets_a_slot_with_its_variant(files: Path) -> None:
    shown = " ".join(review(files, pod(), "--as", REPLICA_SETS, "--explain").out.split())
    for line in (
        "+ podgate.io/variant: on-demand # placement.shares.variants[1].name",
        "+ podgate.io/slot: '1'",
        "+ podgate.io/slot-claim: <claim>",
        "+ controller.kubernetes.io/pod-deletion-cost: '-1'",
        "+ capacity: on-demand # placement.shares.variants[1].nodeSelector[capacity]",
        "# shares: slot 1 of ReplicaSet web-7d4b9c is on-demand",
    ):
        assert line in shown
    [line] = review(files, pod(), "--as", REPLICA_SETS, "-o", "json").lines
    assert line["slot"] == {
        "number": 1,
        "variant": "on-demand",
        "intended": "on-demand",
        "reason": "slot 1 of ReplicaSet web-7d4b9c is on-demand",
    }
    assert line["split"] is None


def test_a_pod_of_its_creator_alone_gets_none(files: Path) -> None:
    [line] = review(files, pod(), "-o", "json").lines
    assert (line["allowed"], line["slot"], line["split"]) == (True, None, None)
    assert "podgate.io/variant" not in line["pod"]["metadata"]["labels"]


def test_a_creator_cannot_choose_the_variant(files: Path) -> None:
    for options in ((), ("--as", REPLICA_SETS)):
        [line] = review(files, pod({"podgate.io/variant": "spot"}), *options, "-o", "json", code=3).lines
        assert line["status"]["message"].startswith(
            "PlacementConflict: service web: metadata.labels[podgate.io/variant] is 'spot', which Podgate did not write"
        )


def test_a_pod_that_was_admitted_before_is_reviewed_as_its_controller_asked_for_it(files: Path) -> None:
    marks = {"podgate.io/policy-hash": "0" * 16, "podgate.io/slot": "7", "podgate.io/slot-claim": "c"}
    labels = {"podgate.io/variant": "spot"}
    [line] = review(files, pod(labels, marks), "--as", REPLICA_SETS, "-o", "json").lines
    assert (line["allowed"], line["slot"]["number"], line["slot"]["variant"]) == (True, 1, "on-demand")


def test_a_template_to_commit_has_the_nodes_of_no_variant(files: Path) -> None:
    committed = yaml.safe_load(review(files, workload("Deployment", replicas=4), "-o", "yaml").out)
    template = committed["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert "tolerations" not in template["spec"]
    assert template["metadata"] == {"labels": {"app": "web"}}


def test_a_template_whose_service_owns_pods_of_controllers_only_stays_as_it_is(files: Path) -> None:
    (files / "policy.yaml").write_text(POLICY.replace("[shop]", "[shop], ownerKinds: [Deployment]"))
    document = workload("Deployment", replicas=4)
    assert yaml.safe_load(review(files, document, "-o", "yaml").out) == document


def test_a_service_that_only_warns_divides_nothing(files: Path) -> None:
    (files / "policy.yaml").write_text(POLICY.replace("  match", "  modes: {placement: Warn}\n  match"))
    [line] = review(files, workload("Deployment", replicas=4), "-o", "json").lines
    assert (line["slot"], line["split"]) == (None, None)
