"""Placed Pods: the scheduler that binds them, and updates of gated Pods."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.components import SCHEDULERS
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.placement.pods import deployment, pod, policy, service

Json = dict[str, Any]
SPACE = "living"
TERMS = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
PREFERRED = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution"
DEDICATED: Json = {"key": "dedicated", "operator": "Equal", "value": "payments", "effect": "NoSchedule"}
EVICTED_AFTER_AN_HOUR: Json = {"key": "failing", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
PREFERENCE = {"weight": 7, "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}
POLICY = policy(
    *(service(name, SPACE, {"schedulerName": name}) for name in SCHEDULERS),
    service("any", SPACE, {"topology": [{"level": "Zone", "in": ["zone-b"]}]}),
    service(
        "gated",
        SPACE,
        {
            "nodeSelector": {"disk": "ssd"},
            "topology": [
                {"level": "Zone", "in": ["zone-a", "zone-b"]},
                {"key": "rack", "in": ["r1"], "preferredWeight": 9},
            ],
            "tolerations": [DEDICATED, EVICTED_AFTER_AN_HOUR],
        },
    ),
)


@pytest.fixture(scope="module")
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with install_podgate(plane, identities.files, json.dumps(POLICY), [SPACE]) as installation:
        installation.wait_for_calls()
        yield installation


pytestmark = pytest.mark.usefixtures("installation")
PODS = f"/api/v1/namespaces/{SPACE}/pods"


def create(plane: ControlPlane, pod_to_create: Json) -> Json:
    status, answer = plane.api.request("POST", PODS, pod_to_create)
    assert status == 201, answer
    created_pod: Json = answer
    return created_pod


# --- schedulers ---


def find_binding_scheduler(plane: ControlPlane, name: str) -> str | None:
    """Return the scheduler that reports the binding of a Pod."""
    all_events = plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{SPACE}/events")["items"]
    events = [event for event in all_events if event["regarding"]["name"] == name and event["reason"] == "Scheduled"]
    return events[0]["reportingController"] if events else None


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("own_spec", [{}, {"schedulerName": "default-scheduler"}], ids=["absent", "default"])
def test_pod_is_bound_by_the_scheduler_of_its_policy(plane: ControlPlane, own_spec: Json, scheduler: str) -> None:
    name = f"{scheduler}-{'default' if own_spec else 'absent'}"
    create(plane, pod(name, scheduler, **own_spec))
    assert plane.wait(lambda: find_binding_scheduler(plane, name), "the Pod to be bound") == scheduler


def test_policy_without_a_scheduler_keeps_every_scheduler_name(plane: ControlPlane) -> None:
    create(plane, pod("free", "any", schedulerName="podgate-scheduler"))
    assert plane.wait(lambda: find_binding_scheduler(plane, "free"), "the Pod to be bound") == "podgate-scheduler"


def test_pods_of_a_deployment_are_bound_by_the_scheduler_of_their_policy(plane: ControlPlane) -> None:
    plane.kubectl("create", "-n", SPACE, "-f", "-", input=json.dumps(deployment("many", "podgate-scheduler")))
    [created_pod] = plane.wait(lambda: plane.api.get(f"{PODS}?labelSelector=deployment%3Dmany")["items"], "its Pod")
    name = created_pod["metadata"]["name"]
    assert plane.wait(lambda: find_binding_scheduler(plane, name), "the Pod to be bound") == "podgate-scheduler"


# --- gates ---


def create_gated(plane: ControlPlane, name: str, **spec: Any) -> str:
    """Create a gated Pod; return its path."""
    create(plane, pod(name, "gated", schedulingGates=[{"name": "example.com/wait"}], **spec))
    return f"{PODS}/{name}"


def patch(plane: ControlPlane, path: str, *operations: Json) -> tuple[int, str]:
    status, answer = plane.api.request("PATCH", path, list(operations), "application/json-patch+json")
    return status, str(answer.get("message", ""))


def add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


RACK = {"key": "rack", "operator": "In", "values": ["r1"]}
ALLOWED = {
    "another label of nodes": [add("/spec/nodeSelector/rack", "r1")],
    "another expression": [add(f"{TERMS}/0/matchExpressions/-", RACK)],
    "another preference": [add(f"{PREFERRED}/-", PREFERENCE)],
    "no preference": [{"op": "remove", "path": PREFERRED}],
    "another toleration": [add("/spec/tolerations/-", {"key": "gpu", "operator": "Exists"})],
    "a label of the user's": [add("/metadata/labels/version", "v2")],
}


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED.keys())
def test_changes_that_narrow_the_placement_of_a_gated_pod_are_admitted(
    plane: ControlPlane, change: list[Json], request: Any
) -> None:
    path = create_gated(plane, name_of(request))
    assert patch(plane, path, *change) == (200, "")
    # The gate can still be removed.
    assert patch(plane, path, {"op": "remove", "path": "/spec/schedulingGates"}) == (200, "")


def name_of(request: Any) -> str:
    return str(request.node.callspec.id).replace(" ", "-").replace("'", "")


REJECTED = {
    "another value of the policys label": [add("/spec/nodeSelector/disk", "hdd")],
    "the policys label gone": [{"op": "remove", "path": "/spec/nodeSelector/disk"}],
    "more values": [add(f"{TERMS}/0/matchExpressions/0/values/-", "zone-c")],
    "another term": [add(f"{TERMS}/-", {"matchExpressions": [RACK]})],
    "an expression gone": [
        {"op": "remove", "path": f"{TERMS}/0/matchExpressions/0"},
        add(f"{TERMS}/0/matchExpressions/-", RACK),
    ],
    "all of the affinity gone": [{"op": "remove", "path": "/spec/affinity"}],
    "the policys toleration gone": [{"op": "remove", "path": "/spec/tolerations/2"}],
    "all tolerations gone": [{"op": "remove", "path": "/spec/tolerations"}],
    "another class": [add("/spec/priorityClassName", "system-cluster-critical")],
    "another scheduler": [add("/spec/schedulerName", "default-scheduler-2")],
}


@pytest.mark.parametrize("change", REJECTED.values(), ids=REJECTED.keys())
def test_changes_that_loosen_a_gated_pod_are_rejected_by_the_api_server(
    plane: ControlPlane, change: list[Json], request: Any
) -> None:
    status, message = patch(plane, create_gated(plane, name_of(request)), *change)
    assert status == 422
    assert "podgate.io" not in message


@pytest.mark.parametrize("seconds", [7200, 10])
def test_toleration_seconds_may_exceed_the_policy_but_not_fall_below_it(plane: ControlPlane, seconds: int) -> None:
    """The API server itself allows a change of tolerationSeconds."""
    path = create_gated(plane, f"seconds-{seconds}")
    index = plane.api.get(path)["spec"]["tolerations"].index(EVICTED_AFTER_AN_HOUR)
    status, message = patch(plane, path, add(f"/spec/tolerations/{index}/tolerationSeconds", seconds))
    if seconds > EVICTED_AFTER_AN_HOUR["tolerationSeconds"]:
        assert (status, message) == (200, "")
    else:
        assert status == 403
        assert "PlacementUnfulfilled: service gated: spec.tolerations lacks failing Exists:NoExecute" in message


def test_shorter_toleration_cannot_be_inserted_first(plane: ControlPlane) -> None:
    """The first toleration that matches a taint determines the time of eviction."""
    path = create_gated(plane, "in-front")
    status, message = patch(plane, path, add("/spec/tolerations/0", {**EVICTED_AFTER_AN_HOUR, "tolerationSeconds": 1}))
    assert status == 403
    assert "PlacementUnfulfilled" in message


def test_label_and_annotation_of_a_gated_pod_are_immutable(plane: ControlPlane) -> None:
    path = create_gated(plane, "guarded")
    for metadata_field in "labels/podgate.io~1service", "annotations/podgate.io~1policy-hash":
        status, message = patch(plane, path, {"op": "remove", "path": f"/metadata/{metadata_field}"})
        assert status == 403
        assert "PodgateFieldImmutable" in message


# --- second apply ---


@pytest.mark.parametrize("own_spec", [{}, {"nodeSelector": {"rack": "r1"}}], ids=["a-plain-pod", "a-node-selector"])
def test_second_apply_of_a_pod_changes_nothing(plane: ControlPlane, own_spec: Json, request: Any) -> None:
    manifest = json.dumps(pod(name_of(request), "gated", **own_spec))
    plane.kubectl("apply", "-n", SPACE, "-f", "-", input=manifest)
    second_apply = plane.kubectl("apply", "-n", SPACE, "-f", "-", input=manifest)
    assert second_apply.stdout.strip().endswith("unchanged")
