"""Requests for Pods in decision records, as events of a replay."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from webhook.core.admission.decision import Half
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.reporting.decision_record import ABSENT, DecisionRecord
from webhook.replay.events import NamespacesChange, PodAsks, ReplayEvent


class RecordedRequests(Struct, frozen=True):
    """The requests in order of time, and the reasons for which records give none, with their number."""

    events: tuple[ReplayEvent, ...]
    left_out: dict[str, int]


def list_requests(records: Sequence[DecisionRecord]) -> RecordedRequests:
    """Return the request of each new Pod once; `at` is in seconds after the first record.

    The record of the mutating half has the Pod as its creator sent it. Where that call is left out, the record of the
    validating half has it.
    """
    ordered = sorted(records, key=lambda record: (record.at, record.id))
    left_out: Counter[str] = Counter()
    events: list[ReplayEvent] = []
    for record in ordered:
        if _is_second_half(record):
            continue
        reason = _find_obstacle(record)
        if reason:
            left_out[reason] += 1
            continue
        events += _make_events(record, (record.at - ordered[0].at).total_seconds())
    return RecordedRequests(tuple(events), dict(left_out))


def _is_second_half(record: DecisionRecord) -> bool:
    """Whether the Pod of a validating half was rewritten, so that a record of the mutating half has it, too."""
    if record.half is Half.MUTATE or record.operation != "CREATE":
        return False
    pod = record.pod
    return pod is not None and HASH_ANNOTATION in pod.annotations


def _find_obstacle(record: DecisionRecord) -> str:
    if record.workload:
        return "reviews of workloads"
    if record.operation != "CREATE":
        return "updates and resizes"
    return "Pods too large to be recorded" if record.recorded == ABSENT else ""


def _make_events(record: DecisionRecord, at_seconds: float) -> Iterator[ReplayEvent]:
    if record.namespace_labels:
        yield NamespacesChange(at=at_seconds, namespace_labels={record.namespace: dict(record.namespace_labels)})
    pod: dict[str, Any] = msgspec.json.decode(record.recorded)
    metadata = pod.setdefault("metadata", {})
    if record.name != metadata.get("generateName"):
        metadata["name"] = record.name
    yield PodAsks(at=at_seconds, pod=pod, namespace=record.namespace, user=record.user, dry_run=record.dry_run)
