"""The outcome of a Pod's start and its disruption, from statuses as Kubernetes writes them."""

from typing import Any

import msgspec
import pytest

from webhook.core.breaker import BreakerPlan
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.timestamps import microseconds
from webhook.core.pods.disruption import disrupted_us, is_disrupted, replacing
from webhook.core.pods.start_outcome import StartOutcome, StartResult, cause, created_us, ended, is_gated
from webhook.core.policy_spec import Breaker, HalfOpen, OutcomeRules, OutcomeSource

CREATED = "2026-11-22T00:00:00Z"
SINCE_US = microseconds(CREATED)
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
    """Return a Pod as the watch brings it."""
    document = {
        "metadata": {"name": "web", "creationTimestamp": CREATED, **(metadata or {})},
        "spec": {"containers": [{"name": "c"}], **(spec or {})},
        "status": {"phase": "Pending", **status},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def ready(status: str = "True", at: str | None = "2026-11-22T00:00:07Z") -> list[dict[str, Any]]:
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


def went(found: Pod, now_us: int = NOW_US) -> StartOutcome | None:
    return ended(found, SINCE_US, DEADLINE_US, now_us)


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
def test_a_start_that_takes_too_long_goes_by_its_cause(status: dict[str, Any], name: StartResult) -> None:
    found = pod(**status)
    assert went(found, SINCE_US + 2 * DEADLINE_US) is None, "by itself it says nothing of how long it takes"
    assert cause(found) is name


def test_the_first_ready_ends_it_and_says_when() -> None:
    assert went(pod(conditions=ready("False"))) is None
    assert went(pod(conditions=ready())) == (StartResult.OK, 7 * SECOND_US)
    assert went(pod({"deletionTimestamp": CREATED}, conditions=ready())) == (StartResult.OK, 7 * SECOND_US)


def test_where_clocks_differ_a_latency_stays_between_none_and_what_has_passed() -> None:
    assert went(pod(conditions=ready(at="2026-11-21T23:59:00Z"))) == (StartResult.OK, 0)
    assert went(pod(conditions=ready(at="2026-11-22T09:00:00Z"))) == (StartResult.OK, 10 * SECOND_US)
    assert went(pod(conditions=ready(at=None))) == (StartResult.OK, 10 * SECOND_US)
    assert went(pod(phase="Succeeded"), SINCE_US - 1) == (StartResult.OK, 0)


def test_what_is_ready_after_its_deadline_has_failed_by_its_cause() -> None:
    late = {"conditions": ready(at="2026-11-22T00:05:01Z")}
    now_us = SINCE_US + 400 * SECOND_US
    assert went(pod(**late), now_us) == (StartResult.START_DEADLINE, 301 * SECOND_US)
    restarted = pod(**late, containerStatuses=[container(restarts=4)])
    assert went(restarted, now_us) == (StartResult.CRASH_LOOP, 301 * SECOND_US)
    assert went(pod(conditions=ready(at="2026-11-22T00:05:00Z")), now_us) == (StartResult.OK, 300 * SECOND_US)


def test_succeeded_is_a_good_start_and_failed_a_bad_one() -> None:
    assert went(pod(phase="Running", conditions=ready("False"))) is None
    assert went(pod(phase="Succeeded", conditions=ready("False"))) == (StartResult.OK, 10 * SECOND_US)
    assert went(pod(phase="Failed")) == (StartResult.FAILED, 10 * SECOND_US)
    killed = pod(phase="Failed", containerStatuses=[container(ended_by="OOMKilled")])
    assert went(killed) == (StartResult.OOM_KILLED, 10 * SECOND_US)


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
def test_what_is_taken_away_before_has_no_outcome(phase: str) -> None:
    assert went(pod({"deletionTimestamp": CREATED}, phase=phase)) == (None, 0)
    assert went(pod(phase=phase, conditions=[DISRUPTED])) == (None, 0)
    assert went(pod(phase=phase, reason="Evicted")) == (None, 0)


def test_a_gate_of_anybody_holds_a_start_back() -> None:
    assert is_gated(pod(spec={"schedulingGates": [{"name": "example.com/quota"}]}))
    assert not is_gated(pod(spec={"schedulingGates": []}))
    assert created_us(pod()) == SINCE_US
    assert created_us(pod({"creationTimestamp": None})) == 0


def test_who_was_taken_away_by_the_cluster_says_so() -> None:
    assert disrupted_us(pod(conditions=[DISRUPTED])) == SINCE_US + 5 * SECOND_US
    assert disrupted_us(pod(conditions=[DISRUPTED | {"status": "False"}])) is None
    assert disrupted_us(pod(phase="Failed", reason="NodeLost")) == 0
    assert disrupted_us(pod(phase="Failed", reason="NodeShutdown", conditions=[DISRUPTED])) == SINCE_US + 5 * SECOND_US
    assert not is_disrupted(pod(phase="Failed", reason="DeadlineExceeded"))
    assert not is_disrupted(pod({"deletionTimestamp": CREATED}))


def test_who_replaces_a_pod_is_the_controller_that_owns_it() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-1"}
    other = owner | {"uid": "other"}
    assert replacing(pod({"ownerReferences": [other, owner | {"controller": True}]})) == "controller:rs-1"
    assert replacing(pod({"ownerReferences": [other]})) is None
    assert replacing(pod()) is None


def test_a_probe_is_waited_for_until_its_start_can_have_failed() -> None:
    outcomes = OutcomeRules(OutcomeSource.POD_START, start_deadline=Duration.parse("10m"))
    patient = BreakerPlan.of(Breaker(outcomes, half_open=HalfOpen(probe_timeout=Duration.parse("20m"))))
    assert BreakerPlan.of(Breaker(outcomes)).probe_timeout_us == 11 * 60_000_000
    assert patient.probe_timeout_us == 20 * 60_000_000
    assert BreakerPlan.of(Breaker()).probe_timeout_us == 5 * 60_000_000
