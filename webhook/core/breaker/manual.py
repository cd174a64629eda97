"""Manual overrides and resets of a breaker, and suppression of quota events after disruptions."""

from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.breaker.advance import advance
from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.record import ALONE, EVERY_SOURCE, BreakerEnvironment, BreakerStep, Excuse, Record
from webhook.core.breaker.states import State, TransitionCause
from webhook.core.breaker.transitions import move
from webhook.core.breaker.trip_detection import EMPTY, Windows

EXCUSED_US = 600_000_000
"""Duration for which a source's quota events are suppressed after it lost Pods: it creates replacements."""

EXCUSED_MAX = 64

FORCED_BY = {State.FORCED_OPEN: TransitionCause.FORCED_OPEN, State.FORCED_CLOSED: TransitionCause.FORCED_CLOSED}


def apply_override(
    record: Record,
    plan: BreakerPlan,
    now_us: int,
    asked_us: int = 0,
    environment: BreakerEnvironment = ALONE,
    offset_us: int = 0,
) -> BreakerStep:
    """Enter the state that the plan forces, or leave a forced state that has ended; then reset, once for each request.

    `asked_us` is the time of the reset request by another clock, which may be ahead of `now_us`. `now_us` includes
    `offset_us`; `asked_us` does not.
    """
    record, transitions = advance(record, plan, now_us, environment)
    forcing = plan.forcing
    if forcing is not None and now_us < forcing.until_us:
        if record.state is not forcing.state:
            step = move(record, FORCED_BY[forcing.state], now_us, forcing.reason, forcing.until_us)
        else:
            step = BreakerStep(replace(record, open_until_us=forcing.until_us, reason=forcing.reason))
    elif record.state.is_forced:
        step = move(record, TransitionCause.RELEASED, now_us, "released manually")
    else:
        step = BreakerStep(record)
    record, transitions = step.record, transitions + step.transitions
    reset_us = min(asked_us + offset_us, now_us)
    if asked_us <= record.asked_us or reset_us <= record.since_us or record.state.is_forced:
        return BreakerStep(record, transitions)
    record = replace(record, windows=EMPTY, reset_us=reset_us, asked_us=asked_us)
    if record.state is State.CLOSED:
        return BreakerStep(record, transitions)
    step = move(record, TransitionCause.RESET, now_us, "reset manually")
    return BreakerStep(step.record, transitions + step.transitions)


def suppress_quota_events(record: Record, sources: Sequence[str], now_us: int) -> Record:
    """Ignore quota events of these sources for `EXCUSED_US`, and discard those already counted."""
    until_us = now_us + EXCUSED_US
    asked = dict.fromkeys(sources)
    others = [excuse for excuse in record.excused if excuse.until_us > now_us and excuse.source not in asked]
    excused = (*others, *(Excuse(source, until_us) for source in asked))
    if len(excused) > EXCUSED_MAX:
        excused = (Excuse(EVERY_SOURCE, until_us),)
    windows = record.windows
    events = windows.quota_events.drop_sources(asked)
    if events is not windows.quota_events:
        windows = Windows(windows.errors, windows.latency, events)
    return replace(record, excused=excused, windows=windows)
