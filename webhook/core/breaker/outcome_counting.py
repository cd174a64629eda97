"""Reports to a breaker: outcomes and quota denials, counted in its windows or settled as outcomes of probes."""

from msgspec.structs import replace

from webhook.core.breaker.advance import advance, trip_breaker
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.probes import settle
from webhook.core.breaker.record import (
    ALONE,
    EVERY_SOURCE,
    BreakerEnvironment,
    BreakerStep,
    ProbeLease,
    Record,
    find_forced_state,
)
from webhook.core.breaker.states import State
from webhook.core.breaker.transitions import prepend_transitions
from webhook.core.breaker.trip_detection import count_outcomes, count_quota_event


def record_outcomes(
    record: Record,
    plan: BreakerPlan,
    now_us: int,
    reported: Outcomes,
    source: str = "",
    environment: BreakerEnvironment = ALONE,
) -> BreakerStep:
    """Record outcomes of `source`. Ignore those of another generation, or without a probe that waits for them."""
    record, transitions = advance(record, plan, now_us, environment)
    at_us = now_us - max(0, reported.age_us)
    if not plan.has_outcomes or find_forced_state(record, plan, now_us) is not None:
        return BreakerStep(record, transitions)
    if record.state is State.CLOSED:
        if at_us < max(record.since_us, record.reset_us) or reported.generation not in {None, record.generation}:
            return BreakerStep(record, transitions)
        windows = count_outcomes(record.windows, plan, now_us - environment.late_us, at_us, reported, source)
        return BreakerStep(record if windows is record.windows else replace(record, windows=windows), transitions)
    # The first failure ends the loop: a sum may cover a million outcomes.
    for ok in (False,) * min(reported.failed, 1) + (True,) * min(reported.succeeded, plan.probes):
        lease = _find_lease(record, reported, at_us)
        if lease is None:
            break
        record, more = settle(record, plan, now_us, lease, source, ok=ok)
        transitions += more
    return BreakerStep(record, transitions)


def _find_lease(record: Record, reported: Outcomes, at_us: int) -> ProbeLease | None:
    """Return the probe of an outcome: the one with its uid; for an outcome without uid in HALF_OPEN, the oldest."""
    if reported.uid is None:
        fits = record.state is State.HALF_OPEN and reported.generation in {None, record.generation}
        return record.leases[0] if fits and record.leases and at_us >= record.since_us else None
    lease = next((lease for lease in record.leases if lease.uid == reported.uid), None)
    return lease if lease is not None and reported.generation in {None, lease.generation} else None


def record_quota_event(
    record: Record, plan: BreakerPlan, now_us: int, source: str, environment: BreakerEnvironment = ALONE
) -> BreakerStep:
    """Record that quota denied a Pod of `source`. Only CLOSED counts it: a probe denied by quota proves nothing."""
    record, transitions = advance(record, plan, now_us, environment)
    if record.state is not State.CLOSED or find_forced_state(record, plan, now_us) is not None:
        return BreakerStep(record, transitions)
    if any(excuse.source in {source, EVERY_SOURCE} and now_us < excuse.until_us for excuse in record.excused):
        return BreakerStep(record, transitions)
    windows, trip = count_quota_event(record.windows, plan, now_us, source)
    if trip is None:
        return BreakerStep(record if windows is record.windows else replace(record, windows=windows), transitions)
    return prepend_transitions(transitions, trip_breaker(record, plan, trip, environment))
