"""Conversion between a tag's time, used for counting, and the store's clock, shown to callers.

The two differ if the tag's clock was rebased.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.breaker import BreakerPlan, BreakerView, Transition
from webhook.core.ledger.tag_clock import TagClock
from webhook.core.quota import Receipt, Use, all_free_at_us


def receipt(clock: TagClock, made: Receipt) -> Receipt:
    if not clock.offset_us:
        return made
    over = uses(clock, made.over)
    return replace(
        made,
        at_us=clock.shown(made.at_us),
        over=over,
        free_at_us=all_free_at_us(over),
        breaker=view(clock, made.breaker),
        transitions=transitions(clock, made.transitions),
    )


def uses(clock: TagClock, found: Sequence[Use]) -> tuple[Use, ...]:
    if not clock.offset_us:
        return tuple(found)
    return tuple(replace(use, free_at_us=use.free_at_us and clock.shown(use.free_at_us)) for use in found)


def view(clock: TagClock, seen: BreakerView | None) -> BreakerView | None:
    if seen is None or not clock.offset_us:
        return seen
    return replace(
        seen,
        since_us=clock.shown(seen.since_us),
        open_until_us=clock.shown(seen.open_until_us),
        tripped_at_us=clock.shown(seen.tripped_at_us),
    )


def forced(clock: TagClock, plan: BreakerPlan | None) -> BreakerPlan | None:
    """Return a plan with the end of its forcing in the tag's time."""
    if plan is None or plan.forcing is None or not clock.offset_us:
        return plan
    return replace(plan, forcing=replace(plan.forcing, until_us=plan.forcing.until_us + clock.offset_us))


def counted(clock: TagClock, seen: BreakerView) -> BreakerView:
    """Return a view with its moments converted from the store's clock to the tag's time; 0 stands for none."""
    if not clock.offset_us:
        return seen
    return replace(
        seen,
        since_us=seen.since_us and seen.since_us + clock.offset_us,
        open_until_us=seen.open_until_us and seen.open_until_us + clock.offset_us,
        tripped_at_us=seen.tripped_at_us and seen.tripped_at_us + clock.offset_us,
    )


def transitions(clock: TagClock, moves: tuple[Transition, ...]) -> tuple[Transition, ...]:
    if not clock.offset_us:
        return moves
    return tuple(replace(move, at_us=clock.shown(move.at_us)) for move in moves)
