"""Changes of a Pod between Podgate's calls: merged label keys, reinvocation, later webhooks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import install_podgate
from tests.cluster.kwok import ZONE
from tests.cluster.placement.classes import classes, priority_class, runtime_class
from tests.cluster.placement.other_webhook import register_webhook
from tests.cluster.placement.pods import pod, policy, service
from tests.cluster.placement.review_tap import Exchange, Tap, tap_calls

Json = dict[str, Any]
SPACE = "rounds"
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
HOST = "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "merged"}}
NEAR = {"topologyKey": ZONE, "labelSelector": WEB, "matchLabelKeys": ["version"], "mismatchLabelKeys": ["tenant"]}
APART = {"topologyKey": HOST, "labelSelector": WEB, "matchLabelKeys": ["version"]}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["version"]}
EVEN = {
    "maxSkew": 1,
    "topologyKey": HOST,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": WEB,
    "matchLabelKeys": ["version"],
}
IN_ZONE = {"key": ZONE, "operator": "In", "values": ["zone-a", "zone-b"]}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "payments", "effect": "NoSchedule"}

MERGED = {
    "affinity": {
        "podAffinity": {REQUIRED: [NEAR], PREFERRED: [{"weight": 5, "podAffinityTerm": NEAR}]},
        "podAntiAffinity": {REQUIRED: [APART]},
    },
    "topologySpreadConstraints": [SPREAD, EVEN],
}
PLACED = {
    "priorityClassName": "high",
    "runtimeClassName": "gvisor",
    "schedulerName": "podgate-scheduler",
    "nodeSelector": {"disk": "ssd"},
    "topology": [
        {"level": "Zone", "in": ["zone-a", "zone-b"]},
        {"level": "Zone", "in": ["zone-a"], "preferredWeight": 9},
    ],
    "tolerations": [DEDICATED],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}],
}
POLICY = policy(
    service("merged", SPACE, MERGED),
    service("late", SPACE, {"priorityClassName": "high"}),
    service("strict", SPACE, PLACED),
    service("lenient", SPACE, {**PLACED, "onConflict": {"default": "Override"}}),
)


@pytest.fixture(scope="module")
def tap(plane: ControlPlane, identities: Identities) -> Iterator[Tap]:
    # Without a global default class, a Pod has the priority 0, which is not an explicit choice.
    known_classes = (
        priority_class("high", 1000),
        priority_class("low", 1, never=True),
        runtime_class("gvisor", {"cpu": "50m"}),
    )
    with (
        classes(plane, *known_classes),
        install_podgate(plane, identities.files, json.dumps(POLICY), [SPACE]) as installation,
        tap_calls(installation.load_balancer, identities) as review_tap,
    ):
        installation.wait_for_calls()
        yield review_tap


def create(plane: ControlPlane, tap: Tap, pod_to_create: Json) -> tuple[int, Any, list[Exchange]]:
    """Create a Pod; return the status, the spec or the message, and the calls to the mutating webhook."""
    tap.take_exchanges()
    status, answer = plane.api.request("POST", f"/api/v1/namespaces/{SPACE}/pods?dryRun=All", pod_to_create)
    calls = [exchange for exchange in tap.take_exchanges() if exchange.half == "mutate"]
    return status, answer["spec"] if status == 201 else answer["message"], calls


# --- label keys that the API server merges into selectors between the two calls ---

LABELS = {"version": "v1", "tenant": "shop"}
SAME = {"key": "version", "operator": "In", "values": ["v1"]}
OTHERS = {"key": "tenant", "operator": "NotIn", "values": ["shop"]}


def test_label_keys_are_merged_after_the_rewrite_without_conflict(plane: ControlPlane, tap: Tap) -> None:
    status, spec, _ = create(plane, tap, pod("web", "merged", labels=LABELS))
    assert status == 201, spec
    [near], [apart] = spec["affinity"]["podAffinity"][REQUIRED], spec["affinity"]["podAntiAffinity"][REQUIRED]
    assert near == {**NEAR, "labelSelector": {**WEB, "matchExpressions": [SAME, OTHERS]}}
    assert apart == {**APART, "labelSelector": {**WEB, "matchExpressions": [SAME]}}
    own_selector = {"matchLabels": {"podgate.io/service": "merged"}, "matchExpressions": [SAME]}
    assert spec["topologySpreadConstraints"] == [
        {**SPREAD, "labelSelector": own_selector},
        {**EVEN, "labelSelector": {**WEB, "matchExpressions": [SAME]}},
    ]


def test_existing_terms_with_label_keys_are_not_repeated(plane: ControlPlane, tap: Tap) -> None:
    spread = {**SPREAD, "labelSelector": {"matchLabels": {"podgate.io/service": "merged"}}}
    own_spec = {"affinity": MERGED["affinity"], "topologySpreadConstraints": [EVEN, spread]}
    status, spec, [mutation] = create(plane, tap, pod("web", "merged", labels=LABELS, **own_spec))
    assert status == 201, spec
    assert not [operation for operation in mutation.patch if operation["path"].startswith("/spec/")]
    assert len(spec["topologySpreadConstraints"]) == 2


def test_label_keys_of_absent_labels_are_not_merged(plane: ControlPlane, tap: Tap) -> None:
    status, spec, _ = create(plane, tap, pod("web", "merged"))
    assert status == 201, spec
    assert spec["affinity"]["podAffinity"][REQUIRED] == [NEAR]


# --- second rounds of the API server's own plugins ---


def test_default_priority_is_replaced_by_the_priority_of_the_class(plane: ControlPlane, tap: Tap) -> None:
    status, spec, [first, *reinvocations] = create(plane, tap, pod("web", "strict"))
    assert status == 201, spec
    assert (first.object["spec"]["priority"], "priorityClassName" in first.object["spec"]) == (0, False)
    assert (spec["priorityClassName"], spec["priority"], spec["overhead"]) == ("high", 1000, {"cpu": "50m"})
    assert [reinvocation.patch for reinvocation in reinvocations] == [[]] * len(reinvocations)


# --- webhooks that are called after Podgate's ---


def add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Json:
    return {"op": "remove", "path": path}


SIDECAR = {"name": "sidecar", "image": "i"}


def sidecar_patch(pod_to_patch: Json) -> list[Json]:
    """Return the patch that adds a container once, as a service mesh does."""
    names = [container["name"] for container in pod_to_patch["spec"]["containers"]]
    return [] if "sidecar" in names else [add("/spec/containers/-", SIDECAR)]


@pytest.mark.parametrize("app", ["merged", "strict"])
def test_reinvocation_after_an_injected_sidecar_repeats_nothing(
    plane: ControlPlane, identities: Identities, tap: Tap, app: str
) -> None:
    pod_of_user = pod(
        "web", app, labels=LABELS, nodeSelector={"rack": "r1"}, tolerations=[{**DEDICATED, "value": "other"}]
    )
    pod_of_user["spec"]["automountServiceAccountToken"] = False  # the volume's name is random
    _, spec_without_sidecar, _ = create(plane, tap, pod_of_user)
    with register_webhook(plane, identities, SPACE, sidecar_patch):
        status, spec, calls = create(plane, tap, pod_of_user)
    assert status == 201, spec
    first, *reinvocations = [call.patch for call in calls]
    assert first
    assert reinvocations, "the API server reinvokes the webhook after another one's change"
    assert reinvocations == [[]] * len(reinvocations)
    assert spec == {**spec_without_sidecar, "containers": spec["containers"]}
    assert [container["name"] for container in spec["containers"]] == ["c", "sidecar"]


UNDOING = {
    "the scheduler": lambda pod_to_patch: (
        [add("/spec/schedulerName", "volcano")] * (pod_to_patch["spec"]["schedulerName"] != "volcano")
    ),
    "the affinity": lambda pod_to_patch: [remove("/spec/affinity")] * ("affinity" in pod_to_patch["spec"]),
    "the tolerations": lambda pod_to_patch: (
        [add("/spec/tolerations", [])] * bool(pod_to_patch["spec"].get("tolerations"))
    ),
    "the node selector": lambda pod_to_patch: (
        [add("/spec/nodeSelector/disk", "hdd")] * (pod_to_patch["spec"].get("nodeSelector", {}).get("disk") == "ssd")
    ),
    "the spread": lambda pod_to_patch: (
        [remove("/spec/topologySpreadConstraints")] * ("topologySpreadConstraints" in pod_to_patch["spec"])
    ),
}
"""Patches of a later webhook that remove parts of the placement whenever they are present."""
FIELDS = ("schedulerName", "affinity", "nodeSelector", "topologySpreadConstraints")


@pytest.mark.parametrize("undo", UNDOING.values(), ids=UNDOING.keys())
def test_reinvocation_repairs_what_a_later_webhook_changed(
    plane: ControlPlane, identities: Identities, tap: Tap, undo: Any
) -> None:
    _, spec_without_other, _ = create(plane, tap, pod("web", "lenient"))
    with register_webhook(plane, identities, SPACE, undo):
        status, spec, calls = create(plane, tap, pod("web", "lenient"))
    assert status == 201, spec
    assert len([call for call in calls if call.patch]) == 2
    assert {field: spec.get(field) for field in FIELDS} == {field: spec_without_other.get(field) for field in FIELDS}
    assert DEDICATED in spec["tolerations"]


@pytest.mark.parametrize("undo", UNDOING.values(), ids=UNDOING.keys())
def test_final_change_by_a_later_webhook_is_denied(
    plane: ControlPlane, identities: Identities, tap: Tap, undo: Any
) -> None:
    with register_webhook(plane, identities, SPACE, undo, reinvocationPolicy="IfNeeded"):
        status, response, _ = create(plane, tap, pod("web", "lenient"))
    assert status == 403
    assert response.startswith(
        'admission webhook "validate-closed.podgate.io" denied the request: PlacementUnfulfilled: '
    ), response


# --- classes, whose plugins run before the webhooks: they do not see a class that a webhook sets last ---

OTHER_CLASSES = {
    "priority": lambda pod_to_patch: (
        [
            add("/spec/priorityClassName", "low"),
            add("/spec/priority", 1),
            add("/spec/preemptionPolicy", "Never"),
        ]
        * (pod_to_patch["spec"].get("priorityClassName") == "high")
    ),
    "runtime": lambda pod_to_patch: [remove("/spec/runtimeClassName")] * ("runtimeClassName" in pod_to_patch["spec"]),
}


@pytest.mark.parametrize("other_class", OTHER_CLASSES.values(), ids=OTHER_CLASSES.keys())
def test_class_changed_by_a_later_webhook_is_not_stored_without_its_priority(
    plane: ControlPlane, identities: Identities, tap: Tap, other_class: Any
) -> None:
    with register_webhook(plane, identities, SPACE, other_class):
        status, response, _ = create(plane, tap, pod("web", "lenient"))
    assert status == 403, {field: response.get(field) for field in COMPUTED}


def test_class_written_on_reinvocation_is_not_stored_without_its_priority(
    plane: ControlPlane, identities: Identities, tap: Tap
) -> None:
    """The first call is lost, a sidecar causes a second one, and no plugin runs after that."""
    with register_webhook(plane, identities, SPACE, sidecar_patch):
        tap.lost = 1
        status, response, _ = create(plane, tap, pod("web", "late"))
    assert status == 403, {field: response.get(field) for field in COMPUTED}


COMPUTED = ("priorityClassName", "priority", "preemptionPolicy", "runtimeClassName", "overhead")
