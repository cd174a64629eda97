"""Warnings that kubectl shows to authors of workloads, and the reviews that the API server requests."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.workloads import KINDS, workload

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
CONFLICTING = {"schedulerName": "theirs"}
NAMESPACES = ["advised", "tried", "nobodys"]
REVIEWED_KINDS = [kind for kind in KINDS if kind != "DaemonSet"]


@pytest.fixture(scope="module")
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with install_podgate(plane, identities.files, POLICY, NAMESPACES) as installation:
        installation.wait_for_calls()
        yield installation


def format_warning(name: str, kind: str = "deployment.apps") -> str:
    """Return the warning that kubectl prints about a workload in the enforced namespace."""
    return f"Warning: PlacementConflict: Pods of {kind}/{name} will be denied: service advised: {CONFLICT}"


def make_deployment(name: str, pod_spec: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    return workload("Deployment", name, pod_spec, **spec)


def kubectl(installation: Installation, namespace: str, *arguments: str, manifest: Any = None) -> list[str]:
    """Run kubectl, which must succeed; return the warnings that it printed."""
    warnings = ["-f", "-"] if manifest is not None else []
    done = installation.plane.kubectl(
        *arguments, *warnings, "-n", namespace, input=json.dumps(manifest) if warnings else None
    )
    return [line for line in done.stderr.splitlines() if line.startswith("Warning:")]


def reviews(installation: Installation) -> float:
    return sum(server.total("podgate_workload_reviews_total") for server in installation.servers)


def make_list(kinds: Iterable[str], name: str, pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a List with a workload of each kind: one kubectl process creates them all."""
    items = [workload(kind, name.format(kind.lower()), pod_spec) for kind in kinds]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def test_every_workload_kind_is_admitted_with_a_warning(installation: Installation) -> None:
    manifest = make_list(REVIEWED_KINDS, "every", CONFLICTING)
    groups = {kind: KINDS[kind].partition("/")[0].removesuffix("v1") for kind in REVIEWED_KINDS}
    resources = [f"{kind.lower()}.{group}" if group else kind.lower() for kind, group in groups.items()]
    warnings = {
        space: kubectl(installation, space, "create", "--dry-run=server", manifest=manifest) for space in NAMESPACES
    }
    tried = "Warning: PlacementConflict: in Pods of {}/every: service tried: {}"
    assert warnings == {
        "advised": [format_warning("every", resource) for resource in resources],
        "tried": [tried.format(resource, CONFLICT) for resource in resources],
        "nobodys": [],
    }


def test_template_without_conflict_is_admitted_without_a_warning(installation: Installation) -> None:
    before = reviews(installation)
    quiet = make_list(REVIEWED_KINDS, "quiet", {})
    assert kubectl(installation, "advised", "create", "--dry-run=server", manifest=quiet) == []
    assert reviews(installation) == before + len(REVIEWED_KINDS)


def test_daemon_set_is_exempt_like_its_pods(installation: Installation) -> None:
    before = reviews(installation)
    manifest = workload("DaemonSet", "agent", CONFLICTING)
    assert kubectl(installation, "advised", "create", "--dry-run=server", manifest=manifest) == []
    assert reviews(installation) == before


def test_warning_for_the_author_equals_the_denial_of_the_replica_set(installation: Installation) -> None:
    before = reviews(installation)
    assert kubectl(installation, "advised", "create", manifest=make_deployment("refused", CONFLICTING)) == [
        format_warning("refused")
    ]
    message = installation.plane.wait(
        lambda: _creation_failure(installation, "refused"), "the ReplicaSet to report the denial"
    )
    assert f"PlacementConflict: service advised: {CONFLICT}" in message
    assert reviews(installation) == before + 1, "the ReplicaSet itself is not reviewed"


def _creation_failure(installation: Installation, name: str) -> str:
    sets = installation.plane.api.get(f"/apis/apps/v1/namespaces/advised/replicasets?labelSelector=app={name}")["items"]
    conditions = [condition for item in sets for condition in item["status"].get("conditions", [])]
    return next((condition["message"] for condition in conditions if condition["type"] == "ReplicaFailure"), "")


def test_apply_warns_only_when_the_template_changes(installation: Installation) -> None:
    conflicting = make_deployment("changing", CONFLICTING, replicas=0)
    assert kubectl(installation, "advised", "apply", manifest=conflicting) == [format_warning("changing")]
    assert kubectl(installation, "advised", "apply", manifest=conflicting) == []
    assert kubectl(installation, "advised", "set", "image", "deployment/changing", "c=j") == [
        format_warning("changing")
    ]
    assert kubectl(installation, "advised", "rollout", "restart", "deployment/changing") == [format_warning("changing")]
    corrected = {"spec": {"template": {"spec": {"schedulerName": None}}}}
    assert kubectl(installation, "advised", "patch", "deployment/changing", "-p", json.dumps(corrected)) == []


STATUS = json.dumps({"status": {"conditions": [{"type": "Test", "status": "True"}]}})
UNREVIEWED = [
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
def conflicting_workloads(installation: Installation) -> str:
    """Create a Deployment and a CronJob whose Pods would be denied; return their name."""
    manifest = [make_deployment("standing", CONFLICTING, replicas=0), workload("CronJob", "standing", CONFLICTING)]
    warnings = kubectl(
        installation, "advised", "create", manifest={"apiVersion": "v1", "kind": "List", "items": manifest}
    )
    assert warnings == [format_warning("standing"), format_warning("standing", "cronjob.batch")]
    return "standing"


@pytest.mark.parametrize(("kind", "command"), [row[1:] for row in UNREVIEWED], ids=[row[0] for row in UNREVIEWED])
def test_updates_that_keep_the_template_are_not_reviewed(
    installation: Installation, conflicting_workloads: str, kind: str, command: list[str]
) -> None:
    before = reviews(installation)
    verb, *options = command
    assert kubectl(installation, "advised", verb, f"{kind}/{conflicting_workloads}", *options) == []
    assert reviews(installation) == before


def test_pod_template_of_a_cron_job_is_reviewed(installation: Installation, conflicting_workloads: str) -> None:
    template_patch = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}}}}
    changed = ("patch", f"cronjob/{conflicting_workloads}", "-p", json.dumps(template_patch))
    assert kubectl(installation, "advised", *changed) == [format_warning(conflicting_workloads, "cronjob.batch")]
    job_patch = {"spec": {"jobTemplate": {"spec": {"backoffLimit": 1}}}}
    assert (
        kubectl(installation, "advised", "patch", f"cronjob/{conflicting_workloads}", "-p", json.dumps(job_patch)) == []
    )


def test_job_of_a_cron_job_is_not_reviewed(installation: Installation, conflicting_workloads: str) -> None:
    """Like the controller, kubectl sets the ownerReference."""
    before = reviews(installation)
    assert kubectl(installation, "advised", "create", "job", "by-hand", f"--from=cronjob/{conflicting_workloads}") == []
    assert reviews(installation) == before


def test_terminating_workload_is_not_reviewed(installation: Installation) -> None:
    terminating = make_deployment("leaving", {}, replicas=0)
    terminating["metadata"]["finalizers"] = ["example.com/f"]
    kubectl(installation, "advised", "create", manifest=terminating)
    kubectl(installation, "advised", "delete", "deployment/leaving", "--wait=false")
    before = reviews(installation)
    patch = {"metadata": {"finalizers": None}, "spec": {"template": {"spec": CONFLICTING}}}
    assert kubectl(installation, "advised", "patch", "deployment/leaving", "-p", json.dumps(patch)) == []
    assert reviews(installation) == before


def test_half_megabyte_template_is_compared_within_cel_cost_limits(installation: Installation) -> None:
    variables = [{"name": f"V{number}", "value": "x" * 480} for number in range(1000)]
    manifest = make_deployment(
        "large", {**CONFLICTING, "containers": [{"name": "c", "image": "i", "env": variables}]}, replicas=0
    )
    assert kubectl(installation, "advised", "create", manifest=manifest) == [format_warning("large")]
    before = reviews(installation)
    assert kubectl(installation, "advised", "label", "deployment/large", "a=1") == []
    assert reviews(installation) == before
    assert kubectl(installation, "advised", "set", "image", "deployment/large", "c=j") == [format_warning("large")]


def test_workloads_are_created_and_updated_during_an_outage(installation: Installation) -> None:
    names = {kind: f"{kind}/alone-{kind.lower()}" for kind in KINDS}
    updated = [name for kind, name in names.items() if kind != "Job"]
    installation.load_balancer.targets = []
    installation.load_balancer.cut()
    try:
        assert kubectl(installation, "advised", "create", manifest=make_list(KINDS, "alone-{}", CONFLICTING)) == []
        assert kubectl(installation, "advised", "set", "image", *updated, "c=j") == []
        assert kubectl(installation, "advised", "delete", *names.values(), "--wait=false") == []
    finally:
        installation.route()


def test_no_match_condition_failed(installation: Installation) -> None:
    """The API server counts expressions that fail, for which failurePolicy applies."""
    metrics = installation.plane.kubectl("get", "--raw", "/metrics").stdout
    assert "apiserver_admission_match_condition_evaluation_seconds_count" in metrics
    errors = [line for line in metrics.splitlines() if "match_condition_evaluation_errors" in line]
    assert [line for line in errors if "workloads.podgate.io" in line] == []
