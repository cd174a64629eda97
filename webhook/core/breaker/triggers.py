"""What trips a breaker: outcomes by interval, and quota events within a trailing span."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from webhook.core.breaker.outcome import Outcomes
from webhook.core.breaker.plans import BreakerPlan, ErrorRatePlan, LatencyPlan
from webhook.core.breaker.states import TransitionCause

FAILED_MAX = 16
"""So many sources of failures are kept; where there were more, nobody can be told from them."""


class Cell(NamedTuple):
    """What was heard of one interval, and who had a part in its failures."""

    number: int
    outcomes: int
    amount: int
    sources: tuple[str, ...] = ()


class WeighedOutcomes(NamedTuple):
    """Outcomes as a rule weighs them, had at one moment; `sources` is whose they were if any failed, else nobody."""

    at_us: int
    outcomes: int
    amount: int
    sources: tuple[str, ...]


class Run(Struct, frozen=True):
    """The interval under way, number `index` of its length, and how many in a row before it crossed the threshold.

    `amount` is what the rule weighs against the number of outcomes: errors, or microseconds of latency. `later` are
    intervals that have begun while this one is still waited for. `sources` had a part in the failures of this one and
    of those in a row before it: one more than FAILED_MAX where there were too many, "" for one that nobody knows.
    """

    interval_us: int
    index: int
    outcomes: int
    amount: int
    streak: int
    later: tuple[Cell, ...] = ()
    sources: tuple[str, ...] = ()


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
NEVER_US = 1 << 62


class Trip(NamedTuple):
    """A trigger fired: when, which may be before it was noticed, why, and who had failed, if that is known of all."""

    at_us: int
    cause: TransitionCause
    reason: str
    failed: tuple[str, ...] = ()


def ends_us(windows: Windows, plan: BreakerPlan) -> int:
    """Return when the first of the intervals under way ends: before that `pass_time` changes nothing."""
    return min(_ends_us(windows.errors, plan.error_rate), _ends_us(windows.latency, plan.latency))


def _ends_us(run: Run, rule: ErrorRatePlan | LatencyPlan | None) -> int:
    if run is IDLE:
        return NEVER_US
    if rule is None or run.interval_us != rule.interval_us:
        return 0
    return (run.index + 1) * run.interval_us


def pass_time(windows: Windows, plan: BreakerPlan, judged_us: int) -> tuple[Windows, Trip | None]:
    """Let every interval boundary up to a moment pass; return the earliest trip, errorRate before latency on a tie."""
    if windows.errors is IDLE and windows.latency is IDLE:
        return windows, None
    errors, by_errors = _pass_boundaries(windows.errors, plan.error_rate, judged_us)
    latency, by_latency = _pass_boundaries(windows.latency, plan.latency, judged_us)
    trips = [trip for trip in (by_errors, by_latency) if trip is not None]
    if trips:
        return EMPTY, min(trips, key=lambda trip: trip.at_us)
    if errors is windows.errors and latency is windows.latency:
        return windows, None
    return Windows(errors, latency, windows.quota_events), None


def _pass_boundaries(run: Run, rule: ErrorRatePlan | LatencyPlan | None, judged_us: int) -> tuple[Run, Trip | None]:
    if rule is None or run.interval_us != rule.interval_us:
        return IDLE, None  # the policy has changed: intervals of another length do not add up
    while judged_us >= (run.index + 1) * run.interval_us:
        streak = run.streak + 1 if rule.crossed(run.outcomes, run.amount) else 0
        if streak >= rule.consecutive:
            ends_us = (run.index + 1) * run.interval_us
            return IDLE, Trip(ends_us, rule.cause, rule.reason(run.outcomes, run.amount), known(run.sources))
        following = run.later[0] if run.later else None
        if following is not None and (streak == 0 or following.number == run.index + 1):
            number, outcomes, amount, sources = following
            sources = _joined(run.sources, sources) if streak else sources
            run = Run(run.interval_us, number, outcomes, amount, streak, run.later[1:], sources)
        elif streak:
            run = Run(run.interval_us, run.index + 1, 0, 0, streak, run.later, run.sources)
        else:
            return IDLE, None  # an empty interval breaks the run, and all that follow are empty
    return run, None


def count_outcomes(
    windows: Windows, plan: BreakerPlan, judged_us: int, at_us: int, heard: Outcomes, source: str
) -> Windows:
    """Count outcomes in the interval that they were had in, unless it was judged: time has passed up to `judged_us`."""
    total = heard.succeeded + heard.failed
    is_slow = plan.latency is not None and heard.latency_us > plan.latency.mean_us * total
    failed, slow = (source,) if heard.failed else (), (source,) if is_slow else ()
    errors = _count(windows.errors, plan.error_rate, judged_us, WeighedOutcomes(at_us, total, heard.failed, failed))
    latency = _count(windows.latency, plan.latency, judged_us, WeighedOutcomes(at_us, total, heard.latency_us, slow))
    if errors is windows.errors and latency is windows.latency:
        return windows
    return Windows(errors, latency, windows.quota_events)


def _count(run: Run, rule: ErrorRatePlan | LatencyPlan | None, judged_us: int, told: WeighedOutcomes) -> Run:
    if rule is None:
        return IDLE
    index = told.at_us // rule.interval_us
    if index < judged_us // rule.interval_us:
        return run
    if run is IDLE:
        return Run(rule.interval_us, index, told.outcomes, told.amount, 0, (), told.sources)
    if index == run.index:
        total, amount = run.outcomes + told.outcomes, run.amount + told.amount
        return Run(run.interval_us, index, total, amount, run.streak, run.later, _joined(run.sources, told.sources))
    # One before the run's own comes only where nothing is in a row before it: else it would have been judged.
    cells = {cell.number: cell for cell in (Cell(run.index, run.outcomes, run.amount, run.sources), *run.later)}
    there = cells.get(index, Cell(index, 0, 0))
    total, amount = there.outcomes + told.outcomes, there.amount + told.amount
    cells[index] = Cell(index, total, amount, _joined(there.sources, told.sources))
    (number, total, amount, sources), *later = sorted(cells.values())
    return Run(run.interval_us, number, total, amount, run.streak, tuple(later), sources)


def _joined(sources: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return both, each once, up to one more than are kept."""
    if not more or (len(more) == 1 and more[0] in sources):
        return sources
    return tuple(dict.fromkeys((*sources, *more)))[: FAILED_MAX + 1]


def known(sources: Iterable[str]) -> tuple[str, ...]:
    """Return who had failed, nobody where it is not known of all."""
    found = tuple(sources)
    return () if "" in found or len(found) > FAILED_MAX else found


def count_quota_event(windows: Windows, plan: BreakerPlan, now_us: int, source: str) -> tuple[Windows, Trip | None]:
    """Count one denial by quota; by controller, one that was heard within the span is not heard again."""
    rule = plan.quota
    if rule is None:
        return windows, None
    within = tuple(event for event in windows.quota_events if event.at_us > now_us - rule.within_us)
    if not rule.by_controller or all(event.source != source for event in within):
        within = (*within, QuotaEvent(now_us, source))
        if len(within) >= rule.count:
            return EMPTY, Trip(
                now_us, rule.cause, rule.reason(), known(dict.fromkeys(event.source for event in within))
            )
    return Windows(windows.errors, windows.latency, within), None
