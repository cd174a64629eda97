"""Counter resets: applies the resets that overrides request, each once."""

import asyncio
from collections.abc import Callable, Iterable

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides import WindowReset
from webhook.errors import StoreUnavailableError
from webhook.ports import PodLedger


class CounterResets:
    """Sends each requested reset until the store answers; the store ignores one that it has applied."""

    def __init__(
        self,
        ledger: PodLedger,
        policy: Callable[[], CompiledPolicy | None],
        requested: Callable[[], Iterable[WindowReset]],
        *,
        round_seconds: float = 1.0,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._requested = requested
        self._round_seconds = round_seconds
        self._done: set[WindowReset] = set()

    async def run(self) -> None:
        """Apply requested resets until cancelled."""
        while True:
            await asyncio.sleep(self._round_seconds)
            requested = set(self._requested())
            self._done &= requested
            for reset in requested - self._done:
                await self._reset(reset)

    async def _reset(self, reset: WindowReset) -> None:
        service, at_us, seconds = reset
        compiled = self._policy()
        plan = compiled.plans.get(service) if compiled is not None else None
        if plan is not None:
            try:
                await self._ledger.reset(plan, at_us, seconds)
            except StoreUnavailableError:
                return  # already reported; the next round retries
            self._done.add(reset)
