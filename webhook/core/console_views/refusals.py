"""Refusals of a service: denials by code and by workload, and the changes of its breaker that its records saw."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.console_views.status_document import BreakerStatus
from webhook.core.reporting.decision_record import RecordedBreaker, RecordedController, RecordedStatus

WORKLOADS_MAX = 10
CHANGES_MAX = 10
_DENY = "Deny"


class ServiceRecord(Struct, frozen=True, rename="camel"):
    """What is read of a decision record."""

    id: str
    at: datetime
    decision: str
    namespace: str
    name: str
    codes: tuple[str, ...] = ()
    owner: RecordedController | None = None
    workload: str = ""
    status: RecordedStatus | None = None
    breaker: RecordedBreaker | None = None
    dry_run: bool = False

    @property
    def is_refusal(self) -> bool:
        return self.decision == _DENY and not self.dry_run


class RecordPage(Struct, frozen=True):
    """Records, newest first; `next` if there are older ones, `error` if some may be missing."""

    decisions: tuple[ServiceRecord, ...] = ()
    next: str | None = None
    error: str | None = None


class ServiceRecords(Struct, frozen=True):
    """The denials of the last minutes, and the newest records of any age."""

    denied: RecordPage = RecordPage()
    newest: RecordPage = RecordPage()
    error: str = ""
    """Why some are missing."""

    @property
    def all_newest_first(self) -> tuple[ServiceRecord, ...]:
        by_id = {record.id: record for page in (self.denied, self.newest) for record in page.decisions}
        return tuple(sorted(by_id.values(), key=lambda record: record.id, reverse=True))


class CodeCount(Struct, frozen=True):
    """Denials with one code."""

    code: str
    count: int


class RefusedWorkload(Struct, frozen=True, rename="camel"):
    """Denials of one controller's Pods, or of a Pod without one; without a name the viewer may not know whose."""

    namespace: str
    kind: str
    name: str
    count: int
    newest_at: str
    codes: tuple[str, ...]
    message: str
    """Of the newest denial."""


class BreakerChange(Struct, frozen=True, rename="camel"):
    """A state of the breaker, and when it was first seen; `exact` if that is when it began."""

    state: str
    generation: int
    at: str
    reason: str = ""
    exact: bool = False
    missed: int = 0
    """Changes between this one and the one before it that no record saw."""


def count_codes(records: Iterable[ServiceRecord]) -> tuple[CodeCount, ...]:
    """Return denials by code, the most frequent first. A denial with two codes counts for both."""
    counts: dict[str, int] = {}
    for record in records:
        for code in record.codes if record.is_refusal else ():
            counts[code] = counts.get(code, 0) + 1
    return tuple(CodeCount(code, counts[code]) for code in sorted(counts, key=lambda code: (-counts[code], code)))


def count_workloads(records: Iterable[ServiceRecord]) -> tuple[RefusedWorkload, ...]:
    """Return denials by workload, the most frequent first. `records` has the newest first."""
    found: dict[tuple[str, str, str], list[ServiceRecord]] = {}
    for record in records:
        if record.is_refusal:
            owner = record.owner
            kind, name = ("Pod", record.name) if owner is None else (owner.kind, owner.name)
            found.setdefault((record.namespace, kind, name), []).append(record)
    counted = [_sum_workload(key, its) for key, its in found.items()]
    return tuple(sorted(counted, key=lambda workload: (-workload.count, workload.namespace, workload.name)))


def hide_workload(workload: RefusedWorkload) -> RefusedWorkload:
    """Return a workload without what names it, and without its text, which may."""
    return replace(workload, namespace="", kind="", name="", message="")


def list_changes(records: Iterable[ServiceRecord], breaker: BreakerStatus | None) -> tuple[BreakerChange, ...]:
    """Return the states of a breaker that records saw, and its present one, the newest first."""
    found: dict[int, BreakerChange] = {}
    for record in records:  # the newest first: the oldest record of a generation is the last
        seen = record.breaker
        if seen is not None:
            found[seen.generation] = BreakerChange(seen.state, seen.generation, format_second(record.at), seen.reason)
    if breaker is not None:
        found = {generation: change for generation, change in found.items() if generation <= breaker.generation}
        if breaker.since is not None:
            now = BreakerChange(breaker.state, breaker.generation, breaker.since, breaker.reason, exact=True)
            found[breaker.generation] = now
    newest_first = [found[generation] for generation in sorted(found, reverse=True)][: CHANGES_MAX + 1]
    return _count_missed(newest_first)[:CHANGES_MAX]


def _count_missed(changes: Sequence[BreakerChange]) -> tuple[BreakerChange, ...]:
    """Return the changes with the generations that lie between each and the one before it."""
    gaps = [change.generation - before.generation - 1 for change, before in pairwise(changes)]
    return tuple(replace(change, missed=gap) for change, gap in zip(changes, (*gaps, 0), strict=False))


def format_second(at: datetime) -> str:
    """Return a time in UTC, in whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _sum_workload(key: tuple[str, str, str], its: Sequence[ServiceRecord]) -> RefusedWorkload:
    namespace, kind, name = key
    newest = its[0]
    codes = tuple(dict.fromkeys(code for record in its for code in record.codes))
    message = newest.status.message if newest.status is not None else ""
    return RefusedWorkload(namespace, kind, name, len(its), format_second(newest.at), codes, message)
