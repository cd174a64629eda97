"""Replay record: one event of `replay` per review, with only the fields that policies read."""

from collections.abc import Collection, Mapping
from typing import Any

from webhook.core.admission.review import Request
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.reporting.pod_record import record_pod

_SECOND_US = 1_000_000
MEAN_SECONDS_MAX = 3600
"""Largest mean in a line of `outcomes`: the sum over two million requests in microseconds stays exact in a double."""


def is_kept(request: Request) -> bool:
    """Whether a review is recorded: a new Pod, or a resize. Other updates are not charged."""
    if request.pod is None or request.workload is not None:
        return False
    return request.operation == "CREATE" or request.sub_resource == "resize"


def make_pod_event(request: Request, at_us: int, annotations: Collection[str] = ()) -> dict[str, Any]:
    """Return the event of a request that `is_kept`; `at_us` counts from the start of the record.

    `annotations`: the keys of those that the policy reads.
    """
    pod = request.pod
    if pod is None:
        raise ValueError("a request without a Pod is no event")
    event = {
        "at": at_us / _SECOND_US,
        "pod": record_pod(pod, annotations),
        "namespace": request.namespace,
        "uid": pod.metadata.uid,
        "dryRun": request.dry_run,
        "user": request.user,
    }
    if request.operation != "CREATE":
        event |= {"operation": request.operation, "subResource": request.sub_resource}
    if request.old_pod is not None:
        event["oldPod"] = record_pod(request.old_pod, annotations)
    return {name: value for name, value in event.items() if value or name in {"at", "pod"}}


def make_outcomes_event(service: str, reported: Outcomes, at_us: int) -> dict[str, Any]:
    """Return the event of a Pod's outcome, or of sums of requests. Without the generation: a replay has its own."""
    total = reported.succeeded + reported.failed
    latency = min(reported.latency_us / total / _SECOND_US, MEAN_SECONDS_MAX) if total else 0
    if reported.uid is not None:
        outcome = {"service": service, "ok": not reported.failed, "latency": latency, "uid": reported.uid}
        return {"at": at_us / _SECOND_US, "outcome": outcome}
    sums = {"service": service, "succeeded": reported.succeeded, "failed": reported.failed, "latency": latency}
    return {"at": at_us / _SECOND_US, "outcomes": sums}


def make_labels_event(namespace: str, labels: Mapping[str, str], at_us: int) -> dict[str, Any]:
    return {"at": at_us / _SECOND_US, "namespaceLabels": {namespace: labels}}
