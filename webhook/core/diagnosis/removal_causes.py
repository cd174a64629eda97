"""Causes of a Pod's removal: preemption, eviction, its node; and what keeps a deleted Pod in the cluster."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from webhook.core.diagnosis.objects import ReportedEvent, ReportedNode, ReportedPod
from webhook.core.diagnosis.report import Cause
from webhook.core.kubernetes.timestamps import parse_microseconds


def explain_node(pod: ReportedPod, hosts: Mapping[str, ReportedNode | None] | None) -> Cause | None:
    """Return what is wrong with a Pod's node; None if nothing is, or if nodes were not read."""
    name = pod.spec.node_name
    if not name or hosts is None or name not in hosts:
        return None
    host = hosts[name]
    if host is None:
        again = "" if pod.metadata.owner_references else ", then create it again"
        return Cause(f"node {name} does not exist", f"wait until Kubernetes has deleted the Pod{again}")
    ready = next((condition for condition in host.status.conditions or () if condition.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return None
    why = ": ".join(text for text in (ready.reason, ready.message) if text)
    return Cause(f"node {name} is not ready{f': {why}' if why else ''}", f"repair the kubelet of node {name}")


_ENDED = frozenset({"Succeeded", "Failed"})
_PREEMPTED = "PreemptionByScheduler"
_REMOVALS = {
    "Preempted": "preempted by a Pod of higher priority",
    "TaintManagerEviction": "evicted: it does not tolerate a taint of its node",
    "Evicted": "evicted by its kubelet",
}
"""By the reason of the Event."""
_HIGHER = "give it a higher priorityClassName, or add nodes"


def explain_deletion(pod: ReportedPod, hosts: Mapping[str, ReportedNode | None] | None, now_us: int) -> Cause:
    """Return why a Pod was deleted, or what keeps it in the cluster."""
    since = f"since {_compute_requested_at(pod)}"
    finalizers = pod.metadata.finalizers or ()
    is_ended = pod.status.phase in _ENDED or not pod.spec.node_name or pod.metadata.deletion_grace_period_seconds == 0
    if finalizers and is_ended:
        hold = (
            f"finalizer {finalizers[0]} holds" if len(finalizers) == 1 else f"finalizers {', '.join(finalizers)} hold"
        )
        return Cause(f"{since}: {hold} it", _suggest_release(pod, finalizers))
    node = explain_node(pod, hosts) if now_us > _parse_due_us(pod) else None
    if node is not None:
        return Cause(f"{since}: {node.text}", node.remedy)
    target = pod.find_condition("DisruptionTarget")
    if target is None or target.status != "True":
        return Cause(since, "")
    text = ": ".join(text for text in (target.reason, target.message) if text)
    return Cause(f"{since}: {text}", _HIGHER if target.reason == _PREEMPTED else "")


def explain_removal(events: Sequence[ReportedEvent], uid: str) -> Cause | None:
    """Return why a Pod that no longer exists was removed, by the newest Event that says so."""
    found = [event for event in events if event.reason in _REMOVALS and uid in {"", event.involved_object.uid}]
    newest = max(found, key=lambda event: event.at, default=None)
    if newest is None:
        return None
    text = f"{_REMOVALS[newest.reason or '']} at {newest.at}: {newest.message}; it does not exist"
    return Cause(text, _HIGHER if newest.reason == "Preempted" else "")


def _suggest_release(pod: ReportedPod, finalizers: Sequence[str]) -> str:
    controllers = "the controller that set it runs" if len(finalizers) == 1 else "the controllers that set them run"
    command = (
        f"kubectl patch pod {pod.metadata.name} -n {pod.metadata.namespace} --type=merge -p"
        """ '{"metadata":{"finalizers":null}}'"""
    )
    return f"see that {controllers}; only if they never will again: {command}"


def _parse_due_us(pod: ReportedPod) -> int:
    try:
        return parse_microseconds(pod.metadata.deletion_timestamp or "")
    except ValueError:
        return 0


def _compute_requested_at(pod: ReportedPod) -> str:
    """Return when the deletion was asked for: the deletionTimestamp is the end of its grace period."""
    grace, due_us = pod.metadata.deletion_grace_period_seconds, _parse_due_us(pod)
    if not grace or not due_us:
        return pod.metadata.deletion_timestamp or ""
    return datetime.fromtimestamp(due_us // 1_000_000 - grace, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
