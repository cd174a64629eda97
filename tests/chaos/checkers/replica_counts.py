"""The number of servers that divide the limits: it changes only as docs/redis.md says, and is right in the end."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.checkers.facts import Facts
from tests.chaos.checkers.faults import FaultSpan
from tests.chaos.checkers.judging import Judge
from tests.chaos.history import EXITED, FAILED

LEASES = "leases"
"""Where a server has its number from."""
NO_SPACE = "etcd-no-space"
API_KINDS = frozenset({"kube-apiserver", "etcd"})
FORGOTTEN_SECONDS = 60.0
"""By then nobody counts a server that has ended: it is counted for 40 s, and others look every 10 s."""
RAISED_SECONDS = 3.0
"""By then an alarm is raised, and a round has ended that was under way."""
UPDATED_SECONDS = 1.5
"""A status is read each second."""
_RIGHT, _SERVER_ACCOUNT = "right-removed", "podgate"


class CountedServers(NamedTuple):
    """What one server has shown at a moment."""

    at: float
    count: int


def check_replica_counts(facts: Facts, judge: Judge) -> None:
    """Judge what each server has shown, as far as it counts by Leases."""
    shown = _list_shown(facts)
    unwritable = list(_list_unwritable(facts))
    for part, counts in shown.items():
        for before, after in pairwise(counts):
            _check_change(facts, judge, part, before, after, unwritable)
    _check_end(facts, judge)


def _list_shown(facts: Facts) -> dict[str, list[CountedServers]]:
    found: dict[str, list[CountedServers]] = defaultdict(list)
    for status in facts.history.statuses:
        replicas = status.document.get("replicas")
        if isinstance(replicas, dict) and replicas.get("source") == LEASES:
            found[status.part].append(CountedServers(status.at, int(replicas["count"])))
    return found


def _list_unwritable(facts: Facts) -> Iterator[tuple[float, float]]:
    """Yield when no Lease could be written: the alarm is over from when its end was planned."""
    failed = {fault.number for fault in facts.history.faults if fault.phase == FAILED}
    planned = {fault.number: facts.history.plan.began_at + fault.until for fault in facts.history.plan.schedule}
    for span in facts.faults.spans:
        if span.kind == NO_SPACE and span.number not in failed:
            yield span.began, min(span.ended, planned.get(span.number, span.ended))


def _check_change(
    facts: Facts,
    judge: Judge,
    part: str,
    before: CountedServers,
    after: CountedServers,
    unwritable: Sequence[tuple[float, float]],
) -> None:
    """Expect no change while Leases cannot be written, and of servers that have not ended that all are counted."""
    if _has_ended(facts, part, before.at - UPDATED_SECONDS, after.at):
        return  # it may be another process, which counts anew
    if any(began + RAISED_SECONDS <= before.at and after.at < ended for began, ended in unwritable):
        expected, holds = f"{before.count}: no Lease could be written", after.count == before.count
    elif _may_lack_server(facts, after.at):
        return
    else:
        least = min(before.count, facts.server_count)
        expected, holds = f"at least {least}: no server has ended", after.count >= least
    judge.expect(
        holds=holds,
        of=part,
        field="servers that divide limits",
        value=after.count,
        expected=expected,
        at=after.at,
        since=before.at,
    )


def _has_ended(facts: Facts, part: str, begin: float, end: float) -> bool:
    """Return whether a server has ended in a time."""
    return any(
        part in span.parts and (span.ends_process or span.kind == EXITED)
        for span in facts.faults.list_active(begin, end)
    )


def _may_lack_server(facts: Facts, at: float) -> bool:
    """Return whether a server has ended, or could not renew its Lease, so lately that others need not count it."""
    since = at - FORGOTTEN_SECONDS
    away = facts.faults.list_active(0, at, of=lambda span: facts.faults.is_of(span, API_KINDS))
    for span in sorted(away, key=lambda span: span.ended, reverse=True):
        if span.ended > since:  # meanwhile nobody counts
            since -= min(span.ended, at) - span.began
    return bool(facts.faults.list_active(since, at, of=lambda span: _keeps_from_leases(facts, span)))


def _keeps_from_leases(facts: Facts, span: FaultSpan) -> bool:
    """Return whether one server cannot renew its Lease while others can, or has ended."""
    kinds = {facts.history.plan.parts.get(part, part) for part in span.parts}
    if span.kind == _RIGHT:
        details = next(fault.details for fault in facts.history.faults if fault.number == span.number)
        return details.get("account") == _SERVER_ACCOUNT
    return "server" in kinds and "redis" not in kinds and not span.steps_clock


def _check_end(facts: Facts, judge: Judge) -> None:
    """Expect that at rest each server counts all of them."""
    end = facts.history.end
    if end is None or not end.rested or _may_lack_server(facts, end.at):
        return
    for part, document in end.statuses.items():
        replicas = document.get("replicas")
        if isinstance(replicas, dict) and replicas.get("source") == LEASES:
            judge.expect(
                holds=replicas["count"] == facts.server_count,
                of=part,
                field="servers that divide limits in the end",
                value=replicas["count"],
                expected=facts.server_count,
                at=end.at,
            )
