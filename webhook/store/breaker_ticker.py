"""Lets the intervals of idle services' breakers pass, so that trips happen and are told where nobody asks."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from webhook.core.breaker import Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, CounterStore

LATE_US = 300_000
"""An interval is judged so long after its end: what belongs to it has arrived by then."""

_SECOND_US = 1_000_000


class BreakerTicker:
    """Each second, a little late."""

    def __init__(
        self,
        counters: CounterStore,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        told: Callable[[Transition], None],
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._policy = policy
        self._told = told

    async def run(self) -> None:
        """Do so until cancelled."""
        while True:
            now_us = self._clock.now_us()
            await asyncio.sleep((_SECOND_US - now_us % _SECOND_US + LATE_US) / _SECOND_US)
            compiled = self._policy()
            if compiled is None:
                continue
            with suppress(StoreUnavailableError):  # it has been told; the next second asks again
                for transition in await self._counters.tick(tuple(compiled.plans.values())):
                    self._told(transition)
