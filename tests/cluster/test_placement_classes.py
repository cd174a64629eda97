"""priorityClassName and runtimeClassName with the API server's admission plugins."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, installed
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


def app(value: str, rule: str) -> str:
    """Return the name of the service whose policy sets the class, and does so by this rule where there is another."""
    return f"{value}-{rule.lower()}"


POLICY = policy(
    *(
        service(app(value, rule), SPACE, {field: value, "onConflict": {"default": rule}})
        for field, values in WANTED.items()
        for value in values
        for rule in RULES
    )
)


@pytest.fixture(scope="module")
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with classes(plane, *CLASSES), installed(plane, identities.files, json.dumps(POLICY), [SPACE]) as found:
        found.wait_for_calls()
        yield found


def created(plane: ControlPlane, found: Json, *, dry_run: bool = True) -> tuple[int, Any]:
    """Create a Pod; return status, and the spec that was stored or what was said."""
    query = "?dryRun=All" if dry_run else ""
    status, answer = plane.api.request("POST", f"/api/v1/namespaces/{SPACE}/pods{query}", found)
    return status, answer["spec"] if status == 201 else answer["message"]


def priority(spec: Json) -> tuple[str, int, str]:
    return spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]


pytestmark = pytest.mark.usefixtures("installation")


# --- priorityClassName ---


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("wanted", ["never", "high"])
def test_global_default_class_is_no_conflict(plane: ControlPlane, wanted: str, rule: str) -> None:
    _, spec = created(plane, pod("web", app(wanted, rule)))
    assert priority(spec) == (wanted, *PRIORITIES[wanted])


@pytest.mark.parametrize("own", ["batch", "high"])
def test_explicit_class_is_kept_or_replaced_together_with_its_priority(plane: ControlPlane, own: str) -> None:
    _, kept = created(plane, pod("web", app("never", "Keep"), priorityClassName=own))
    assert priority(kept) == (own, *PRIORITIES[own])
    _, replaced = created(plane, pod("web", app("never", "Override"), priorityClassName=own))
    assert priority(replaced) == ("never", 500, "Never")


def test_explicit_priority_is_replaced_with_the_class(plane: ControlPlane) -> None:
    """A user may write the number too, as long as it is the one of his class."""
    _, of_nobody = created(plane, pod("web", app("never", "Deny"), priority=7))
    _, of_batch = created(plane, pod("web", app("never", "Override"), priorityClassName="batch", priority=100))
    assert [priority(of_nobody), priority(of_batch)] == [("never", 500, "Never")] * 2


def test_explicit_priority_class_is_denied_by_name(plane: ControlPlane) -> None:
    status, message = created(plane, pod("web", app("never", "Deny"), priorityClassName="batch"))
    assert status == 403
    assert (
        "PlacementConflict: service never-deny: spec.priorityClassName is 'batch', the policy sets 'never'" in message
    )


def test_explicitly_written_global_default_counts_as_explicit(plane: ControlPlane) -> None:
    status, message = created(plane, pod("web", app("never", "Deny"), priorityClassName="everybodys"))
    assert status == 403
    assert "spec.priorityClassName is 'everybodys', the policy sets 'never'" in message


def test_deployment_without_a_class_gets_the_class_of_the_policy(plane: ControlPlane) -> None:
    plane.kubectl("create", "-n", SPACE, "-f", "-", input=json.dumps(deployment("quiet", app("never", "Deny"))))
    [made] = plane.wait(lambda: pods_of(plane, "quiet"), "the Deployment's Pod")
    assert priority(made["spec"]) == ("never", 500, "Never")


def test_deployment_with_another_class_is_warned_and_its_replica_set_shows_the_denial(
    plane: ControlPlane,
) -> None:
    wrong = deployment("loud", app("never", "Deny"), priorityClassName="batch")
    done = plane.kubectl("create", "-n", SPACE, "-f", "-", input=json.dumps(wrong))
    [warning] = done.stderr.splitlines()
    assert re.match(r"Warning: PlacementConflict: .*will be denied: .*spec\.priorityClassName is 'batch'", warning)
    message = plane.wait(lambda: refusal(plane, "loud"), "the ReplicaSet to say why")
    assert "spec.priorityClassName is 'batch', the policy sets 'never'" in message


def pods_of(plane: ControlPlane, name: str) -> list[Json]:
    found = plane.api.get(f"/api/v1/namespaces/{SPACE}/pods?labelSelector=deployment%3D{name}")
    return list(found["items"])


def refusal(plane: ControlPlane, name: str) -> str:
    sets = plane.api.get(f"/apis/apps/v1/namespaces/{SPACE}/replicasets?labelSelector=deployment%3D{name}")["items"]
    conditions = [
        one for found in sets for one in found["status"].get("conditions", []) if one["type"] == "ReplicaFailure"
    ]
    return conditions[0]["message"] if conditions else ""


@pytest.mark.parametrize("own", [{}, {"priorityClassName": "batch"}], ids=["absent", "another"])
def test_unknown_priority_class_is_named_by_the_api_server(plane: ControlPlane, own: Json) -> None:
    status, message = created(plane, pod("web", app(NO_PRIORITY, "Override"), **own))
    assert (status, message) == (403, 'pods "web" is forbidden: no PriorityClass with name no-priority was found')


# --- who chose a class, by what the API server notes of it ---

APPLY = ("apply", "--server-side")
VERBS = (("create",), ("create", "--save-config"), ("apply",), APPLY, (*APPLY, "--field-manager=kubelet"))


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_kubectl_cannot_disguise_an_explicit_class_as_the_default(plane: ControlPlane, verb: tuple[str, ...]) -> None:
    def done(name: str, **spec: Any) -> str:
        document = json.dumps(pod(name, app("never", "Deny"), **spec))
        return plane.kubectl(*verb, "--dry-run=server", "-n", SPACE, "-f", "-", input=document, check=False).stderr

    assert done("chosen", priorityClassName="batch").count("spec.priorityClassName is 'batch'") == 1
    assert done("not-chosen") == ""


def entry(fields: Any, **more: Any) -> Json:
    """Return an entry of managedFields as a client might forge it."""
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
    for own, expected in answers:
        found = pod("web", app("never", "Deny"), **own)
        found["metadata"]["managedFields"] = forged
        assert created(plane, found)[0] == expected, own


def test_default_class_claimed_as_explicit_gains_nothing(plane: ControlPlane) -> None:
    found = pod("web", app("never", "Deny"))
    found["metadata"]["managedFields"] = [entry({"f:spec": {"f:priorityClassName": {}}})]
    status, message = created(plane, found)
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


@pytest.mark.parametrize(("own", "wanted", "rule", "expected"), CASES.values(), ids=CASES.keys())
def test_runtime_class_sets_its_overhead(
    plane: ControlPlane, own: str | None, wanted: str, rule: str, expected: str
) -> None:
    asked: Json = {} if own is None else {"runtimeClassName": own}
    _, spec = created(plane, pod("web", app(wanted, rule), **asked))
    assert (spec["runtimeClassName"], spec.get("overhead")) == (expected, OVERHEADS.get(expected))


def test_runtime_class_of_the_policy_adds_its_scheduling_constraints(plane: ControlPlane) -> None:
    _, spec = created(plane, pod("web", app("fenced", "Deny"), nodeSelector={"disk": "ssd"}))
    assert spec["nodeSelector"] == {"disk": "ssd", "runtime": "fenced"}
    assert spec["tolerations"].count(RUNTIME) == 1


def test_explicit_runtime_class_is_denied_by_name(plane: ControlPlane) -> None:
    status, message = created(plane, pod("web", app("gvisor", "Deny"), runtimeClassName="kata"))
    assert status == 403
    assert "spec.runtimeClassName is 'kata', the policy sets 'gvisor'" in message


def test_unknown_runtime_class_is_named_by_the_api_server(plane: ControlPlane) -> None:
    status, message = created(plane, pod("web", app(NO_RUNTIME, "Override")))
    assert (status, message) == (403, 'pods "web" is forbidden: pod rejected: RuntimeClass "no-runtime" not found')


# --- the validating half alone ---


def test_skipped_rewrite_is_distinguished_from_an_explicit_class(
    plane: ControlPlane, installation: Installation
) -> None:
    plane.kubectl("delete", "mutatingwebhookconfiguration", "podgate")
    try:
        quiet = pod("web", app("never", "Deny"))
        message = plane.wait(lambda: missing(created(plane, quiet)), "the mutating half to be skipped")
        assert "PlacementConflict" not in message
        chosen = created(plane, pod("web", app("never", "Deny"), priorityClassName="batch", runtimeClassName="kata"))
        assert "MutationMissing" in missing(chosen)
        assert "PlacementConflict: service never-deny: spec.priorityClassName is 'batch'" in missing(chosen)
    finally:
        installation.configure()
        installation.wait_for_calls()


def missing(answer: tuple[int, Any]) -> str:
    """Return what was said of a Pod that was not rewritten; empty where it was."""
    status, message = answer
    return message if status != 201 else ""
