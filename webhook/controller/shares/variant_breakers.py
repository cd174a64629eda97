"""Breakers of variants, as this process knows them: the open ones, and how long each has been closed."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from webhook.core.breaker import BreakerView, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.core.shares import SharesPlan
from webhook.ports import CounterStore

Opening = tuple[State, int]
"""What tells an opening of a breaker from any other: its generation, or the end of the override that forces it."""


class VariantBreaker(Struct, frozen=True):
    """The breaker of one variant; `view` is None for one that no answer of the store has shown."""

    service: str
    variant: str
    shares: SharesPlan
    counters: CounterPlan
    view: BreakerView | None
    now_us: int
    """The store's time."""

    @property
    def state(self) -> State:
        """Its state, also if the store has not said yet that the time of an open one has passed."""
        if self.view is None:
            return State.CLOSED
        if self.view.state.is_open and self.view.open_until_us <= self.now_us:
            return State.CLOSED if self.view.state.is_forced else State.HALF_OPEN
        return self.view.state

    @property
    def since_us(self) -> int:
        """When it entered its state, by the store's clock; 0 if it has had no other."""
        if self.view is None:
            return 0
        return self.view.since_us if self.state is self.view.state else self.view.open_until_us

    @property
    def generation(self) -> int:
        return 0 if self.view is None else self.view.generation

    @property
    def opening(self) -> Opening | None:
        """Its opening; None unless it is open."""
        if self.view is None or not self.state.is_open:
            return None
        is_forced = self.view.state.is_forced
        return self.view.state, self.view.open_until_us if is_forced else self.view.generation


class VariantBreakerViews:
    """The breakers of all variants of the policy in force, and of its candidate in a canary."""

    def __init__(self, store: CounterStore, policy: Callable[[], CompiledPolicy | None]) -> None:
        self._store = store
        self._policy = policy

    def list_current(self) -> Iterator[VariantBreaker]:
        """Yield each breaker as it is now, in a canary once for both policies. The last variant of a list has none."""
        compiled, seen = self._policy(), set[str]()
        now_us = self._store.now_us()
        for service, shares in compiled.list_shares() if compiled is not None else ():
            for variant in shares.variants:
                counters = variant.counters
                if counters is not None and counters.service not in seen:
                    seen.add(counters.service)
                    # An override is known from the policy before the store has heard of it.
                    view = self._store.find_known_breaker(counters) or self._store.find_last_breaker(counters)
                    yield VariantBreaker(service, variant.name, shares, counters, view, now_us)
