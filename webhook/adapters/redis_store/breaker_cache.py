"""BreakerCache: the newest state of each breaker that Redis has written, from answers and announcements in any order.

A transition that is due but not written is not in it: Redis may write another one, because of breakerGuard.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.operations import ScriptOperation
from webhook.core.breaker import BreakerView, Transition, is_newer_view
from webhook.core.quota import CounterPlan

Key = tuple[str, str]


class BreakerCache:
    """By the key of a plan. Times are the store's.

    It also keeps transitions that no caller has received: they are reported with the next tick.
    """

    def __init__(self) -> None:
        self._known: dict[Key, tuple[BreakerView, int]] = {}
        self._guarded: frozenset[Key] = frozenset()
        """The breakers that breakerGuard counts."""
        self._open_max = 0
        self.open: set[Key] = set()
        """The breakers whose known state is OPEN or HALF_OPEN. Each review looks here first; usually it is empty."""
        self._lost: set[Key] = set()
        """Breakers whose newest state Redis has lost."""
        self._unreported: list[Transition] = []

    def get(self, key: Key) -> BreakerView | None:
        known = self._known.get(key)
        return None if known is None else known[0]

    def on_announced(self, key: Key, view: BreakerView, at_us: int) -> None:
        """Cache a published state, unless a newer one is known."""
        known = self._known.get(key)
        if known is None or (not _is_behind(view, known[0]) and not _is_older(view, at_us, *known)):
            self._known[key] = view, at_us
            (self.open.add if view.state.is_tripped else self.open.discard)(key)

    def learn_answer(self, key: Key, view: BreakerView, at_us: int) -> None:
        """Cache a state that Redis has written. If it is older than the known state, Redis has lost that."""
        known = self._known.get(key)
        if known is not None and (view is known[0] or view == known[0]):  # true of most answers
            if self._lost:
                self._lost.discard(key)
            if view is not known[0] or at_us > known[1]:
                self._known[key] = view, max(at_us, known[1])  # the same object: callers compare it by identity
            return
        if known is not None and _is_behind(view, known[0]):
            self._lost.add(key)
            return
        self._lost.discard(key)
        self.on_announced(key, view, at_us)

    def find_lost(self, key: Key) -> BreakerView | None:
        """Return the state of a breaker that Redis has lost; None if it has lost nothing."""
        return self.get(key) if key in self._lost else None

    def count_open(self) -> int:
        """Return how many breakers that breakerGuard counts are open."""
        return len(self.open & self._guarded)

    def count_room(self) -> int:
        """Return how many more breakers breakerGuard allows to open; 0 also without a guard."""
        return max(0, self._open_max - self.count_open())

    def mark_open(self, key: Key) -> None:
        """Count a breaker as open, before its caller learns its state from the same answer."""
        self.open.add(key)

    def is_counted(self, key: Key) -> bool:
        """Return whether a breaker is open and breakerGuard counts it."""
        return key in self.open and key in self._guarded

    def add_unreported(self, transitions: Iterable[Transition]) -> None:
        """Keep transitions until `take_unreported`."""
        self._unreported += transitions

    def add_late(self, operation: ScriptOperation, result: Sequence[Any]) -> None:
        """Keep the transitions in a result that came after its caller's deadline."""
        self.add_unreported(codec.decode_transitions(operation.planned.plan, codec.find_moves(operation.name, result)))

    def take_unreported(self) -> Sequence[Transition]:
        """Return the transitions that no caller has received, once."""
        unreported, self._unreported = self._unreported, []
        return unreported

    def keep(self, plans: Sequence[CounterPlan]) -> None:
        """Forget breakers that no plan has: a breaker that is defined again later starts fresh."""
        named = {plan.key for plan in plans if plan.breaker is not None}
        self._known = {key: known for key, known in self._known.items() if key in named}
        self._lost &= named
        self.open &= named
        limits = {
            plan.key: plan.breaker.open_max
            for plan in plans
            if plan.breaker is not None and plan.breaker.open_max is not None
        }
        self._guarded, self._open_max = frozenset(limits), min(limits.values(), default=0)


def _is_behind(view: BreakerView, known: BreakerView) -> bool:
    """Return whether `view` is older. A forced state that only a plan had ends without a new generation."""
    if view.generation == known.generation and known.state.is_forced:
        return False
    return is_newer_view(known, view)


def _is_older(view: BreakerView, at_us: int, known: BreakerView, known_at_us: int) -> bool:
    return view.generation == known.generation and at_us < known_at_us
