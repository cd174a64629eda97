"""Effects of time, and the opening of a breaker once a trigger has fired, which `trip_detection` decides.

Results do not depend on how often a record is advanced: each boundary that has passed takes effect at its own time.
"""

from msgspec.structs import replace

from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.record import (
    ALONE,
    BreakerEnvironment,
    BreakerStep,
    Record,
    build_view,
    find_forced_state,
    list_live_leases,
)
from webhook.core.breaker.states import EXPIRED, HELD, BreakerView, State, Transition, TransitionCause
from webhook.core.breaker.transitions import move, prepend_transitions
from webhook.core.breaker.trip_detection import EMPTY, Trip, find_end_us, pass_time


def advance(record: Record, plan: BreakerPlan, now_us: int, environment: BreakerEnvironment = ALONE) -> BreakerStep:
    """Apply what time alone causes: a trip at the end of an interval, HALF_OPEN after `openFor`, expired probes."""
    if now_us < find_rest_end_us(record, plan, environment):
        return BreakerStep(record)
    if record.state.is_forced and record.open_until_us <= now_us:
        return _move_by_time(record, TransitionCause.RELEASED, "until has passed")
    if find_forced_state(record, plan, now_us) is not None:
        return BreakerStep(record)  # frozen
    step = BreakerStep(record)
    if record.state is State.CLOSED:
        windows, trip = pass_time(record.windows, plan, now_us - environment.late_us)
        if trip is not None:
            step = trip_breaker(record, plan, trip, environment)
        else:
            step = BreakerStep(replace(record, windows=windows))
    if step.record.state is State.OPEN and step.record.open_until_us <= now_us:
        step = prepend_transitions(step.transitions, _expire_leases(step.record, step.record.open_until_us))
        step = prepend_transitions(
            step.transitions, _move_by_time(step.record, TransitionCause.OPEN_FOR_PASSED, "openFor passed")
        )
    return prepend_transitions(step.transitions, _expire_leases(step.record, now_us))


def find_rest_end_us(record: Record, plan: BreakerPlan, environment: BreakerEnvironment = ALONE) -> int:
    """Return the moment before which time alone changes nothing; 0 if that is unknown. Fast path of most Pods."""
    if record.state is State.CLOSED:
        return find_end_us(record.windows, plan) + environment.late_us
    return record.open_until_us if record.state is State.OPEN and not record.leases else 0


def _move_by_time(record: Record, cause: TransitionCause, reason: str) -> BreakerStep:
    """Make a transition that every replica makes at the same moment. It does not count as a decision."""
    moved, transitions = move(record, cause, record.open_until_us, reason)
    return BreakerStep(replace(moved, passed=record.passed + 1, alone=record.alone), transitions)


def _expire_leases(record: Record, now_us: int) -> BreakerStep:
    """Drop the leases of probes whose time has passed."""
    live = list_live_leases(record, now_us)
    if len(live) == len(record.leases):
        return BreakerStep(record)
    gone = [lease for lease in record.leases if lease.expires_us <= now_us]
    expirations = tuple(
        Transition(
            record.service,
            record.state,
            record.state,
            lease.expires_us,
            EXPIRED,
            record.generation,
            TransitionCause.PROBE_EXPIRED,
        )
        for lease in gone
    )
    return BreakerStep(replace(record, leases=live), expirations)


def trip_breaker(record: Record, plan: BreakerPlan, trip: Trip, environment: BreakerEnvironment) -> BreakerStep:
    """Open the breaker, unless breakerGuard's limit is reached: then only report the trip."""
    if plan.open_max is not None and environment.opened() >= plan.open_max:
        reason = HELD + trip.reason
        suppressed = Transition(
            record.service, record.state, record.state, trip.at_us, reason, record.generation, trip.cause
        )
        return BreakerStep(replace(record, windows=EMPTY), (suppressed,))
    noted = replace(record, tripped_at_us=trip.at_us, tripped_by=trip.reason)
    return move(noted, trip.cause, trip.at_us, trip.reason, trip.at_us + plan.open_for_us, trip.failed)


def view(record: Record, plan: BreakerPlan, now_us: int, environment: BreakerEnvironment = ALONE) -> BreakerView:
    """Return what callers see at `now_us`. The stored record need not be advanced that far."""
    return build_view(advance(record, plan, now_us, environment).record, plan, now_us)


def restart(record: Record) -> Record:
    """Return the record of a breaker that the policy removed: CLOSED and empty, should the policy restore it."""
    fresh = Record(record.service, generation=record.generation, passed=record.passed, alone=record.alone)
    return record if record == fresh else Record(record.service, generation=record.generation + 1)
