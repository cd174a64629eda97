"""The law of the breaker: what can move it, and where to. Nothing else changes a state."""

from enum import Enum

from webhook.core.breaker.record import BreakerStep, Record
from webhook.core.breaker.states import State, Transition


class TransitionCause(Enum):
    """What can move a breaker."""

    TRIPPED = "a trigger fires"
    OPEN_FOR_PASSED = "openFor has passed"
    PROBES_SUCCEEDED = "enough probes succeed"
    PROBE_FAILED = "a probe fails"
    FORCED_OPEN = "forced open by hand"
    FORCED_CLOSED = "forced closed by hand"
    RELEASED = "the hand lets go, or its time has passed"
    RESET = "reset by hand"


_BY_ITSELF = (State.CLOSED, State.OPEN, State.HALF_OPEN)

TRANSITIONS = {
    (State.CLOSED, TransitionCause.TRIPPED): State.OPEN,
    (State.OPEN, TransitionCause.OPEN_FOR_PASSED): State.HALF_OPEN,
    (State.OPEN, TransitionCause.PROBES_SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, TransitionCause.PROBES_SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, TransitionCause.PROBE_FAILED): State.OPEN,
    (State.OPEN, TransitionCause.RESET): State.CLOSED,
    (State.HALF_OPEN, TransitionCause.RESET): State.CLOSED,
    **{(state, TransitionCause.FORCED_OPEN): State.FORCED_OPEN for state in (*_BY_ITSELF, State.FORCED_CLOSED)},
    **{(state, TransitionCause.FORCED_CLOSED): State.FORCED_CLOSED for state in (*_BY_ITSELF, State.FORCED_OPEN)},
    (State.FORCED_OPEN, TransitionCause.RELEASED): State.CLOSED,
    (State.FORCED_CLOSED, TransitionCause.RELEASED): State.CLOSED,
}
"""The law: what is not in here cannot happen."""


def move(
    record: Record,
    cause: TransitionCause,
    at_us: int,
    reason: str,
    open_until_us: int = 0,
    failed: tuple[str, ...] | None = None,
) -> BreakerStep:
    """Enter the state that the law prescribes, with little left of the former one but its generation.

    What is known of the last trip stays, and so do early probes that are under way when `openFor` has passed.
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
    return BreakerStep(moved, (Transition(record.service, record.state, new, at_us, reason, generation),))


def then(before: tuple[Transition, ...], step: BreakerStep) -> BreakerStep:
    """Return a step with what had happened before it."""
    return BreakerStep(step.record, before + step.transitions) if before else step
