"""What trips a breaker: outcomes by interval, and quota events within a trailing span."""

from typing import NamedTuple

from msgspec import Struct

from webhook.core.breaker import BreakerPlan, ErrorRatePlan, LatencyPlan


class Run(Struct, frozen=True):
    """The interval under way, number `index` of its length, and how many in a row before it crossed the threshold.

    `amount` is what the rule weighs against the number of outcomes: errors, or microseconds of latency.
    """

    interval_us: int
    index: int
    outcomes: int
    amount: int
    streak: int


IDLE = Run(0, 0, 0, 0, 0)
"""Nothing under way and nothing before it: a run always falls back to this one value, however long it was idle."""


class QuotaEvent(NamedTuple):
    at_us: int
    source: str


class Windows(Struct, frozen=True):
    """All that the triggers remember."""

    errors: Run = IDLE
    latency: Run = IDLE
    quota_events: tuple[QuotaEvent, ...] = ()


EMPTY = Windows()


class Trip(NamedTuple):
    """A trigger fired: when, which may be before it was noticed, and why."""

    at_us: int
    reason: str


def pass_time(windows: Windows, plan: BreakerPlan, now_us: int) -> tuple[Windows, Trip | None]:
    """Let every interval boundary up to `now_us` pass; return the earliest trip, errorRate before latency on a tie."""
    if windows.errors is IDLE and windows.latency is IDLE:
        return windows, None
    errors, by_errors = _pass_boundaries(windows.errors, plan.error_rate, now_us)
    latency, by_latency = _pass_boundaries(windows.latency, plan.latency, now_us)
    trips = [trip for trip in (by_errors, by_latency) if trip is not None]
    if trips:
        return EMPTY, min(trips, key=lambda trip: trip.at_us)
    if errors is windows.errors and latency is windows.latency:
        return windows, None
    return Windows(errors, latency, windows.quota_events), None


def _pass_boundaries(run: Run, rule: ErrorRatePlan | LatencyPlan | None, now_us: int) -> tuple[Run, Trip | None]:
    # Intervals after the one under way are empty and an empty one breaks the run, so only its own end can trip.
    if rule is None or run.interval_us != rule.interval_us:
        return IDLE, None  # the policy has changed: intervals of another length do not add up
    end_us = (run.index + 1) * run.interval_us
    if now_us < end_us:
        return run, None
    if not rule.crossed(run.outcomes, run.amount):
        return IDLE, None
    if run.streak + 1 >= rule.consecutive:
        return IDLE, Trip(end_us, rule.reason(run.outcomes, run.amount))
    if now_us >= end_us + run.interval_us:
        return IDLE, None
    return Run(run.interval_us, run.index + 1, 0, 0, run.streak + 1), None


def count_outcome(windows: Windows, plan: BreakerPlan, now_us: int, *, ok: bool, latency_us: int) -> Windows:
    """Count one outcome in the intervals under way. Time must have been passed up to `now_us`."""
    return Windows(
        _count(windows.errors, plan.error_rate, now_us, int(not ok)),
        _count(windows.latency, plan.latency, now_us, latency_us),
        windows.quota_events,
    )


def _count(run: Run, rule: ErrorRatePlan | LatencyPlan | None, now_us: int, amount: int) -> Run:
    if rule is None:
        return IDLE
    if run is IDLE:
        return Run(rule.interval_us, now_us // rule.interval_us, 1, amount, 0)
    return Run(run.interval_us, run.index, run.outcomes + 1, run.amount + amount, run.streak)


def count_quota_event(windows: Windows, plan: BreakerPlan, now_us: int, source: str) -> tuple[Windows, Trip | None]:
    """Count one denial by quota; by controller, one that was heard within the span is not heard again."""
    rule = plan.quota
    if rule is None:
        return windows, None
    within = tuple(event for event in windows.quota_events if event.at_us > now_us - rule.within_us)
    if not rule.by_controller or all(event.source != source for event in within):
        within = (*within, QuotaEvent(now_us, source))
        if len(within) >= rule.count:
            return EMPTY, Trip(now_us, rule.reason())
    return Windows(windows.errors, windows.latency, within), None
