"""Causes of a pending Pod: gates, the scheduler or a slow start; and its state once it has failed or is running."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.diagnosis.container_causes import explain_container_failure, find_probe
from webhook.core.diagnosis.container_states import (
    format_container,
    has_ended_well,
    is_failed,
    list_containers,
    report_container,
)
from webhook.core.diagnosis.extender_words import advise_after_refusal, explain_extender_refusal
from webhook.core.diagnosis.kubelet_causes import explain_stall
from webhook.core.diagnosis.objects import (
    ReportedContainer,
    ReportedEvent,
    ReportedNode,
    ReportedPod,
)
from webhook.core.diagnosis.removal_causes import explain_deletion, explain_node
from webhook.core.diagnosis.report import Fate, NodesReport, SchedulingReport
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.reporting.queue_document import QueueRow, WaitCause
from webhook.core.scheduling.scheduling_record import SchedulingRecord

_PATIENCE_US = 10_000_000
"""Age from which a Pod without a scheduling attempt counts as a Pod without a scheduler."""
_ENDED = frozenset({"Succeeded", "Failed"})
"""Phases in which a Pod no longer needs a node."""
_WAITS: Mapping[str, Fate] = {
    WaitCause.BREAKER_OPEN: Fate.BREAKER_OPEN,
    WaitCause.LIVE_PODS: Fate.WAITING_FOR_LIVE_PODS,
    WaitCause.RELEASE_FAILS: Fate.RELEASE_FAILS,
}
"""Tokens of Pods that wait, but not for quota."""


class PodState(NamedTuple):
    token: Fate
    summary: str
    remedy: str = ""


def judge_pod_state(
    pod: ReportedPod,
    nodes: NodesReport | None,
    now_us: int,
    waiting: QueueRow | None = None,
    scheduled: SchedulingRecord | None = None,
    events: Sequence[ReportedEvent] = (),
    hosts: Mapping[str, ReportedNode | None] | None = None,
) -> PodState:
    """Return the state, with the one cause that matters most.

    `waiting` is its place in the queue, `scheduled` the extender's record of it, `hosts` are nodes by name.
    """
    if pod.metadata.deletion_timestamp is not None:
        return PodState(Fate.TERMINATING, *explain_deletion(pod, hosts, now_us))
    match pod.status.phase:
        case "Failed":
            return _explain_bad_end(pod, events)
        case "Succeeded":
            return PodState(Fate.SUCCEEDED, "all containers have ended")
    if pod.spec.scheduling_gates:
        return _judge_gated(list_gates(pod), waiting)
    if not pod.spec.node_name:
        return _judge_unscheduled(pod, nodes, now_us, scheduled)
    return _judge_started(pod, events, hosts)


def _judge_gated(gates: tuple[str, ...], waiting: QueueRow | None) -> PodState:
    others = [gate for gate in gates if gate != QUEUE_GATE]
    if QUEUE_GATE in gates and others:
        found = _judge_gated((QUEUE_GATE,), waiting)
        hold = f"{', '.join(others)} {'hold' if len(others) > 1 else 'holds'} it too"
        return found._replace(summary=f"{found.summary}; {hold}", remedy=_advise(others))
    if QUEUE_GATE in gates and waiting is not None:
        token = _WAITS.get(waiting.cause)
        if token is not None:
            end = f"; {waiting.early_end}" if waiting.early_end else ""
            return PodState(token, f"{waiting.why}; it waits as {waiting.place_text}{end}")
        return PodState(Fate.WAITING_FOR_QUOTA, waiting.summary)
    if QUEUE_GATE in gates:
        return PodState(Fate.WAITING_FOR_QUOTA, f"it is charged, and its gate {QUEUE_GATE} removed, when there is room")
    return PodState(Fate.GATED_BY_OTHERS, f"{', '.join(gates)}: its owner must remove the gate", _advise(gates))


def _advise(gates: Sequence[str]) -> str:
    names = ", ".join(gates)
    if len(gates) == 1:
        return f"see that the controller runs which removes scheduling gate {names}"
    return f"see that the controllers run which remove scheduling gates {names}"


def needs_all_nodes(pods: Iterable[ReportedPod]) -> bool:
    """Whether a Pod waits for a node: the reason may then be in any node."""
    return any(not pod.spec.node_name for pod in pods)


def list_doubtful_nodes(pods: Sequence[ReportedPod]) -> frozenset[str]:
    """Return the nodes that may explain why Pods do not run: of Pods that are not ready, and of a single Pod."""
    return frozenset(
        pod.spec.node_name
        for pod in pods
        if pod.spec.node_name and pod.status.phase not in _ENDED and (len(pods) == 1 or not _is_ready(pod))
    )


def _is_ready(pod: ReportedPod) -> bool:
    ready = pod.find_condition("Ready")
    return ready is not None and ready.status == "True" and pod.metadata.deletion_timestamp is None


def list_gates(pod: ReportedPod) -> tuple[str, ...]:
    return tuple(gate.name for gate in pod.spec.scheduling_gates or ())


def report_scheduling(pod: ReportedPod) -> SchedulingReport:
    condition = pod.find_condition("PodScheduled")
    if condition is None or condition.status == "True":
        return SchedulingReport(pod.spec.scheduler_name or "", pod.spec.node_name or "")
    return SchedulingReport(
        pod.spec.scheduler_name or "", pod.spec.node_name or "", condition.reason or "", condition.message or ""
    )


def _judge_unscheduled(
    pod: ReportedPod, nodes: NodesReport | None, now_us: int, scheduled: SchedulingRecord | None
) -> PodState:
    condition = pod.find_condition("PodScheduled")
    if condition is not None and condition.status == "False":
        message = condition.message or ""
        if pod.status.nominated_node_name:
            return _explain_preemption(pod.status.nominated_node_name)
        refusal = explain_extender_refusal(scheduled, message, now_us)
        if refusal:
            return PodState(Fate.UNSCHEDULABLE, refusal, advise_after_refusal(scheduled))
        return PodState(Fate.UNSCHEDULABLE, blame(nodes, message))
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    if now_us - parse_created_us(pod) < _PATIENCE_US:
        return PodState(Fate.STARTING, f"waits for scheduler {scheduler}")
    return PodState(Fate.UNSCHEDULABLE, f"no scheduler has looked at it: is scheduler {scheduler} running?")


def _explain_preemption(node: str) -> PodState:
    text = f"it is nominated for node {node}, where Pods of lower priority are being ended for it"
    remedy = f"wait until they have ended: kubectl get pods -A --field-selector spec.nodeName={node}"
    return PodState(Fate.UNSCHEDULABLE, text, remedy)


def parse_created_us(pod: ReportedPod) -> int:
    try:
        return parse_microseconds(pod.metadata.creation_timestamp or "")
    except ValueError:
        return 0


def blame(nodes: NodesReport | None, message: str) -> str:
    """Return which side leaves no node: the policy, the Pod's own terms, both together, taints, or something else."""
    if nodes is None:
        return message
    side = _find_side(nodes)
    return side or f"{nodes.left} of {nodes.total} nodes fit its terms and taints; the scheduler: {message}"


def _find_side(nodes: NodesReport) -> str:
    if not nodes.total:
        return "the cluster has no nodes"
    if not nodes.policy_leaves:
        first = next(entry for entry in nodes.policy if not entry.left)
        return f"by the policy: {first.by} ({first.requirement}) leaves 0 of {nodes.total} nodes"
    if not nodes.own_leave:
        return _blame_own_terms(nodes)
    if not nodes.both_leave:
        return (
            f"by the policy and its own terms together: the policy leaves {nodes.policy_leaves} of {nodes.total} nodes,"
            f" its own terms {nodes.own_leave}, and none fits both"
        )
    if not nodes.left:
        taints = ", ".join(f"{taint.by} on {taint.fit}" for taint in nodes.taints)
        return f"by taints: {taints} of the {nodes.both_leave} nodes that fit its terms"
    return ""


def _blame_own_terms(nodes: NodesReport) -> str:
    """Return which term of the Pod fits no node; it may be the policy's if the policy that rewrote it is not known."""
    first = min(nodes.own, key=lambda term: term.fit)
    text = f"{first.by} ({first.requirement}) fits {first.fit} of {nodes.total} nodes"
    if not nodes.unknown_policy:
        return f"by its own terms: {text}"
    return (
        f"{text}; whether the Pod or the policy wrote it cannot be told: policy {nodes.unknown_policy}, which rewrote"
        " the Pod, cannot be read"
    )


def _judge_started(
    pod: ReportedPod, events: Sequence[ReportedEvent], hosts: Mapping[str, ReportedNode | None] | None
) -> PodState:
    node = explain_node(pod, hosts)
    if node is not None:
        return PodState(Fate.FAILED, *node)
    containers = list(list_containers(pod))
    failed = next(filter(is_failed, containers), None)
    if failed is not None:
        return _judge_failed(pod, failed, events)
    if _is_ready(pod):
        count = len(pod.status.container_statuses or ())
        return PodState(Fate.RUNNING, f"on {pod.spec.node_name}, {count} of {count} containers ready")
    return _judge_unready(pod, containers, events)


def _judge_failed(pod: ReportedPod, container: ReportedContainer, events: Sequence[ReportedEvent]) -> PodState:
    probe = find_probe(pod, container, events)
    if probe is not None:
        return PodState(Fate.FAILED, *probe)
    shown, remedy = explain_container_failure(pod, container, report_container(container), events)
    return PodState(Fate.FAILED, format_container(shown), remedy)


def _judge_unready(
    pod: ReportedPod, containers: Sequence[ReportedContainer], events: Sequence[ReportedEvent]
) -> PodState:
    """Return why a Pod on a node, of which no container has failed, is not ready."""
    late = [container for container in containers if not container.ready]
    ready_names = ", ".join(container.name for container in containers if container.ready)
    if late and ready_names and all(map(has_ended_well, late)):
        done = ", ".join(container.name for container in late)
        return PodState(Fate.RUNNING, f"on {pod.spec.node_name}: {done} ended well, {ready_names} still running")
    probe = next((found for container in late if (found := find_probe(pod, container, events)) is not None), None)
    if probe is not None:
        return PodState(Fate.STARTING, f"on {pod.spec.node_name}, not ready yet: {probe.text}", probe.remedy)
    is_running = any(container.state and container.state.running for container in containers)
    stall = None if is_running else explain_stall(pod, events)
    if stall is not None:
        return PodState(Fate.FAILED, *stall)
    ready = pod.find_condition("Ready")
    if containers and not late and ready is not None and ready.message:
        return PodState(Fate.STARTING, f"on {pod.spec.node_name}, not ready yet: {ready.message}")
    names = ", ".join(container.name for container in late) or "all containers"
    return PodState(Fate.STARTING, f"on {pod.spec.node_name}, not ready yet: {names}")


def _explain_bad_end(pod: ReportedPod, events: Sequence[ReportedEvent]) -> PodState:
    if pod.status.reason or pod.status.message:
        return PodState(Fate.FAILED, ": ".join(text for text in (pod.status.reason, pod.status.message) if text))
    ended = next((container for container in list_containers(pod) if report_container(container).exit_code), None)
    if ended is None:
        return PodState(Fate.FAILED, "a container ended with an error")
    return _judge_failed(pod, ended, events)
