"""Time of a tag, used for counting, and the store's clock, shown to callers: their conversion, and a monotonic clock.

The two differ if the tag's clock was rebased.

Charges keep their moment: a rebase changes the reading of the clock, not stored times. A step forward frees at most
what its length would have freed anyway; a step back makes time stand still, for `PATIENCE_US` at most.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.breaker import BreakerPlan, BreakerView, Transition
from webhook.core.quota import Receipt, Use, find_free_at_us

BEHIND_US = 2_000_000
"""A clock that is no further behind catches up by itself."""

PATIENCE_US = 10_000_000


class TagClock(Struct):
    """Clock of a tag: it converts readings of the store's clock to the tag's time, and moments back.

    `last_us` is the newest time of a write, `behind_since_us` the first reading that was far behind it.
    """

    last_us: int = 0
    offset_us: int = 0
    behind_since_us: int | None = None

    def now(self, reading_us: int) -> int:
        return max(reading_us + self.offset_us, self.last_us)

    def observe(self, reading_us: int) -> None:
        """Take the reading of a write: detect that the clock is behind, and rebase it if that persists."""
        behind_us = self.last_us - (reading_us + self.offset_us)
        if behind_us <= BEHIND_US:
            if self.behind_since_us is not None:
                self.behind_since_us, self.last_us = None, self.now(reading_us)
        elif self.behind_since_us is None or reading_us < self.behind_since_us:
            self.behind_since_us = reading_us
        elif reading_us - self.behind_since_us >= PATIENCE_US:
            self.offset_us += behind_us
            self.behind_since_us = None

    def convert_to_store(self, at_us: int) -> int:
        """Convert a moment to the store's clock; 0 stands for none."""
        return at_us and at_us - self.offset_us


def convert_receipt(clock: TagClock, made: Receipt) -> Receipt:
    if not clock.offset_us:
        return made
    over = convert_uses(clock, made.over)
    return replace(
        made,
        at_us=clock.convert_to_store(made.at_us),
        charged_us=clock.convert_to_store(made.charged_us),
        over=over,
        free_at_us=find_free_at_us(over),
        breaker=convert_view(clock, made.breaker),
        transitions=convert_transitions(clock, made.transitions),
    )


def convert_uses(clock: TagClock, found: Sequence[Use]) -> tuple[Use, ...]:
    if not clock.offset_us:
        return tuple(found)
    return tuple(replace(use, free_at_us=use.free_at_us and clock.convert_to_store(use.free_at_us)) for use in found)


def convert_view(clock: TagClock, seen: BreakerView | None) -> BreakerView | None:
    if seen is None or not clock.offset_us:
        return seen
    return replace(
        seen,
        since_us=clock.convert_to_store(seen.since_us),
        open_until_us=clock.convert_to_store(seen.open_until_us),
        tripped_at_us=clock.convert_to_store(seen.tripped_at_us),
    )


def convert_forcing(clock: TagClock, plan: BreakerPlan | None) -> BreakerPlan | None:
    """Return a plan with the end of its forcing in the tag's time."""
    if plan is None or plan.forcing is None or not clock.offset_us:
        return plan
    return replace(plan, forcing=replace(plan.forcing, until_us=plan.forcing.until_us + clock.offset_us))


def convert_view_to_tag(clock: TagClock, seen: BreakerView) -> BreakerView:
    """Return a view with its moments converted from the store's clock to the tag's time; 0 stands for none."""
    if not clock.offset_us:
        return seen
    return replace(
        seen,
        since_us=seen.since_us and seen.since_us + clock.offset_us,
        open_until_us=seen.open_until_us and seen.open_until_us + clock.offset_us,
        tripped_at_us=seen.tripped_at_us and seen.tripped_at_us + clock.offset_us,
    )


def convert_transitions(clock: TagClock, moves: tuple[Transition, ...]) -> tuple[Transition, ...]:
    if not clock.offset_us:
        return moves
    return tuple(replace(move, at_us=clock.convert_to_store(move.at_us)) for move in moves)
