"""Causes of trips: the outcomes that the workload reported, and the denials of a quota."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.chaos.checkers.facts import US, Facts
from tests.chaos.checkers.faults import FaultSpan
from tests.chaos.checkers.judging import Judge
from tests.chaos.checkers.log_lines import format_moment, parse_moment
from tests.chaos.history import DONE, UNKNOWN, Transition
from webhook.core.breaker import BreakerPlan, ErrorRatePlan
from webhook.core.findings import Code

REPORT = "report"
"""The act that reports outcomes: `name` is the service, `details` has how many `outcomes` there were, and `failed`."""
TRIP_SECONDS = 2.5
"""After its last interval a trip is found by a tick: each second, 300 ms late, and a flush of 100 ms before."""
EVENT_SECONDS = 1.5
CLOCK_SECONDS = 0.05
BUSY_SECONDS = 0.3
"""Where answers take longer, the machine decides when a breaker opens."""
COUNTED_SECONDS, BRISK_SECONDS = 0.15, 0.1
"""How far from an interval's ends an outcome is surely counted in it, where no answer takes longer."""
LATE_SECONDS = 1.0
"""By how much the moment at which a store counts an outcome may be late."""


class Reported(NamedTuple):
    """Outcomes of one call. Without an answer they may have been counted: `is_known` is false."""

    at: float
    answered_at: float
    ok: int
    failed: int
    is_known: bool


def check_causes(facts: Facts, judge: Judge, moves: Mapping[str, Sequence[Transition]]) -> None:
    """Judge that each trip has a cause, and that each cause has a trip."""
    reported: dict[str, list[Reported]] = {}
    for act in facts.history.acts:
        if act.act == REPORT and act.outcome in {DONE, UNKNOWN}:
            count, failed = int(act.details.get("outcomes", 0)), int(act.details.get("failed", 0))
            report = Reported(act.at, act.answered_at, count - failed, failed, act.outcome == DONE)
            reported.setdefault(act.name, []).append(report)
    is_pushed = bool(facts.history.acts)
    for policy in facts.policies.values():
        for service, plan in policy.plans.items():
            breaker = plan.breaker
            if breaker is None or breaker.forcing is not None or len(facts.policies) > 1:
                continue
            trips = [move for move in moves.get(service, ()) if (move.old, move.new) == ("CLOSED", "OPEN")]
            if breaker.error_rate is not None and is_pushed and breaker.latency is None:
                _check_error_trips(facts, judge, service, breaker, trips, reported.get(service, ()))
            if breaker.quota is not None and breaker.error_rate is None:
                _check_quota_trips(facts, judge, service, breaker, moves.get(service, ()))


def _check_error_trips(
    facts: Facts,
    judge: Judge,
    service: str,
    breaker: BreakerPlan,
    trips: Sequence[Transition],
    reported: Sequence[Reported],
) -> None:
    rule = breaker.error_rate
    assert rule is not None
    span = rule.consecutive * rule.interval_us / US
    needed = -(-rule.minimum * rule.percent // 100)
    for trip in trips:
        begin = trip.at - span - TRIP_SECONDS
        failed = sum(report.failed for report in reported if begin <= report.answered_at and report.at <= trip.at)
        judge.expect(
            holds=failed >= rule.consecutive * needed or bool(facts.faults.list_store_spans(begin, trip.at)),
            of=service,
            field="failures before it opened",
            value=failed,
            expected=f"at least {rule.consecutive * needed} within {span:.0f} s",
            at=trip.at,
        )
        _check_intervals(facts, judge, trip, rule, reported)
    for begin, end in _list_failing(
        [report for report in reported if report.is_known], rule.interval_us / US, rule.minimum
    ):
        due = begin + span + 2 * rule.interval_us / US + TRIP_SECONDS
        is_busy = any(report.answered_at - report.at > BUSY_SECONDS for report in reported if report.at <= due)
        if end < due - TRIP_SECONDS or is_busy or facts.faults.list_active(begin - 1, due):
            continue
        judge.expect(
            holds=any(begin <= trip.at <= due for trip in trips) or _is_tripped(facts, service, begin),
            of=service,
            field=f"all outcomes failed for {end - begin:.1f} s",
            value="it did not open",
            expected=f"OPEN after {span:.0f} s",
            at=due,
            since=begin,
        )


def _check_intervals(
    facts: Facts, judge: Judge, trip: Transition, rule: ErrorRatePlan, reported: Sequence[Reported]
) -> None:
    """Expect that each of the intervals that tripped a breaker had enough failures, and not too many successes."""
    tripped_at, interval = _find_tripped_at(facts, trip.service, trip.at), rule.interval_us / US
    if tripped_at is None:
        return
    began = tripped_at - rule.consecutive * interval
    if facts.faults.list_store_spans(began - LATE_SECONDS, trip.at):
        return
    moved_at = max((move.at for move in facts.history.transitions if _is_before(move, trip)), default=0.0)
    is_certain = not facts.faults.list_active(began - LATE_SECONDS, trip.at) and all(
        report.answered_at - report.at <= BRISK_SECONDS for report in reported if began - 1 <= report.at <= trip.at
    )
    for number in range(rule.consecutive):
        begin, end = began + number * interval, began + (number + 1) * interval
        failed = sum(
            report.failed
            for report in reported
            if begin - LATE_SECONDS <= report.answered_at and report.at - COUNTED_SECONDS <= end
        )
        succeeded = sum(
            report.ok
            for report in reported
            if report.is_known
            and max(begin, moved_at) + COUNTED_SECONDS <= report.at
            and report.answered_at + COUNTED_SECONDS <= end
        )
        total = failed + succeeded if is_certain else failed
        judge.expect(
            holds=failed >= -(-rule.minimum * rule.percent // 100) and 100 * failed >= rule.percent * total,
            of=trip.service,
            field=f"interval {number + 1} of {rule.consecutive} that opened it",
            value=f"at most {failed} of {total} outcomes failed",
            expected=f"{rule.percent}% of {rule.minimum} or more by {format_moment(end)}",
            at=trip.at,
        )


def _is_before(move: Transition, trip: Transition) -> bool:
    return move.service == trip.service and move.at < trip.at and move.generation < trip.generation


def _find_tripped_at(facts: Facts, service: str, at: float) -> float | None:
    """Return the exact moment of a trip that was logged at `at`, as statuses show it; None if none does."""
    shown = {
        parse_moment(str(row["breaker"]["trippedAt"]))
        for status in facts.history.statuses
        for row in status.document.get("services") or ()
        if row["name"] == service and row.get("breaker") and row["breaker"].get("trippedAt")
    }
    return max((moment for moment in shown if at - TRIP_SECONDS <= moment <= at), default=None)


def _is_tripped(facts: Facts, service: str, at: float) -> bool:
    """Return whether a breaker was not CLOSED at a moment."""
    before = [move for move in facts.history.transitions if move.service == service and move.at <= at]
    return bool(before) and max(before, key=lambda move: move.at).new != "CLOSED"


def _list_failing(reported: Sequence[Reported], interval: float, minimum: int) -> list[tuple[float, float]]:
    """Return the times in which each interval had enough outcomes, and none succeeded."""
    times: list[tuple[float, float]] = []
    begin, last = 0.0, 0.0
    counts: list[tuple[float, int]] = []
    for report in sorted(reported, key=lambda report: report.at):
        if report.ok or (last and report.at - last > interval / 2):
            if begin and _is_dense(counts, interval, minimum):
                times.append((begin, last))
            begin, counts = 0.0, []
        if report.failed and not report.ok:
            begin = begin or report.at
            counts.append((report.at, report.failed))
            last = report.answered_at
    if begin and _is_dense(counts, interval, minimum):
        times.append((begin, last))
    return times


def _is_dense(counts: Sequence[tuple[float, int]], interval: float, minimum: int) -> bool:
    """Return whether any interval within the counts has enough outcomes."""
    first, last = counts[0][0], counts[-1][0]
    return last - first > interval and all(
        sum(count for at, count in counts if begin <= at < begin + interval) >= minimum
        for begin, _ in counts
        if begin + interval <= last
    )


def _check_quota_trips(
    facts: Facts, judge: Judge, service: str, breaker: BreakerPlan, moves: Sequence[Transition]
) -> None:
    rule = breaker.quota
    assert rule is not None
    within = rule.within_us / US
    denials = sorted(
        review.at
        for reviews in facts.judged.values()
        for review in reviews
        if review.service == service and Code.QUOTA_EXCEEDED in (review.record.get("codes") or ())
        if any(row.get("over") and row["of"] != "pool" for row in review.record.get("limits") or ())
    )
    trips = [move for move in moves if (move.old, move.new) == ("CLOSED", "OPEN")]

    def ends_server(span: FaultSpan) -> bool:
        """Whether the records of denials that a server has counted may be lost with it."""
        return span.ends_process and facts.faults.is_of(span, {"server"})

    for trip in trips:
        begin = trip.at - within - 1
        count = sum(begin <= at <= trip.at + EVENT_SECONDS for at in denials)
        are_known = not facts.faults.list_active(begin, trip.at, of=ends_server)
        judge.expect(
            holds=count >= rule.count
            or not are_known
            or bool(facts.faults.list_store_spans(trip.at - within, trip.at)),
            of=service,
            field=f"denials within {within:.0f} s before it opened",
            value=count,
            expected=f"at least {rule.count}",
            at=trip.at,
        )
    if rule.by_controller:
        return
    since = 0.0
    for index, at in enumerate(denials):
        recent = [each for each in denials[: index + 1] if each > max(at - within, since)]
        if len(recent) < rule.count:
            continue
        opened = [move.at for move in moves if recent[0] - 1 <= move.at <= at + EVENT_SECONDS]
        if not facts.faults.list_store_spans(recent[0] - 1, at + EVENT_SECONDS):
            judge.expect(
                holds=bool(opened) or _is_tripped(facts, service, at),
                of=service,
                field=f"{len(recent)} denials within {within:.0f} s",
                value="it did not open",
                expected=f"OPEN by {rule.count}",
                at=at,
            )
        since = max([at, *(move.at for move in moves if move.at <= at + EVENT_SECONDS)])
