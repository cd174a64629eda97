"""What callers see of a breaker: its state, its moves, how it stands at one moment."""

from enum import StrEnum

from msgspec import Struct


class State(StrEnum):
    """What callers see; the FORCED ones are set by hand."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"
    FORCED_OPEN = "FORCED_OPEN"
    FORCED_CLOSED = "FORCED_CLOSED"


HELD = "held back by breakerGuard: "
"""Begins the reason of a trip that did not open its breaker; the trip's own follows."""

EXPIRED = "a probe's lease expired"


class Transition(Struct, frozen=True):
    """One change of state; `at_us` is when it took place, which may be before it was noticed.

    Where the state stays, something else is told of it: a trip that was HELD back, or a probe that EXPIRED.
    """

    service: str
    old: State
    new: State
    at_us: int
    reason: str
    generation: int

    @property
    def is_change(self) -> bool:
        return self.old is not self.new


class BreakerView(Struct, frozen=True):
    """A breaker as callers see it at one moment. `open_until_us` is 0 unless OPEN, or until when it is FORCED.

    `tripped_at_us` and `tripped_by` stay until it trips again, 0 and "" where it never did. In OPEN `early` is how many
    Pods may yet probe early, of controllers that are not among `failed`.
    """

    state: State
    generation: int
    since_us: int
    open_until_us: int = 0
    reason: str = ""
    probes_leased: int = 0
    probes_succeeded: int = 0
    tripped_at_us: int = 0
    tripped_by: str = ""
    early: int = 0
    failed: tuple[str, ...] = ()
    passed: int = 0
    """How far its generation is past its newest decision: moves by time alone, and numbers of branches given up."""
    alone: int = 0
    """How far that decision is past the one that a replica forked from when it was cut off; 0 where none decided it."""

    @property
    def decided(self) -> int:
        """Return the generation of its newest move that time alone does not bring about."""
        return self.generation - self.passed

    def open_remaining_us(self, now_us: int) -> int:
        """Return the countdown: microseconds until probes are let in, or the hand lets go; 0 unless it is open."""
        return max(0, self.open_until_us - now_us) if self.state in {State.OPEN, State.FORCED_OPEN} else 0
