"""Trip detection: counts outcomes per interval and quota events in a trailing span, and decides when to trip."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.plans import BreakerPlan, ErrorRatePlan, LatencyPlan
from webhook.core.breaker.quota_events import NO_EVENTS, QuotaEvent, QuotaEvents
from webhook.core.breaker.states import TransitionCause

FAILED_MAX = 16
"""Maximum number of failed sources kept. With more, the sources count as unknown."""


class Cell(NamedTuple):
    """Outcomes of one interval, and the sources that contributed to its failures."""

    number: int
    outcomes: int
    amount: int
    sources: tuple[str, ...] = ()


class WeighedOutcomes(NamedTuple):
    """Outcomes of one moment as a rule weighs them. `sources` is their source if any failed, otherwise empty."""

    at_us: int
    outcomes: int
    amount: int
    sources: tuple[str, ...]


class Run(Struct, frozen=True):
    """The current interval, number `index` of its length, after `streak` consecutive intervals over the threshold.

    `amount` is compared with the number of outcomes: errors, or microseconds of latency. `later` holds intervals that
    began during the current one's grace period. `sources` contributed to the failures of the current interval and of
    the streak: at most FAILED_MAX + 1 of them, "" for an unknown one.
    """

    interval_us: int
    index: int
    outcomes: int
    amount: int
    streak: int
    later: tuple[Cell, ...] = ()
    sources: tuple[str, ...] = ()


IDLE = Run(0, 0, 0, 0, 0)
"""The one value for no current interval and no streak, however long the run was idle."""


class Windows(Struct, frozen=True):
    """State of all triggers."""

    errors: Run = IDLE
    latency: Run = IDLE
    quota_events: QuotaEvents = NO_EVENTS


EMPTY = Windows()
NEVER_US = 1 << 62


class Trip(NamedTuple):
    """A trigger that fired at `at_us`, maybe before its detection. `failed` is empty unless all sources are known."""

    at_us: int
    cause: TransitionCause
    reason: str
    failed: tuple[str, ...] = ()


def find_end_us(windows: Windows, plan: BreakerPlan) -> int:
    """Return the earliest end of a current interval: before it, time changes nothing."""
    return min(_find_run_end_us(windows.errors, plan.error_rate), _find_run_end_us(windows.latency, plan.latency))


def _find_run_end_us(run: Run, rule: ErrorRatePlan | LatencyPlan | None) -> int:
    if run is IDLE:
        return NEVER_US
    if rule is None or run.interval_us != rule.interval_us:
        return 0
    return (run.index + 1) * run.interval_us


def pass_time(windows: Windows, plan: BreakerPlan, judged_us: int) -> tuple[Windows, Trip | None]:
    """Pass every interval boundary up to a moment; return the earliest trip, errorRate before latency on a tie.

    An interval must have ended by that moment, as `find_end_us` tells.
    """
    errors, by_errors = _pass_boundaries(windows.errors, plan.error_rate, judged_us)
    latency, by_latency = _pass_boundaries(windows.latency, plan.latency, judged_us)
    trips = [trip for trip in (by_errors, by_latency) if trip is not None]
    if trips:
        return EMPTY, min(trips, key=lambda trip: trip.at_us)
    return Windows(errors, latency, windows.quota_events), None


def _pass_boundaries(run: Run, rule: ErrorRatePlan | LatencyPlan | None, judged_us: int) -> tuple[Run, Trip | None]:
    if rule is None or run.interval_us != rule.interval_us:
        return IDLE, None  # the policy has changed: intervals of different lengths cannot be added
    while judged_us >= (run.index + 1) * run.interval_us:
        streak = run.streak + 1 if rule.is_crossed(run.outcomes, run.amount) else 0
        if streak >= rule.consecutive:
            ends_us = (run.index + 1) * run.interval_us
            return IDLE, Trip(
                ends_us, rule.cause, rule.format_reason(run.outcomes, run.amount), keep_known_sources(run.sources)
            )
        following = run.later[0] if run.later else None
        if following is not None and (streak == 0 or following.number == run.index + 1):
            number, outcomes, amount, sources = following
            sources = _merge_sources(run.sources, sources) if streak else sources
            run = Run(run.interval_us, number, outcomes, amount, streak, run.later[1:], sources)
        elif streak:
            run = Run(run.interval_us, run.index + 1, 0, 0, streak, run.later, run.sources)
        else:
            return IDLE, None  # an empty interval ends the streak, and all later ones are empty
    return run, None


def count_outcomes(
    windows: Windows, plan: BreakerPlan, judged_us: int, at_us: int, reported: Outcomes, source: str
) -> Windows:
    """Count outcomes in their interval, unless it ended before `judged_us` and was evaluated already."""
    total = reported.succeeded + reported.failed
    is_slow = plan.latency is not None and reported.latency_us > plan.latency.mean_us * total
    failed, slow = (source,) if reported.failed else (), (source,) if is_slow else ()
    errors = _count(windows.errors, plan.error_rate, judged_us, WeighedOutcomes(at_us, total, reported.failed, failed))
    latency = _count(windows.latency, plan.latency, judged_us, WeighedOutcomes(at_us, total, reported.latency_us, slow))
    if errors is windows.errors and latency is windows.latency:
        return windows
    return Windows(errors, latency, windows.quota_events)


def _count(run: Run, rule: ErrorRatePlan | LatencyPlan | None, judged_us: int, weighed: WeighedOutcomes) -> Run:
    if rule is None:
        return IDLE
    index = weighed.at_us // rule.interval_us
    if index < judged_us // rule.interval_us:
        return run
    if run is IDLE:
        return Run(rule.interval_us, index, weighed.outcomes, weighed.amount, 0, (), weighed.sources)
    if index == run.index:
        total, amount = run.outcomes + weighed.outcomes, run.amount + weighed.amount
        return Run(
            run.interval_us, index, total, amount, run.streak, run.later, _merge_sources(run.sources, weighed.sources)
        )
    # An interval before the run's own is possible only without a streak: otherwise it has been evaluated.
    cells = {cell.number: cell for cell in (Cell(run.index, run.outcomes, run.amount, run.sources), *run.later)}
    there = cells.get(index, Cell(index, 0, 0))
    total, amount = there.outcomes + weighed.outcomes, there.amount + weighed.amount
    cells[index] = Cell(index, total, amount, _merge_sources(there.sources, weighed.sources))
    (number, total, amount, sources), *later = sorted(cells.values())
    return Run(run.interval_us, number, total, amount, run.streak, tuple(later), sources)


def _merge_sources(sources: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the union in order, at most FAILED_MAX + 1 sources."""
    if not more or (len(more) == 1 and more[0] in sources):
        return sources
    return tuple(dict.fromkeys((*sources, *more)))[: FAILED_MAX + 1]


def keep_known_sources(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the failed sources; empty unless all of them are known."""
    found = tuple(sources)
    return () if "" in found or len(found) > FAILED_MAX else found


def count_quota_event(windows: Windows, plan: BreakerPlan, now_us: int, source: str) -> tuple[Windows, Trip | None]:
    """Count one denial by quota. If the rule counts controllers, each counts once within the span."""
    rule = plan.quota
    if rule is None:
        return windows, None
    within = windows.quota_events.select_after(now_us - rule.within_us)
    if not rule.by_controller or not within.has_source(source):
        within = within.add(QuotaEvent(now_us, source))
        if len(within) >= rule.count:
            failed = keep_known_sources(dict.fromkeys(event.source for event in within))
            return EMPTY, Trip(now_us, rule.cause, rule.format_reason(), failed)
    if within is windows.quota_events:
        return windows, None
    return Windows(windows.errors, windows.latency, within), None
