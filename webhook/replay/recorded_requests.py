"""Requests for Pods in decision records, as events of a replay."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from webhook.core.admission.decision import Half
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.reporting.decision_record import ABSENT, DecisionRecord
from webhook.replay.events import NamespacesChange, PodAsks, ReplayEvent


class RecordedRequests(Struct, frozen=True):
    """The requests in order of time, and the reasons for which records give none, with their number.

    Each has the record of the Pod as its creator sent it, and the uid of the Pod, "" if no record has it.
    """

    records: tuple[tuple[DecisionRecord, str], ...]
    since: datetime | None
    """The moment of the first record, from which events count their time; None without records."""
    left_out: dict[str, int]
    denied: frozenset[str] = frozenset()
    """The uids of Pods that were denied."""
    unfinished: frozenset[str] = frozenset()
    """Uids that stand for Pods that others refused between both halves: they were neither validated nor charged."""

    def make_events(self) -> Iterator[ReplayEvent]:
        """Yield the events; `at` is in seconds after the first record."""
        for record, uid in self.records:
            at_seconds = 0.0 if self.since is None else (record.at - self.since).total_seconds()
            yield from _make_events(record, uid, at_seconds)


def list_requests(records: Sequence[DecisionRecord]) -> RecordedRequests:
    """Return the request of each new Pod once; the mutating half may have been called again for it.

    The record of the mutating half has the Pod as its creator sent it. Where that call is left out, the record of the
    validating half has it. Uid and verdict are those of the validating half: the first one of the same name, or of the
    same controller and generated name.
    """
    left_out: Counter[str] = Counter()
    found: list[tuple[DecisionRecord, str]] = []
    open_requests: defaultdict[tuple[str, ...], deque[int]] = defaultdict(deque)
    denied: set[str] = set()
    validated: set[str] = set()
    for record in sorted(records, key=lambda record: (record.at, record.id)):
        if record.operation == "CREATE" and record.half is not Half.MUTATE and not record.workload:
            validated.add(record.service)
            denied.update([record.uid] if record.is_denied else ())
        if _is_second_half(record):
            if waiting := open_requests[_make_key(record)]:
                place = waiting.popleft()
                found[place] = (found[place][0], record.uid)
            continue
        reason = _find_obstacle(record)
        if reason:
            left_out[reason] += 1
            continue
        if record.half is Half.MUTATE:
            waiting = open_requests[_make_key(record)]
            if waiting and _is_rewritten(record):
                continue  # the API server has called again for the same Pod
            waiting.append(len(found))
        found.append((record, record.uid))
    unfinished = [
        place for waiting in open_requests.values() for place in waiting if found[place][0].service in validated
    ]
    for place in unfinished:
        found[place] = (found[place][0], f"unfinished-{found[place][0].id}")
    return RecordedRequests(
        tuple(found),
        min((record.at for record in records), default=None),
        dict(left_out),
        frozenset(denied),
        frozenset(found[place][1] for place in unfinished),
    )


def _make_key(record: DecisionRecord) -> tuple[str, ...]:
    pod = record.pod
    name = (pod.metadata.generate_name if pod is not None else "") or record.name
    return (
        record.namespace,
        record.user,
        str(record.dry_run),
        record.owner.uid if record.owner is not None else "",
        name,
    )


def _is_second_half(record: DecisionRecord) -> bool:
    """Whether the Pod of a validating half was rewritten, so that a record of the mutating half has it, too."""
    return record.half is not Half.MUTATE and record.operation == "CREATE" and _is_rewritten(record)


def _is_rewritten(record: DecisionRecord) -> bool:
    pod = record.pod
    return pod is not None and HASH_ANNOTATION in pod.annotations


def _find_obstacle(record: DecisionRecord) -> str:
    if record.workload:
        return "reviews of workloads"
    if record.operation != "CREATE":
        return "updates and resizes"
    return "Pods too large to be recorded" if record.recorded == ABSENT else ""


def _make_events(record: DecisionRecord, uid: str, at_seconds: float) -> Iterator[ReplayEvent]:
    if record.namespace_labels:
        yield NamespacesChange(at=at_seconds, namespace_labels={record.namespace: dict(record.namespace_labels)})
    pod: dict[str, Any] = msgspec.json.decode(record.recorded)
    metadata = pod.setdefault("metadata", {})
    if record.name != metadata.get("generateName"):
        metadata["name"] = record.name
    yield PodAsks(
        at=at_seconds,
        pod=pod,
        namespace=record.namespace,
        uid=uid or None,
        user=record.user,
        dry_run=record.dry_run,
    )
