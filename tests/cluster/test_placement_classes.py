"""priorityClassName and runtimeClassName with the API server's admission plugins."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.placement.classes import classes, priority_class, runtime_class
from tests.cluster.placement.pods import deployment, pod, policy, service

Json = dict[str, Any]
SPACE = "classes"
RULES = ("Deny", "Keep", "Override")
RUNTIME = {"key": "runtime", "operator": "Exists", "effect": "NoSchedule"}
CLASSES = (
    priority_class("high", 1000),
    priority_class("never", 500, never=True),
    priority_class("batch", 100),
    priority_class("everybodys", 7, is_global_default=True),
    runtime_class("plain"),
    runtime_class("gvisor", {"cpu": "50m", "memory": "64Mi"}),
    runtime_class("kata", {"cpu": "250m"}),
    runtime_class("fenced", {"cpu": "10m"}, nodeSelector={"runtime": "fenced"}, tolerations=[RUNTIME]),
)
NO_PRIORITY, NO_RUNTIME = "no-priority", "no-runtime"
WANTED = {
    "priorityClassName": ("never", "high", NO_PRIORITY),
    "runtimeClassName": ("plain", "gvisor", "fenced", NO_RUNTIME),
}
PRIORITIES = {"batch": (100, "PreemptLowerPriority"), "never": (500, "Never"), "high": (1000, "PreemptLowerPriority")}
OVERHEADS = {"gvisor": {"cpu": "50m", "memory": "64Mi"}, "kata": {"cpu": "250m"}, "fenced": {"cpu": "10m"}}


def service_name(value: str, rule: str) -> str:
    """Return the name of the service that sets this class with this rule for conflicts."""
    return f"{value}-{rule.lower()}"


POLICY = policy(
    *(
        service(service_name(value, rule), SPACE, {field: value, "onConflict": {"default": rule}})
        for field, values in WANTED.items()
        for value in values
        for rule in RULES
    )
)


@pytest.fixture(scope="module")
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with (
        classes(plane, *CLASSES),
        install_podgate(plane, identities.files, json.dumps(POLICY), [SPACE]) as installation,
    ):
        installation.wait_for_calls()
        yield installation


def create(plane: ControlPlane, pod_to_create: Json, *, dry_run: bool = True) -> tuple[int, Any]:
    """Create a Pod; return the status, and the stored spec or the message."""
    query = "?dryRun=All" if dry_run else ""
    status, answer = plane.api.request("POST", f"/api/v1/namespaces/{SPACE}/pods{query}", pod_to_create)
    return status, answer["spec"] if status == 201 else answer["message"]


def priority(spec: Json) -> tuple[str, int, str]:
    return spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]


pytestmark = pytest.mark.usefixtures("installation")


# --- priorityClassName ---


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("policy_class", ["never", "high"])
def test_global_default_class_is_no_conflict(plane: ControlPlane, policy_class: str, rule: str) -> None:
    _, spec = create(plane, pod("web", service_name(policy_class, rule)))
    assert priority(spec) == (policy_class, *PRIORITIES[policy_class])


@pytest.mark.parametrize("own_class", ["batch", "high"])
def test_explicit_class_is_kept_or_replaced_together_with_its_priority(plane: ControlPlane, own_class: str) -> None:
    _, kept_spec = create(plane, pod("web", service_name("never", "Keep"), priorityClassName=own_class))
    assert priority(kept_spec) == (own_class, *PRIORITIES[own_class])
    _, replaced_spec = create(plane, pod("web", service_name("never", "Override"), priorityClassName=own_class))
    assert priority(replaced_spec) == ("never", 500, "Never")


def test_explicit_priority_is_replaced_with_the_class(plane: ControlPlane) -> None:
    """A user may also set the priority of the class."""
    _, without_class = create(plane, pod("web", service_name("never", "Deny"), priority=7))
    _, with_batch = create(
        plane, pod("web", service_name("never", "Override"), priorityClassName="batch", priority=100)
    )
    assert [priority(without_class), priority(with_batch)] == [("never", 500, "Never")] * 2


def test_explicit_priority_class_is_denied_by_name(plane: ControlPlane) -> None:
    status, message = create(plane, pod("web", service_name("never", "Deny"), priorityClassName="batch"))
    assert status == 403
    assert (
        "PlacementConflict: service never-deny: spec.priorityClassName is 'batch', the policy sets 'never'" in message
    )


def test_explicitly_written_global_default_counts_as_explicit(plane: ControlPlane) -> None:
    status, message = create(plane, pod("web", service_name("never", "Deny"), priorityClassName="everybodys"))
    assert status == 403
    assert "spec.priorityClassName is 'everybodys', the policy sets 'never'" in message


def test_deployment_without_a_class_gets_the_class_of_the_policy(plane: ControlPlane) -> None:
    plane.kubectl(
        "create", "-n", SPACE, "-f", "-", input=json.dumps(deployment("quiet", service_name("never", "Deny")))
    )
    [created_pod] = plane.wait(lambda: pods_of(plane, "quiet"), "the Deployment's Pod")
    assert priority(created_pod["spec"]) == ("never", 500, "Never")


def test_deployment_with_another_class_is_warned_and_its_replica_set_shows_the_denial(
    plane: ControlPlane,
) -> None:
    conflicting = deployment("loud", service_name("never", "Deny"), priorityClassName="batch")
    result = plane.kubectl("create", "-n", SPACE, "-f", "-", input=json.dumps(conflicting))
    [warning] = result.stderr.splitlines()
    assert re.match(r"Warning: PlacementConflict: .*will be denied: .*spec\.priorityClassName is 'batch'", warning)
    message = plane.wait(lambda: creation_failure(plane, "loud"), "the ReplicaSet to report the denial")
    assert "spec.priorityClassName is 'batch', the policy sets 'never'" in message


def pods_of(plane: ControlPlane, name: str) -> list[Json]:
    pod_list = plane.api.get(f"/api/v1/namespaces/{SPACE}/pods?labelSelector=deployment%3D{name}")
    return list(pod_list["items"])


def creation_failure(plane: ControlPlane, name: str) -> str:
    sets = plane.api.get(f"/apis/apps/v1/namespaces/{SPACE}/replicasets?labelSelector=deployment%3D{name}")["items"]
    conditions = [
        condition
        for replica_set in sets
        for condition in replica_set["status"].get("conditions", [])
        if condition["type"] == "ReplicaFailure"
    ]
    return conditions[0]["message"] if conditions else ""


@pytest.mark.parametrize("own_spec", [{}, {"priorityClassName": "batch"}], ids=["absent", "another"])
def test_unknown_priority_class_is_named_by_the_api_server(plane: ControlPlane, own_spec: Json) -> None:
    status, message = create(plane, pod("web", service_name(NO_PRIORITY, "Override"), **own_spec))
    assert (status, message) == (403, 'pods "web" is forbidden: no PriorityClass with name no-priority was found')


# --- explicit classes, recognized by managedFields ---

APPLY = ("apply", "--server-side")
VERBS = (("create",), ("create", "--save-config"), ("apply",), APPLY, (*APPLY, "--field-manager=kubelet"))


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_kubectl_cannot_disguise_an_explicit_class_as_the_default(plane: ControlPlane, verb: tuple[str, ...]) -> None:
    def kubectl_errors(name: str, **spec: Any) -> str:
        document = json.dumps(pod(name, service_name("never", "Deny"), **spec))
        return plane.kubectl(*verb, "--dry-run=server", "-n", SPACE, "-f", "-", input=document, check=False).stderr

    assert kubectl_errors("chosen", priorityClassName="batch").count("spec.priorityClassName is 'batch'") == 1
    assert kubectl_errors("not-chosen") == ""


def entry(fields: Any, **more: Any) -> Json:
    """Return a forged entry of managedFields."""
    kind = {"manager": "forger", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return {**kind, "fieldsV1": fields, **more}


FORGED: dict[str, list[Json] | None] = {
    "none": None,
    "no entries": [],
    "reset": [{}],
    "reset twice": [{}, {}],
    "another field": [entry({"f:metadata": {"f:labels": {}}})],
    "everything but the class": [entry({"f:spec": {"f:containers": {}, "f:nodeName": {}}})],
    "as somebody who applies": [entry({"f:spec": {}}, operation="Apply")],
    "of a subresource": [entry({"f:spec": {"f:containers": {}}}, subresource="status")],
    "under the client's own name": [entry({"f:spec": {"f:containers": {}}}, manager="unknown")],
    "of another version": [entry({"f:spec": {}}, apiVersion="v9")],
    "not to be read": [entry({"f:spec": []})],
    "of another type": [entry({"f:spec": {}}, fieldsType="FieldsV2")],
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_forged_managed_fields_do_not_hide_an_explicit_class(plane: ControlPlane, forged: list[Json] | None) -> None:
    answers: tuple[tuple[Json, int], ...] = (({"priorityClassName": "batch"}, 403), ({}, 201))
    for own_spec, expected in answers:
        forged_pod = pod("web", service_name("never", "Deny"), **own_spec)
        forged_pod["metadata"]["managedFields"] = forged
        assert create(plane, forged_pod)[0] == expected, own_spec


def test_default_class_claimed_as_explicit_gains_nothing(plane: ControlPlane) -> None:
    forged_pod = pod("web", service_name("never", "Deny"))
    forged_pod["metadata"]["managedFields"] = [entry({"f:spec": {"f:priorityClassName": {}}})]
    status, message = create(plane, forged_pod)
    assert status == 403
    assert "spec.priorityClassName is 'everybodys'" in message


# --- runtimeClassName ---

CASES = {
    "absent, to one without overhead": (None, "plain", "Deny", "plain"),
    "absent, to one with overhead": (None, "gvisor", "Deny", "gvisor"),
    "absent, to one with places": (None, "fenced", "Deny", "fenced"),
    "equal": ("gvisor", "gvisor", "Deny", "gvisor"),
    "kept": ("kata", "gvisor", "Keep", "kata"),
    "from one overhead to another": ("kata", "gvisor", "Override", "gvisor"),
    "from overhead to none": ("kata", "plain", "Override", "plain"),
    "from none to overhead": ("plain", "gvisor", "Override", "gvisor"),
    "from overhead to one with places": ("kata", "fenced", "Override", "fenced"),
}


@pytest.mark.parametrize(("own_class", "policy_class", "rule", "expected"), CASES.values(), ids=CASES.keys())
def test_runtime_class_sets_its_overhead(
    plane: ControlPlane, own_class: str | None, policy_class: str, rule: str, expected: str
) -> None:
    own_spec: Json = {} if own_class is None else {"runtimeClassName": own_class}
    _, spec = create(plane, pod("web", service_name(policy_class, rule), **own_spec))
    assert (spec["runtimeClassName"], spec.get("overhead")) == (expected, OVERHEADS.get(expected))


def test_runtime_class_of_the_policy_adds_its_scheduling_constraints(plane: ControlPlane) -> None:
    _, spec = create(plane, pod("web", service_name("fenced", "Deny"), nodeSelector={"disk": "ssd"}))
    assert spec["nodeSelector"] == {"disk": "ssd", "runtime": "fenced"}
    assert spec["tolerations"].count(RUNTIME) == 1


def test_explicit_runtime_class_is_denied_by_name(plane: ControlPlane) -> None:
    status, message = create(plane, pod("web", service_name("gvisor", "Deny"), runtimeClassName="kata"))
    assert status == 403
    assert "spec.runtimeClassName is 'kata', the policy sets 'gvisor'" in message


def test_unknown_runtime_class_is_named_by_the_api_server(plane: ControlPlane) -> None:
    status, message = create(plane, pod("web", service_name(NO_RUNTIME, "Override")))
    assert (status, message) == (403, 'pods "web" is forbidden: pod rejected: RuntimeClass "no-runtime" not found')


# --- without the mutating webhook ---


def test_skipped_rewrite_is_distinguished_from_an_explicit_class(
    plane: ControlPlane, installation: Installation
) -> None:
    plane.kubectl("delete", "mutatingwebhookconfiguration", "podgate")
    try:
        unclassified = pod("web", service_name("never", "Deny"))
        message = plane.wait(lambda: denial(create(plane, unclassified)), "the mutating webhook to be skipped")
        assert "PlacementConflict" not in message
        answer_for_chosen = create(
            plane, pod("web", service_name("never", "Deny"), priorityClassName="batch", runtimeClassName="kata")
        )
        assert "MutationMissing" in denial(answer_for_chosen)
        assert "PlacementConflict: service never-deny: spec.priorityClassName is 'batch'" in denial(answer_for_chosen)
    finally:
        installation.configure()
        installation.wait_for_calls()


def denial(answer: tuple[int, Any]) -> str:
    """Return the denial of a Pod that was not rewritten, or "" if it was admitted."""
    status, message = answer
    return message if status != 201 else ""
