"""What is known here of breakers: the newest that Redis has written and answered or announced, in whatever order.

What an answer only shows, because it is due, is not known: Redis may yet write something else, as breakerGuard has it.
"""

from collections.abc import Sequence

from webhook.core.breaker import BreakerView, State, outranks
from webhook.core.quota import CounterPlan

_OPENED = frozenset({State.OPEN, State.HALF_OPEN})
_BY_HAND = frozenset({State.FORCED_OPEN, State.FORCED_CLOSED})

Key = tuple[str, str]


class BreakerCache:
    """By the key of a plan. Moments are the store's."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[BreakerView, int]] = {}
        self._guarded: frozenset[Key] = frozenset()
        """Those that breakerGuard counts."""
        self._open: set[Key] = set()
        self._unheard: set[Key] = set()

    def get(self, key: Key) -> BreakerView | None:
        known = self._known.get(key)
        return None if known is None else known[0]

    def announced(self, key: Key, view: BreakerView, at_us: int) -> None:
        """Take what somebody says of a breaker, unless more is known of it."""
        known = self._known.get(key)
        if known is None or (not _is_behind(view, known[0]) and not _is_older(view, at_us, *known)):
            self._known[key] = view, at_us
            (self._open.add if view.state in _OPENED else self._open.discard)(key)

    def answered(self, key: Key, view: BreakerView, at_us: int) -> None:
        """Take what Redis itself has written. Where that is less than it once knew, it is to be told."""
        known = self._known.get(key)
        if known is not None and _is_behind(view, known[0]):
            self._unheard.add(key)
            return
        self._unheard.discard(key)
        self.announced(key, view, at_us)

    def unheard(self, key: Key) -> BreakerView | None:
        """Return what Redis once knew of a breaker, and knows no more."""
        return self.get(key) if key in self._unheard else None

    def opened(self) -> int:
        """Return how many of the breakers that breakerGuard counts are open."""
        return len(self._open & self._guarded)

    def counts(self, key: Key) -> bool:
        """Whether it is one of those."""
        return key in self._open and key in self._guarded

    def keep(self, plans: Sequence[CounterPlan]) -> None:
        """Forget all others, and those of services that have no breaker any more: one that comes back begins anew."""
        named = {plan.key for plan in plans if plan.breaker is not None}
        self._known = {key: known for key, known in self._known.items() if key in named}
        self._unheard &= named
        self._open &= named
        guarded = [plan for plan in plans if plan.breaker is not None and plan.breaker.open_max is not None]
        self._guarded = frozenset(plan.key for plan in guarded)


def _is_behind(view: BreakerView, known: BreakerView) -> bool:
    """Whether a breaker has moved on since. What is by hand is let go of without a word where a plan alone said so."""
    if view.generation == known.generation and known.state in _BY_HAND:
        return False
    return outranks(known, view)


def _is_older(view: BreakerView, at_us: int, known: BreakerView, known_at_us: int) -> bool:
    return view.generation == known.generation and at_us < known_at_us
