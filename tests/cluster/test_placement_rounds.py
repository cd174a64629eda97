"""Changes to a Pod between Podgate's calls: merged label keys, reinvocation, later webhooks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import installed
from tests.cluster.kwok import ZONE
from tests.cluster.placement.classes import classes, priority_class, runtime_class
from tests.cluster.placement.other_webhook import other_webhook
from tests.cluster.placement.pods import pod, policy, service
from tests.cluster.placement.review_tap import Exchange, Tap, tapped

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
    # No class is everybody's here: a Pod without one has priority 0, and nobody has chosen that.
    known = (
        priority_class("high", 1000),
        priority_class("low", 1, never=True),
        runtime_class("gvisor", {"cpu": "50m"}),
    )
    with (
        classes(plane, *known),
        installed(plane, identities.files, json.dumps(POLICY), [SPACE]) as found,
        tapped(found.load_balancer, identities) as tap,
    ):
        found.wait_for_calls()
        yield tap


def created(plane: ControlPlane, tap: Tap, found: Json) -> tuple[int, Any, list[Exchange]]:
    """Create a Pod; return status, the spec or what was said, and the calls to the mutating half."""
    tap.take_exchanges()
    status, answer = plane.api.request("POST", f"/api/v1/namespaces/{SPACE}/pods?dryRun=All", found)
    calls = [one for one in tap.take_exchanges() if one.half == "mutate"]
    return status, answer["spec"] if status == 201 else answer["message"], calls


# --- label keys that the API server merges into selectors between the halves ---

LABELS = {"version": "v1", "tenant": "shop"}
SAME = {"key": "version", "operator": "In", "values": ["v1"]}
OTHERS = {"key": "tenant", "operator": "NotIn", "values": ["shop"]}


def test_label_keys_are_merged_after_the_rewrite_without_conflict(plane: ControlPlane, tap: Tap) -> None:
    status, spec, _ = created(plane, tap, pod("web", "merged", labels=LABELS))
    assert status == 201, spec
    [near], [apart] = spec["affinity"]["podAffinity"][REQUIRED], spec["affinity"]["podAntiAffinity"][REQUIRED]
    assert near == {**NEAR, "labelSelector": {**WEB, "matchExpressions": [SAME, OTHERS]}}
    assert apart == {**APART, "labelSelector": {**WEB, "matchExpressions": [SAME]}}
    own = {"matchLabels": {"podgate.io/service": "merged"}, "matchExpressions": [SAME]}
    assert spec["topologySpreadConstraints"] == [
        {**SPREAD, "labelSelector": own},
        {**EVEN, "labelSelector": {**WEB, "matchExpressions": [SAME]}},
    ]


def test_existing_terms_with_label_keys_are_not_repeated(plane: ControlPlane, tap: Tap) -> None:
    spread = {**SPREAD, "labelSelector": {"matchLabels": {"podgate.io/service": "merged"}}}
    own = {"affinity": MERGED["affinity"], "topologySpreadConstraints": [EVEN, spread]}
    status, spec, [mutation] = created(plane, tap, pod("web", "merged", labels=LABELS, **own))
    assert status == 201, spec
    assert not [one for one in mutation.patch if one["path"].startswith("/spec/")]
    assert len(spec["topologySpreadConstraints"]) == 2


def test_label_keys_of_absent_labels_are_not_merged(plane: ControlPlane, tap: Tap) -> None:
    status, spec, _ = created(plane, tap, pod("web", "merged"))
    assert status == 201, spec
    assert spec["affinity"]["podAffinity"][REQUIRED] == [NEAR]


# --- second rounds of the API server's own plugins ---


def test_default_priority_is_replaced_by_the_priority_of_the_class(plane: ControlPlane, tap: Tap) -> None:
    status, spec, [first, *again] = created(plane, tap, pod("web", "strict"))
    assert status == 201, spec
    assert (first.object["spec"]["priority"], "priorityClassName" in first.object["spec"]) == (0, False)
    assert (spec["priorityClassName"], spec["priority"], spec["overhead"]) == ("high", 1000, {"cpu": "50m"})
    assert [one.patch for one in again] == [[]] * len(again)


# --- webhooks that come after ours ---


def add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Json:
    return {"op": "remove", "path": path}


SIDECAR = {"name": "sidecar", "image": "i"}


def injected(found: Json) -> list[Json]:
    """Add a container, once, as a service mesh does."""
    names = [one["name"] for one in found["spec"]["containers"]]
    return [] if "sidecar" in names else [add("/spec/containers/-", SIDECAR)]


@pytest.mark.parametrize("app", ["merged", "strict"])
def test_reinvocation_after_an_injected_sidecar_repeats_nothing(
    plane: ControlPlane, identities: Identities, tap: Tap, app: str
) -> None:
    own = pod("web", app, labels=LABELS, nodeSelector={"rack": "r1"}, tolerations=[{**DEDICATED, "value": "other"}])
    own["spec"]["automountServiceAccountToken"] = False  # its volume gets another name each time
    _, alone, _ = created(plane, tap, own)
    with other_webhook(plane, identities, SPACE, injected):
        status, spec, calls = created(plane, tap, own)
    assert status == 201, spec
    first, *again = [one.patch for one in calls]
    assert first
    assert again, "the API server calls again after somebody else's change"
    assert again == [[]] * len(again)
    assert spec == {**alone, "containers": spec["containers"]}
    assert [one["name"] for one in spec["containers"]] == ["c", "sidecar"]


UNDOING = {
    "the scheduler": lambda found: (
        [add("/spec/schedulerName", "volcano")] * (found["spec"]["schedulerName"] != "volcano")
    ),
    "the affinity": lambda found: [remove("/spec/affinity")] * ("affinity" in found["spec"]),
    "the tolerations": lambda found: [add("/spec/tolerations", [])] * bool(found["spec"].get("tolerations")),
    "the node selector": lambda found: (
        [add("/spec/nodeSelector/disk", "hdd")] * (found["spec"].get("nodeSelector", {}).get("disk") == "ssd")
    ),
    "the spread": lambda found: (
        [remove("/spec/topologySpreadConstraints")] * ("topologySpreadConstraints" in found["spec"])
    ),
}
"""What a webhook behind ours may break, each once and again whenever it finds it whole."""
FIELDS = ("schedulerName", "affinity", "nodeSelector", "topologySpreadConstraints")


@pytest.mark.parametrize("undo", UNDOING.values(), ids=UNDOING.keys())
def test_reinvocation_repairs_what_a_later_webhook_changed(
    plane: ControlPlane, identities: Identities, tap: Tap, undo: Any
) -> None:
    _, alone, _ = created(plane, tap, pod("web", "lenient"))
    with other_webhook(plane, identities, SPACE, undo):
        status, spec, calls = created(plane, tap, pod("web", "lenient"))
    assert status == 201, spec
    assert len([one for one in calls if one.patch]) == 2
    assert {field: spec.get(field) for field in FIELDS} == {field: alone.get(field) for field in FIELDS}
    assert DEDICATED in spec["tolerations"]


@pytest.mark.parametrize("undo", UNDOING.values(), ids=UNDOING.keys())
def test_final_change_by_a_later_webhook_is_denied(
    plane: ControlPlane, identities: Identities, tap: Tap, undo: Any
) -> None:
    with other_webhook(plane, identities, SPACE, undo, reinvocationPolicy="IfNeeded"):
        status, response, _ = created(plane, tap, pod("web", "lenient"))
    assert status == 403
    assert response.startswith(
        'admission webhook "validate-closed.podgate.io" denied the request: PlacementUnfulfilled: '
    ), response


# --- classes, whose plugins come before us only: what we write in the last round they never see ---

OTHER_CLASSES = {
    "priority": lambda found: (
        [
            add("/spec/priorityClassName", "low"),
            add("/spec/priority", 1),
            add("/spec/preemptionPolicy", "Never"),
        ]
        * (found["spec"].get("priorityClassName") == "high")
    ),
    "runtime": lambda found: [remove("/spec/runtimeClassName")] * ("runtimeClassName" in found["spec"]),
}


@pytest.mark.parametrize("other", OTHER_CLASSES.values(), ids=OTHER_CLASSES.keys())
def test_class_changed_by_a_later_webhook_is_not_stored_without_its_priority(
    plane: ControlPlane, identities: Identities, tap: Tap, other: Any
) -> None:
    with other_webhook(plane, identities, SPACE, other):
        status, response, _ = created(plane, tap, pod("web", "lenient"))
    assert status == 403, {field: response.get(field) for field in COMPUTED}


def test_class_written_on_reinvocation_is_not_stored_without_its_priority(
    plane: ControlPlane, identities: Identities, tap: Tap
) -> None:
    """Our first call is lost, a sidecar brings about a second one, and no plugin comes after that."""
    with other_webhook(plane, identities, SPACE, injected):
        tap.lost = 1
        status, response, _ = created(plane, tap, pod("web", "late"))
    assert status == 403, {field: response.get(field) for field in COMPUTED}


COMPUTED = ("priorityClassName", "priority", "preemptionPolicy", "runtimeClassName", "overhead")
