"""Moments by the store's clock: where a tag's clock was rebased, what is shown is not what was counted at."""

from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota import Receipt, Use, all_free_at_us
from webhook.core.tag_clock import TagClock


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
    return replace(seen, since_us=clock.shown(seen.since_us), open_until_us=clock.shown(seen.open_until_us))


def transitions(clock: TagClock, moves: tuple[Transition, ...]) -> tuple[Transition, ...]:
    if not clock.offset_us:
        return moves
    return tuple(replace(move, at_us=clock.shown(move.at_us)) for move in moves)
