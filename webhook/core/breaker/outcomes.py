"""Recording of outcomes and of quota denials."""

from msgspec.structs import replace

from webhook.core.breaker.advance import advance, tripped
from webhook.core.breaker.outcome import Outcomes
from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.probes import settle
from webhook.core.breaker.record import ALONE, EVERYBODY, BreakerEnvironment, BreakerStep, ProbeLease, Record, forced
from webhook.core.breaker.states import State
from webhook.core.breaker.transitions import then
from webhook.core.breaker.triggers import count_outcomes, count_quota_event


def record_outcomes(
    record: Record,
    plan: BreakerPlan,
    now_us: int,
    heard: Outcomes,
    source: str = "",
    around: BreakerEnvironment = ALONE,
) -> BreakerStep:
    """Record outcomes of `source`. Ignore those of another generation, or without a probe that waits for them."""
    record, transitions = advance(record, plan, now_us, around)
    at_us = now_us - max(0, heard.age_us)
    if not plan.has_outcomes or forced(record, plan, now_us) is not None:
        return BreakerStep(record, transitions)
    if record.state is State.CLOSED:
        if at_us < max(record.since_us, record.reset_us) or heard.generation not in {None, record.generation}:
            return BreakerStep(record, transitions)
        windows = count_outcomes(record.windows, plan, now_us - around.late_us, at_us, heard, source)
        return BreakerStep(record if windows is record.windows else replace(record, windows=windows), transitions)
    # The first failure ends the loop: a sum may be of a million outcomes.
    for ok in (False,) * min(heard.failed, 1) + (True,) * min(heard.succeeded, plan.probes):
        lease = _lease(record, heard, at_us)
        if lease is None:
            break
        record, more = settle(record, plan, now_us, lease, source, ok=ok)
        transitions += more
    return BreakerStep(record, transitions)


def _lease(record: Record, heard: Outcomes, at_us: int) -> ProbeLease | None:
    """Return the probe of an outcome: the one with its uid; for an outcome without uid in HALF_OPEN, the oldest."""
    if heard.uid is None:
        fits = record.state is State.HALF_OPEN and heard.generation in {None, record.generation}
        return record.leases[0] if fits and record.leases and at_us >= record.since_us else None
    lease = next((lease for lease in record.leases if lease.uid == heard.uid), None)
    return lease if lease is not None and heard.generation in {None, lease.generation} else None


def quota_event(
    record: Record, plan: BreakerPlan, now_us: int, source: str, around: BreakerEnvironment = ALONE
) -> BreakerStep:
    """Record that quota denied a Pod of `source`. Only CLOSED counts it: a probe denied by quota proves nothing."""
    record, transitions = advance(record, plan, now_us, around)
    if record.state is not State.CLOSED or forced(record, plan, now_us) is not None:
        return BreakerStep(record, transitions)
    if any(excuse.source in {source, EVERYBODY} and now_us < excuse.until_us for excuse in record.excused):
        return BreakerStep(record, transitions)
    windows, trip = count_quota_event(record.windows, plan, now_us, source)
    if trip is None:
        return BreakerStep(replace(record, windows=windows), transitions)
    return then(transitions, tripped(record, plan, trip, around))
