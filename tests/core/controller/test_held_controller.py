"""Workload controllers: how many Pods each kind lacks, and which Events show that quota or breaker holds one."""

from typing import Any

import msgspec
import pytest

from webhook.core.controller.held_controller import (
    CREATING_KINDS,
    ControllerReference,
    CreatingController,
    identify_held_controller,
)
from webhook.core.diagnosis.objects import EventSubject, ReportedEvent

UID = "11111111-2222-3333-4444-555555555555"


def controller(kind: str, spec: dict[str, Any], status: dict[str, Any], **metadata: Any) -> CreatingController:
    found = {"kind": kind, "metadata": {"name": "web", **metadata}, "spec": spec, "status": status}
    return msgspec.convert(found, CreatingController)


def event(message: str, kind: str = "ReplicaSet", uid: str = UID) -> ReportedEvent:
    return ReportedEvent(involved_object=EventSubject(kind, "web", "shop", uid), reason="FailedCreate", message=message)


@pytest.mark.parametrize(
    ("kind", "spec", "status", "missing"),
    [
        ("ReplicaSet", {"replicas": 12}, {"replicas": 4}, 8),
        ("ReplicaSet", {}, {}, 1),
        ("ReplicaSet", {"replicas": 2}, {"replicas": 5}, 0),
        ("ReplicationController", {"replicas": 3}, {}, 3),
        ("StatefulSet", {"replicas": 5}, {"replicas": 2}, 1),
        ("StatefulSet", {"replicas": 5, "podManagementPolicy": "Parallel"}, {"replicas": 2}, 3),
        ("Job", {"parallelism": 4, "completions": 10}, {"active": 1, "succeeded": 2}, 3),
        ("Job", {"parallelism": 4, "completions": 10}, {"succeeded": 9}, 1),
        ("Job", {"parallelism": 4, "suspend": True}, {}, 0),
        ("DaemonSet", {}, {"desiredNumberScheduled": 9, "currentNumberScheduled": 7}, 2),
    ],
)
def test_missing_pods_are_those_that_it_would_create_now(
    kind: str, spec: dict[str, Any], status: dict[str, Any], missing: int
) -> None:
    assert controller(kind, spec, status).missing == missing
    assert controller(kind, spec, status, deletionTimestamp="2027-01-01T00:00:00Z").missing == 0


def test_its_pod_has_the_labels_of_the_template_without_a_service_label() -> None:
    labels = {"app": "web", "podgate.io/service": "other"}
    pod = controller("ReplicaSet", {"template": {"metadata": {"labels": labels}}}, {}, namespace="shop").pod
    assert (pod.labels, pod.metadata.namespace) == ({"app": "web"}, "shop")


@pytest.mark.parametrize(
    ("text", "is_held"),
    [
        ("QuotaExceeded: service web: pods in 1m: hard 1, used 1, asked 1", True),
        ("BreakerOpen: service web: the breaker is open", True),
        ("BreakerProbing: service web: all its probes are in flight", True),
        ("StoreUnavailable: service web: the counters are unavailable", True),
        ("PlacementConflict: service web: spec.schedulerName is 'theirs'", False),
        ("PodTooLarge: service web", False),
    ],
)
def test_controller_is_held_by_denials_that_room_ends(text: str, is_held: bool) -> None:  # noqa: FBT001  a parameter
    reference = ControllerReference("ReplicaSet", "shop", "web", UID)
    message = f'Error creating: admission webhook "validate-open.podgate.io" denied the request: {text}'
    assert identify_held_controller(event(message)) == (reference, is_held)
    assert identify_held_controller(event(message.replace("podgate.io", "example.com"))) == (reference, False)
    assert identify_held_controller(event(f"(combined from similar events): {message}")) == (reference, is_held)


def test_other_objects_and_events_without_a_uid_are_ignored() -> None:
    text = 'admission webhook "validate-open.podgate.io" denied the request: QuotaExceeded: service web'
    assert identify_held_controller(event(text, kind="Deployment")) is None
    assert identify_held_controller(event(text, uid="")) is None
    assert {"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"} == CREATING_KINDS.keys()
