"""BreakerTicker: a loop that evaluates every breaker once per second, so that those of idle services trip as well."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from webhook.core.breaker import Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, CounterStore

LATE_US = 300_000
"""Delay after the end of an interval before it is evaluated: its outcomes have arrived by then."""

_SECOND_US = 1_000_000


class BreakerTicker:
    """Ticks `LATE_US` after each full second."""

    def __init__(
        self,
        counters: CounterStore,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        on_transition: Callable[[Transition], None],
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._policy = policy
        self._on_transition = on_transition

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            now_us = self._clock.now_us()
            await asyncio.sleep((_SECOND_US - now_us % _SECOND_US + LATE_US) / _SECOND_US)
            compiled = self._policy()
            if compiled is None:
                continue
            with suppress(StoreUnavailableError):  # reported by the store; retried in the next second
                for transition in await self._counters.tick(compiled.list_breakers()):
                    self._on_transition(transition)
