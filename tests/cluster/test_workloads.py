"""Warnings that kubectl shows to authors of workloads, and when the API server requests a review."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, installed

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: advised
  match: {namespaces: [advised]}
  placement: {schedulerName: podgate-scheduler, topology: [{level: Zone, in: [zone-b]}]}
- name: tried
  match: {namespaces: [tried]}
  modes: {placement: Warn}
  placement: {schedulerName: podgate-scheduler, topology: [{level: Zone, in: [zone-b]}]}
"""
CONFLICT = (
    "spec.schedulerName is 'theirs', the policy sets 'podgate-scheduler';"
    " remove the field from the Pod or set it to 'podgate-scheduler'"
)
THEIRS = {"schedulerName": "theirs"}
KINDS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicationController": "v1",
}
NAMESPACES = ["advised", "tried", "nobodys"]
ASKED = [kind for kind in KINDS if kind != "DaemonSet"]


@pytest.fixture(scope="module")
def found(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with installed(plane, identities.files, POLICY, NAMESPACES) as installation:
        installation.wait_for_calls()
        yield installation


def workload(kind: str, name: str, pod_spec: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    restart = {"restartPolicy": "Never"} if "Job" in kind else {}
    template = {"metadata": {"labels": labels}}
    template["spec"] = {"containers": [{"name": "c", "image": "i"}], **restart, **pod_spec}
    body: dict[str, Any] = {"template": template, **spec}
    if kind == "CronJob":
        body = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}, **spec}
    elif kind == "ReplicationController":
        body["selector"] = labels
    elif kind != "Job":
        body["selector"] = {"matchLabels": labels}
    return {"apiVersion": KINDS[kind], "kind": kind, "metadata": {"name": name}, "spec": body}


def denied(name: str, kind: str = "deployment.apps") -> str:
    """Return what kubectl prints about a workload in the enforced namespace, and never twice in one run."""
    return f"Warning: PlacementConflict: Pods of {kind}/{name} will be denied: service advised: {CONFLICT}"


def deployed(name: str, pod_spec: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    return workload("Deployment", name, pod_spec, **spec)


def kubectl(found: Installation, namespace: str, *arguments: str, given: Any = None) -> list[str]:
    """Run kubectl, which must succeed; return the warnings that it printed."""
    warnings = ["-f", "-"] if given is not None else []
    done = found.plane.kubectl(*arguments, *warnings, "-n", namespace, input=json.dumps(given) if warnings else None)
    return [line for line in done.stderr.splitlines() if line.startswith("Warning:")]


def reviews(found: Installation) -> float:
    return sum(server.total("podgate_workload_reviews_total") for server in found.servers)


@pytest.mark.parametrize("kind", ASKED)
def test_every_workload_kind_is_admitted_with_a_warning(found: Installation, kind: str) -> None:
    given, group = workload(kind, "every", THEIRS), KINDS[kind].partition("/")[0].removesuffix("v1")
    shown = f"{kind.lower()}.{group}" if group else kind.lower()
    warnings = {space: kubectl(found, space, "create", "--dry-run=server", given=given) for space in NAMESPACES}
    assert warnings == {
        "advised": [denied("every", shown)],
        "tried": [f"Warning: PlacementConflict: in Pods of {shown}/every: service tried: {CONFLICT}"],
        "nobodys": [],
    }


@pytest.mark.parametrize("kind", ASKED)
def test_template_without_conflict_is_admitted_without_a_warning(found: Installation, kind: str) -> None:
    before = reviews(found)
    assert kubectl(found, "advised", "create", "--dry-run=server", given=workload(kind, "quiet", {})) == []
    assert reviews(found) == before + 1


def test_daemon_set_is_exempt_like_its_pods(found: Installation) -> None:
    before = reviews(found)
    given = workload("DaemonSet", "agent", THEIRS)
    assert kubectl(found, "advised", "create", "--dry-run=server", given=given) == []
    assert reviews(found) == before


def test_warning_for_the_author_equals_the_denial_of_the_replica_set(found: Installation) -> None:
    before = reviews(found)
    assert kubectl(found, "advised", "create", given=deployed("refused", THEIRS)) == [denied("refused")]
    message = found.plane.wait(lambda: _refusal(found, "refused"), "the ReplicaSet to say why Pods are missing")
    assert f"PlacementConflict: service advised: {CONFLICT}" in message
    assert reviews(found) == before + 1, "the ReplicaSet itself is not asked about"


def _refusal(found: Installation, name: str) -> str:
    sets = found.plane.api.get(f"/apis/apps/v1/namespaces/advised/replicasets?labelSelector=app={name}")["items"]
    conditions = [one for item in sets for one in item["status"].get("conditions", [])]
    return next((one["message"] for one in conditions if one["type"] == "ReplicaFailure"), "")


def test_apply_warns_only_when_the_template_changes(found: Installation) -> None:
    wrong = deployed("changing", THEIRS, replicas=0)
    assert kubectl(found, "advised", "apply", given=wrong) == [denied("changing")]
    assert kubectl(found, "advised", "apply", given=wrong) == []
    assert kubectl(found, "advised", "set", "image", "deployment/changing", "c=j") == [denied("changing")]
    assert kubectl(found, "advised", "rollout", "restart", "deployment/changing") == [denied("changing")]
    mended = {"spec": {"template": {"spec": {"schedulerName": None}}}}
    assert kubectl(found, "advised", "patch", "deployment/changing", "-p", json.dumps(mended)) == []


STATUS = json.dumps({"status": {"conditions": [{"type": "Test", "status": "True"}]}})
QUIET = [
    ("a scale", "deployment", ["scale", "--replicas=1"]),
    ("replicas", "deployment", ["patch", "-p", '{"spec": {"replicas": 2}}']),
    ("a pause", "deployment", ["patch", "-p", '{"spec": {"paused": true}}']),
    ("a status", "deployment", ["patch", "--subresource=status", "-p", STATUS]),
    ("a label", "deployment", ["label", "a=1"]),
    ("an annotation", "deployment", ["annotate", "a=1"]),
    ("a finalizer", "deployment", ["patch", "-p", '{"metadata": {"finalizers": ["example.com/f"]}}']),
    ("a suspension", "cronjob", ["patch", "-p", '{"spec": {"suspend": true}}']),
    ("a label of a CronJob", "cronjob", ["label", "a=1"]),
]


@pytest.fixture(scope="module")
def standing(found: Installation) -> str:
    """Create a Deployment and a CronJob whose Pods would be refused; return their name."""
    given = [deployed("standing", THEIRS, replicas=0), workload("CronJob", "standing", THEIRS)]
    warnings = kubectl(found, "advised", "create", given={"apiVersion": "v1", "kind": "List", "items": given})
    assert warnings == [denied("standing"), denied("standing", "cronjob.batch")]
    return "standing"


@pytest.mark.parametrize(("kind", "command"), [row[1:] for row in QUIET], ids=[row[0] for row in QUIET])
def test_updates_that_keep_the_template_are_not_reviewed(
    found: Installation, standing: str, kind: str, command: list[str]
) -> None:
    before = reviews(found)
    verb, *how = command
    assert kubectl(found, "advised", verb, f"{kind}/{standing}", *how) == []
    assert reviews(found) == before


def test_pod_template_of_a_cron_job_is_reviewed(found: Installation, standing: str) -> None:
    deeper = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}}}}
    changed = ("patch", f"cronjob/{standing}", "-p", json.dumps(deeper))
    assert kubectl(found, "advised", *changed) == [denied(standing, "cronjob.batch")]
    of_the_jobs = {"spec": {"jobTemplate": {"spec": {"backoffLimit": 1}}}}
    assert kubectl(found, "advised", "patch", f"cronjob/{standing}", "-p", json.dumps(of_the_jobs)) == []


def test_job_of_a_cron_job_is_not_reviewed(found: Installation, standing: str) -> None:
    """Kubectl makes it with the ownerReference that the controller writes."""
    before = reviews(found)
    assert kubectl(found, "advised", "create", "job", "by-hand", f"--from=cronjob/{standing}") == []
    assert reviews(found) == before


def test_terminating_workload_is_not_reviewed(found: Installation) -> None:
    leaving = deployed("leaving", {}, replicas=0)
    leaving["metadata"]["finalizers"] = ["example.com/f"]
    kubectl(found, "advised", "create", given=leaving)
    kubectl(found, "advised", "delete", "deployment/leaving", "--wait=false")
    before = reviews(found)
    gone = {"metadata": {"finalizers": None}, "spec": {"template": {"spec": THEIRS}}}
    assert kubectl(found, "advised", "patch", "deployment/leaving", "-p", json.dumps(gone)) == []
    assert reviews(found) == before


def test_half_megabyte_template_is_compared_within_cel_cost_limits(found: Installation) -> None:
    variables = [{"name": f"V{number}", "value": "x" * 480} for number in range(1000)]
    given = deployed("large", {**THEIRS, "containers": [{"name": "c", "image": "i", "env": variables}]}, replicas=0)
    assert kubectl(found, "advised", "create", given=given) == [denied("large")]
    before = reviews(found)
    assert kubectl(found, "advised", "label", "deployment/large", "a=1") == []
    assert reviews(found) == before
    assert kubectl(found, "advised", "set", "image", "deployment/large", "c=j") == [denied("large")]


@pytest.mark.parametrize("kind", KINDS)
def test_workloads_are_created_and_updated_during_an_outage(found: Installation, kind: str) -> None:
    name = f"alone-{kind.lower()}"
    found.load_balancer.targets = []
    found.load_balancer.cut()
    try:
        assert kubectl(found, "advised", "create", given=workload(kind, name, THEIRS)) == []
        if kind != "Job":
            assert kubectl(found, "advised", "set", "image", f"{kind}/{name}", "c=j") == []
        assert kubectl(found, "advised", "delete", f"{kind}/{name}", "--wait=false") == []
    finally:
        found.route()


def test_no_match_condition_failed(found: Installation) -> None:
    """An expression that errs leaves it to failurePolicy: the API server counts these."""
    metrics = found.plane.kubectl("get", "--raw", "/metrics").stdout
    assert "apiserver_admission_match_condition_evaluation_seconds_count" in metrics
    counted = [line for line in metrics.splitlines() if "match_condition_evaluation_errors" in line]
    assert [line for line in counted if "workloads.podgate.io" in line] == []
