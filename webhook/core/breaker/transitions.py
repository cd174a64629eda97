"""Transition table of the breaker: all state changes that are possible."""

from webhook.core.breaker.record import BreakerStep, Record
from webhook.core.breaker.states import TRIGGERS, State, Transition, TransitionCause

_UNFORCED = (State.CLOSED, State.OPEN, State.HALF_OPEN)

TRANSITIONS = {
    **{(State.CLOSED, trigger): State.OPEN for trigger in TRIGGERS},
    (State.OPEN, TransitionCause.OPEN_FOR_PASSED): State.HALF_OPEN,
    (State.OPEN, TransitionCause.PROBES_SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, TransitionCause.PROBES_SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, TransitionCause.PROBE_FAILED): State.OPEN,
    (State.OPEN, TransitionCause.RESET): State.CLOSED,
    (State.HALF_OPEN, TransitionCause.RESET): State.CLOSED,
    **{(state, TransitionCause.FORCED_OPEN): State.FORCED_OPEN for state in (*_UNFORCED, State.FORCED_CLOSED)},
    **{(state, TransitionCause.FORCED_CLOSED): State.FORCED_CLOSED for state in (*_UNFORCED, State.FORCED_OPEN)},
    (State.FORCED_OPEN, TransitionCause.RELEASED): State.CLOSED,
    (State.FORCED_CLOSED, TransitionCause.RELEASED): State.CLOSED,
}
"""New state by old state and cause. A pair that is not here cannot happen."""


def move(
    record: Record,
    cause: TransitionCause,
    at_us: int,
    reason: str,
    open_until_us: int = 0,
    failed: tuple[str, ...] | None = None,
) -> BreakerStep:
    """Enter the state that the table gives for a cause, with empty windows.

    The newest trip is kept. Early probes that are pending when `openFor` passes are kept, too.
    """
    new, generation = TRANSITIONS[record.state, cause], record.generation + 1
    moved = Record(
        record.service,
        new,
        generation,
        at_us,
        open_until_us,
        reason,
        leases=record.leases if cause is TransitionCause.OPEN_FOR_PASSED else (),
        failed=failed if failed is not None else record.failed if new is State.HALF_OPEN else (),
        tripped_at_us=record.tripped_at_us,
        tripped_by=record.tripped_by,
        reset_us=record.reset_us,
        asked_us=record.asked_us,
        excused=record.excused,
    )
    return BreakerStep(moved, (Transition(record.service, record.state, new, at_us, reason, generation, cause),))


def prepend_transitions(before: tuple[Transition, ...], step: BreakerStep) -> BreakerStep:
    """Return a step with earlier transitions prepended."""
    return BreakerStep(step.record, before + step.transitions) if before else step
