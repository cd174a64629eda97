"""What is done to a breaker from outside: by hand, and by who lost Pods."""

from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.breaker.advance import advance
from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.record import ALONE, EVERYBODY, BreakerEnvironment, BreakerStep, Excuse, Record
from webhook.core.breaker.states import State, TransitionCause
from webhook.core.breaker.transitions import move
from webhook.core.breaker.triggers import EMPTY, QuotaEvent, Windows

EXCUSED_US = 600_000_000
"""For so long after its loss a source may ask for replacements."""

EXCUSED_MAX = 64

FORCED_BY = {State.FORCED_OPEN: TransitionCause.FORCED_OPEN, State.FORCED_CLOSED: TransitionCause.FORCED_CLOSED}


def apply_override(
    record: Record,
    plan: BreakerPlan,
    now_us: int,
    asked_us: int = 0,
    around: BreakerEnvironment = ALONE,
    offset_us: int = 0,
) -> BreakerStep:
    """Bring a record where the plan's forcing wants it, or out of one that is no more; reset it once for a moment.

    `asked_us` is by another clock, which `offset_us` was added to for `now_us`, and may be ahead of it.
    """
    record, transitions = advance(record, plan, now_us, around)
    forcing = plan.forcing
    if forcing is not None and now_us < forcing.until_us:
        if record.state is not forcing.state:
            step = move(record, FORCED_BY[forcing.state], now_us, forcing.reason, forcing.until_us)
        else:
            step = BreakerStep(replace(record, open_until_us=forcing.until_us, reason=forcing.reason))
    elif record.state.is_forced:
        step = move(record, TransitionCause.RELEASED, now_us, "released by hand")
    else:
        step = BreakerStep(record)
    record, transitions = step.record, transitions + step.transitions
    reset_us = min(asked_us + offset_us, now_us)
    if asked_us <= record.asked_us or reset_us <= record.since_us or record.state.is_forced:
        return BreakerStep(record, transitions)
    record = replace(record, windows=EMPTY, reset_us=reset_us, asked_us=asked_us)
    if record.state is State.CLOSED:
        return BreakerStep(record, transitions)
    step = move(record, TransitionCause.RESET, now_us, "reset by hand")
    return BreakerStep(step.record, transitions + step.transitions)


def suppress_quota_events(record: Record, sources: Sequence[str], now_us: int) -> Record:
    """Hear nothing of quota from these for a while, and forget what they caused just now."""
    until_us = now_us + EXCUSED_US
    asked = dict.fromkeys(sources)
    others = [one for one in record.excused if one.until_us > now_us and one.source not in asked]
    excused = (*others, *(Excuse(source, until_us) for source in asked))
    if len(excused) > EXCUSED_MAX:
        excused = (Excuse(EVERYBODY, until_us),)
    windows = record.windows
    events: tuple[QuotaEvent, ...] = tuple(event for event in windows.quota_events if event.source not in asked)
    if len(events) != len(windows.quota_events):
        windows = Windows(windows.errors, windows.latency, events)
    return replace(record, excused=excused, windows=windows)
