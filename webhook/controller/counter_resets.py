"""Resets counters by hand: does what overrides ask for, each once."""

import asyncio
from collections.abc import Callable, Iterable

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides import WindowReset
from webhook.errors import StoreUnavailableError
from webhook.ports import PodLedger


class CounterResets:
    """Asked again each second; the store itself remembers what it has done, whoever asks."""

    def __init__(
        self,
        ledger: PodLedger,
        policy: Callable[[], CompiledPolicy | None],
        asked: Callable[[], Iterable[WindowReset]],
        *,
        round_seconds: float = 1.0,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._asked = asked
        self._round_seconds = round_seconds
        self._done: set[WindowReset] = set()

    async def run(self) -> None:
        """Do what is asked until cancelled."""
        while True:
            await asyncio.sleep(self._round_seconds)
            asked = set(self._asked())
            self._done &= asked
            for reset in asked - self._done:
                await self._reset(reset)

    async def _reset(self, reset: WindowReset) -> None:
        service, at_us, seconds = reset
        compiled = self._policy()
        plan = compiled.plans.get(service) if compiled is not None else None
        if plan is not None:
            try:
                await self._ledger.reset(plan, at_us, seconds)
            except StoreUnavailableError:
                return  # it has been told; the next round asks again
            self._done.add(reset)
