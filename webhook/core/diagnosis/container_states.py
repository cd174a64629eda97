"""States of containers: which have failed, which have ended well, and how they are shown."""

from collections.abc import Iterator

from webhook.core.diagnosis.objects import ReportedContainer, ReportedPod, TerminatedReport, WaitingReport
from webhook.core.diagnosis.report import ContainerReport
from webhook.core.kubernetes.pod_requests import is_sidecar

_EXPECTED = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which a container of a healthy Pod waits."""
_SUMMARY_MAX = 300


def has_ended_well(container: ReportedContainer) -> bool:
    ended = container.state.terminated if container.state is not None else None
    return ended is not None and not ended.exit_code


def is_failed(container: ReportedContainer) -> bool:
    states = container.state
    if states is not None and states.waiting is not None:
        return (states.waiting.reason or "") not in _EXPECTED
    if has_ended_well(container):
        return False
    is_ended = states is not None and states.terminated is not None
    return not container.ready and (is_ended or container.restart_count > 0)


def report_containers(pod: ReportedPod) -> tuple[ContainerReport, ...]:
    return tuple(report_container(container) for container in list_containers(pod))


def format_container(container: ContainerReport) -> str:
    parts = [f"container {container.name}", container.state]
    if container.exit_code is not None:
        parts.append(f"exit code {container.exit_code}")
    if container.restarts:
        parts.append(f"{container.restarts} restart{'s' if container.restarts > 1 else ''}")
    if container.message:
        parts.append(container.message)
    return ": ".join(parts)[:_SUMMARY_MAX]


def report_container(container: ReportedContainer) -> ContainerReport:
    states = container.state
    ended = (states and states.terminated) or (container.last_state and container.last_state.terminated) or None
    exit_code = ended.exit_code if ended is not None else None
    if states is not None and states.waiting is not None:
        return _report_state(container, states.waiting, "waiting", exit_code)
    if states is not None and states.terminated is not None:
        return _report_state(container, states.terminated, "terminated", exit_code)
    return ContainerReport(
        container.name, "ready" if container.ready else "running, not ready", "", container.restart_count, exit_code
    )


def _report_state(
    container: ReportedContainer, state: WaitingReport | TerminatedReport, default: str, exit_code: int | None
) -> ContainerReport:
    return ContainerReport(
        container.name, state.reason or default, state.message or "", container.restart_count, exit_code
    )


def list_containers(pod: ReportedPod) -> Iterator[ReportedContainer]:
    """Yield the containers that matter: an init container only until it has ended well.

    Native sidecars are last: the kubelet ends them once a Pod has failed, so their exit code does not tell why.
    """
    sidecars = {container.name for container in pod.spec.init_containers or () if is_sidecar(container)}
    waited_for = [state for state in pod.status.init_container_statuses or () if not has_ended_well(state)]
    yield from (state for state in waited_for if state.name not in sidecars)
    yield from pod.status.container_statuses or ()
    yield from (state for state in waited_for if state.name in sidecars)
