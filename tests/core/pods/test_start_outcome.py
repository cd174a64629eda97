"""The outcome of a Pod's start and its disruption, from statuses as Kubernetes writes them."""

from typing import Any

import msgspec
import pytest

from webhook.core.breaker import BreakerPlan
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.pods.start_outcome import (
    StartOutcome,
    StartResult,
    find_cause,
    find_disruption_us,
    find_replacing_source,
    is_disrupted,
    is_gated,
    judge_start,
    read_created_us,
)
from webhook.core.policy_fields import Breaker, HalfOpen, OutcomeRules, OutcomeSource

CREATED = "2026-11-22T00:00:00Z"
SINCE_US = parse_microseconds(CREATED)
SECOND_US = 1_000_000
DEADLINE_US = 300 * SECOND_US
NOW_US = SINCE_US + 10 * SECOND_US

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastProbeTime": None}
DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "lastTransitionTime": "2026-11-22T00:00:05Z",
}


def pod(metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **status: Any) -> Pod:
    """Return a Pod as in a watch event."""
    document = {
        "metadata": {"name": "web", "creationTimestamp": CREATED, **(metadata or {})},
        "spec": {"containers": [{"name": "c"}], **(spec or {})},
        "status": {"phase": "Pending", **status},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def build_ready_conditions(status: str = "True", at: str | None = "2026-11-22T00:00:07Z") -> list[dict[str, Any]]:
    condition = {"type": "Ready", "status": status, "lastProbeTime": None}
    return [{"type": "Initialized", "status": "True"}, condition | ({"lastTransitionTime": at} if at else {})]


def container(
    waiting: str | None = None, ended_by: str | None = None, before: str | None = None, restarts: int = 0
) -> dict[str, Any]:
    state = {"waiting": {"reason": waiting, "message": "..."}} if waiting else {"running": {"startedAt": CREATED}}
    if ended_by:
        state = {"terminated": {"reason": ended_by, "exitCode": 137}}
    last = {"terminated": {"reason": before, "exitCode": 137}} if before else {}
    return {"name": "c", "ready": False, "restartCount": restarts, "state": state, "lastState": last}


def judge_outcome(found: Pod, now_us: int = NOW_US) -> StartOutcome | None:
    return judge_start(found, SINCE_US, DEADLINE_US, now_us)


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ({}, StartResult.START_DEADLINE),
        ({"conditions": None, "containerStatuses": None}, StartResult.START_DEADLINE),
        ({"conditions": [UNSCHEDULABLE]}, StartResult.UNSCHEDULABLE),
        ({"conditions": [UNSCHEDULABLE | {"reason": "SchedulingGated"}]}, StartResult.START_DEADLINE),
        ({"conditions": [UNSCHEDULABLE | {"status": "True"}]}, StartResult.START_DEADLINE),
        ({"containerStatuses": [container("ContainerCreating")]}, StartResult.START_DEADLINE),
        ({"containerStatuses": [container("ErrImagePull")]}, StartResult.IMAGE_PULL),
        ({"containerStatuses": [container(), container("ImagePullBackOff")]}, StartResult.IMAGE_PULL),
        ({"containerStatuses": [container("InvalidImageName")]}, StartResult.IMAGE_PULL),
        ({"initContainerStatuses": [container("ErrImageNeverPull")]}, StartResult.IMAGE_PULL),
        ({"containerStatuses": [container("CrashLoopBackOff", before="Error", restarts=3)]}, StartResult.CRASH_LOOP),
        ({"initContainerStatuses": [container("CrashLoopBackOff", before="Error")]}, StartResult.CRASH_LOOP),
        ({"containerStatuses": [container(restarts=1)]}, StartResult.CRASH_LOOP),
        (
            {"containerStatuses": [container("CrashLoopBackOff", before="OOMKilled", restarts=3)]},
            StartResult.OOM_KILLED,
        ),
        ({"containerStatuses": [container(ended_by="OOMKilled")]}, StartResult.OOM_KILLED),
        (
            {
                "initContainerStatuses": [container(restarts=1)],
                "containerStatuses": [container("ErrImagePull")],
            },
            StartResult.IMAGE_PULL,
        ),
    ],
)
def test_unfinished_start_is_classified_by_its_cause(status: dict[str, Any], name: StartResult) -> None:
    found = pod(**status)
    assert judge_outcome(found, SINCE_US + 2 * DEADLINE_US) is None, "an unfinished start has no outcome"
    assert find_cause(found) is name


def test_ready_condition_ends_the_start_with_its_latency() -> None:
    assert judge_outcome(pod(conditions=build_ready_conditions("False"))) is None
    assert judge_outcome(pod(conditions=build_ready_conditions())) == (StartResult.OK, 7 * SECOND_US)
    assert judge_outcome(pod({"deletionTimestamp": CREATED}, conditions=build_ready_conditions())) == (
        StartResult.OK,
        7 * SECOND_US,
    )


def test_latency_is_clamped_between_zero_and_the_elapsed_time() -> None:
    assert judge_outcome(pod(conditions=build_ready_conditions(at="2026-11-21T23:59:00Z"))) == (StartResult.OK, 0)
    assert judge_outcome(pod(conditions=build_ready_conditions(at="2026-11-22T09:00:00Z"))) == (
        StartResult.OK,
        10 * SECOND_US,
    )
    assert judge_outcome(pod(conditions=build_ready_conditions(at=None))) == (StartResult.OK, 10 * SECOND_US)
    assert judge_outcome(pod(phase="Succeeded"), SINCE_US - 1) == (StartResult.OK, 0)


def test_pod_ready_after_the_deadline_has_failed_with_its_cause() -> None:
    late = {"conditions": build_ready_conditions(at="2026-11-22T00:05:01Z")}
    now_us = SINCE_US + 400 * SECOND_US
    assert judge_outcome(pod(**late), now_us) == (StartResult.START_DEADLINE, 301 * SECOND_US)
    restarted = pod(**late, containerStatuses=[container(restarts=4)])
    assert judge_outcome(restarted, now_us) == (StartResult.CRASH_LOOP, 301 * SECOND_US)
    assert judge_outcome(pod(conditions=build_ready_conditions(at="2026-11-22T00:05:00Z")), now_us) == (
        StartResult.OK,
        300 * SECOND_US,
    )


def test_succeeded_pod_has_started_and_failed_pod_has_not() -> None:
    assert judge_outcome(pod(phase="Running", conditions=build_ready_conditions("False"))) is None
    assert judge_outcome(pod(phase="Succeeded", conditions=build_ready_conditions("False"))) == (
        StartResult.OK,
        10 * SECOND_US,
    )
    assert judge_outcome(pod(phase="Failed")) == (StartResult.FAILED, 10 * SECOND_US)
    killed = pod(phase="Failed", containerStatuses=[container(ended_by="OOMKilled")])
    assert judge_outcome(killed) == (StartResult.OOM_KILLED, 10 * SECOND_US)


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
def test_deleted_and_disrupted_pods_have_no_outcome(phase: str) -> None:
    assert judge_outcome(pod({"deletionTimestamp": CREATED}, phase=phase)) == (None, 0)
    assert judge_outcome(pod(phase=phase, conditions=[DISRUPTED])) == (None, 0)
    assert judge_outcome(pod(phase=phase, reason="Evicted")) == (None, 0)


def test_scheduling_gate_of_any_name_makes_a_pod_gated() -> None:
    assert is_gated(pod(spec={"schedulingGates": [{"name": "example.com/quota"}]}))
    assert not is_gated(pod(spec={"schedulingGates": []}))
    assert read_created_us(pod()) == SINCE_US
    assert read_created_us(pod({"creationTimestamp": None})) == 0


def test_disruption_time_is_read_from_the_status() -> None:
    assert find_disruption_us(pod(conditions=[DISRUPTED])) == SINCE_US + 5 * SECOND_US
    assert find_disruption_us(pod(conditions=[DISRUPTED | {"status": "False"}])) is None
    assert find_disruption_us(pod(phase="Failed", reason="NodeLost")) == 0
    assert (
        find_disruption_us(pod(phase="Failed", reason="NodeShutdown", conditions=[DISRUPTED]))
        == SINCE_US + 5 * SECOND_US
    )
    assert not is_disrupted(pod(phase="Failed", reason="DeadlineExceeded"))
    assert not is_disrupted(pod({"deletionTimestamp": CREATED}))


def test_source_that_replaces_a_pod_is_its_controller() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-1"}
    other = owner | {"uid": "other"}
    assert find_replacing_source(pod({"ownerReferences": [other, owner | {"controller": True}]})) == "controller:rs-1"
    assert find_replacing_source(pod({"ownerReferences": [other]})) is None
    assert find_replacing_source(pod()) is None


def test_probe_timeout_is_longer_than_the_start_deadline() -> None:
    outcomes = OutcomeRules(OutcomeSource.POD_START, start_deadline=Duration.parse("10m"))
    long_timeout = BreakerPlan.from_stanza(Breaker(outcomes, half_open=HalfOpen(probe_timeout=Duration.parse("20m"))))
    assert BreakerPlan.from_stanza(Breaker(outcomes)).probe_timeout_us == 11 * 60_000_000
    assert long_timeout.probe_timeout_us == 20 * 60_000_000
    assert BreakerPlan.from_stanza(Breaker()).probe_timeout_us == 5 * 60_000_000
