"""Helpers of the `local_breakers` tests that other tests use, too."""

from typing import Any

from webhook.core.breaker import BreakerView
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError

AWAY = "unreachable: refused"


class StoreLink:
    """One replica's link to a shared store."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._last: BreakerView | None = None
        self.is_cut = False

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> Any:
            if self.is_cut:
                raise StoreUnavailableError(AWAY)
            return await getattr(self._store, name)(*args)

        return call

    def now_us(self) -> int:
        return int(self._store.now_us())

    def find_known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return None if self.is_cut else self._store.find_known_breaker(plan)

    def find_last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        if not self.is_cut:
            self._last = self._store.find_last_breaker(plan)
        return self._last
