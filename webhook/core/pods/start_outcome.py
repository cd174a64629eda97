"""Start outcome: whether a watched Pod became Ready, after how long, or its failure or disruption.

A tenant can write ownerReferences, and evict its own Pods. The only effect is that quota denials of its own service do
not count as quota events for a while. The quota itself still applies.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from webhook.core.kubernetes.controllers import format_controller_source
from webhook.core.kubernetes.pod import ContainerStateDetail, ContainerStatus, Pod, PodCondition
from webhook.core.pods.ownership import parse_moment_us

# Written by kubelets and the node controller before the condition existed, and still written beside it.
_REASONS = frozenset({"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"})


def is_disrupted(pod: Pod) -> bool:
    """Return whether the cluster has removed a Pod, or is about to."""
    return find_disruption_us(pod) is not None


def find_disruption_us(pod: Pod) -> int | None:
    """Return when the cluster removed a Pod: 0 if the time is unknown, None if it did not remove it."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return parse_moment_us(condition.last_transition_time)
    return 0 if pod.status.reason in _REASONS else None


def find_replacing_source(pod: Pod) -> str | None:
    """Return the controller that replaces this Pod, as a source of quota events; None if it has no controller."""
    for owner in pod.metadata.owner_references or ():
        if owner.controller and owner.uid:
            return format_controller_source(owner)
    return None


class StartResult(StrEnum):
    """Result of a start; all but `OK` are errors."""

    OK = "ok"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL = "ImagePull"
    OOM_KILLED = "OOMKilled"
    CRASH_LOOP = "CrashLoop"
    FAILED = "Failed"
    START_DEADLINE = "StartDeadline"
    """It took too long, without a known cause."""


class StartOutcome(NamedTuple):
    """A finished start. Without a result the Pod was deleted before, which is no outcome of the service."""

    result: StartResult | None
    latency_us: int


# Source: pkg/kubelet/images/types.go and the CRI errors of Kubernetes.
_NO_IMAGE = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"),
        *("RegistryUnavailable", "SignatureValidationFailed"),
    }
)
_NOTHING = ContainerStateDetail()


def read_created_us(pod: Pod) -> int:
    """Return when a Pod was created, in microseconds since the Unix epoch; 0 if unknown."""
    return parse_moment_us(pod.metadata.creation_timestamp)


def is_gated(pod: Pod) -> bool:
    """Return whether a Pod is held back from scheduling: its start has not begun."""
    return bool(pod.spec.scheduling_gates)


def judge_start(pod: Pod, since_us: int, deadline_us: int, now_us: int) -> StartOutcome | None:
    """Return the outcome of a start that began at `since_us`, None while it is pending.

    A Pod that became Ready later than `deadline_us` after that has failed.
    """
    taken_us = max(0, now_us - since_us)
    ready = _find_condition(pod, "Ready")
    if ready is not None and ready.status == "True":
        ready_us = parse_moment_us(ready.last_transition_time)
        if ready_us:
            taken_us = min(max(0, ready_us - since_us), taken_us)  # clocks differ
        return StartOutcome(StartResult.OK if taken_us <= deadline_us else find_cause(pod), taken_us)
    if pod.metadata.deletion_timestamp is not None or is_disrupted(pod):
        return StartOutcome(None, 0)
    match pod.status.phase:
        case "Succeeded":
            return StartOutcome(StartResult.OK, taken_us)
        case "Failed":
            is_killed = any(end.reason == "OOMKilled" for end in _list_ends(pod))
            return StartOutcome(StartResult.OOM_KILLED if is_killed else StartResult.FAILED, taken_us)
    return None


def find_cause(pod: Pod) -> StartResult:
    """Return the cause for which a Pod is not Ready yet."""
    scheduled = _find_condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable":
        return StartResult.UNSCHEDULABLE
    waiting = {_read_waiting(container).reason for container in _list_containers(pod)}
    if waiting & _NO_IMAGE:
        return StartResult.IMAGE_PULL
    if any(end.reason == "OOMKilled" for end in _list_ends(pod)):
        return StartResult.OOM_KILLED
    if "CrashLoopBackOff" in waiting or any(container.restart_count for container in _list_containers(pod)):
        return StartResult.CRASH_LOOP
    return StartResult.START_DEADLINE


def _find_condition(pod: Pod, name: str) -> PodCondition | None:
    return next((condition for condition in pod.status.conditions or () if condition.type == name), None)


def _list_containers(pod: Pod) -> Iterator[ContainerStatus]:
    yield from pod.status.init_container_statuses or ()
    yield from pod.status.container_statuses or ()


def _read_waiting(container: ContainerStatus) -> ContainerStateDetail:
    return (container.state and container.state.waiting) or _NOTHING


def _list_ends(pod: Pod) -> Iterator[ContainerStateDetail]:
    """Yield the last two terminations of each container."""
    for container in _list_containers(pod):
        for state in (container.state, container.last_state):
            if state is not None and state.terminated is not None:
                yield state.terminated
