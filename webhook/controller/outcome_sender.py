"""Tells breakers how Pods started: in batches, services side by side, again while the store gives no answer."""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from webhook.controller.backoff import Pauses
from webhook.controller.reports import OVERFLOW, ControllerReports, ControllerTiming
from webhook.core.breaker.outcome import Settlement, Start
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.pods.start_outcome import StartResult
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import BreakerLedger, Clock

MOST = 10_000
"""Beyond it the oldest outcome is dropped: it would not be heard any more."""

_BATCH = 64
_SERVICES_AT_ONCE = 8


class _Item(NamedTuple):
    result: StartResult
    latency_us: int
    at_us: int
    is_tried: bool = False


class StartOutcomeSender:
    """One batch of a service travels at a time. An outcome stays until the store has answered for it."""

    def __init__(
        self,
        ledger: BreakerLedger,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        reports: ControllerReports,
        pace: ControllerTiming,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._policy = policy
        self._reports = reports
        self._waiting: dict[str, dict[str, _Item]] = {}
        self._count = 0
        self._noted = asyncio.Event()
        self._pauses = Pauses(pace)

    def note(self, service: str, uid: str, result: StartResult, latency_us: int) -> None:
        """Have the breaker told how a Pod started, as is known now."""
        items = self._waiting.setdefault(service, {})
        self._count += uid not in items
        items[uid] = _Item(result, latency_us, self._clock.now_us())
        if self._count > MOST:
            longest = max(self._waiting, key=lambda name: len(self._waiting[name]))
            self._remove(longest, next(iter(self._waiting[longest])))
            self._reports.on_start_dropped(longest, OVERFLOW)
        self._noted.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            self._noted.clear()
            if not await self.tell():
                await self._pauses.rest(self._noted)

    async def tell(self) -> bool:
        """Tell one batch of each service that is not paused; False where there is none."""
        due = [service for service in self._waiting if self._pauses.is_over(service)]
        gate = asyncio.Semaphore(_SERVICES_AT_ONCE)
        await asyncio.gather(*(self._tell(service, gate) for service in due))
        return bool(due)

    async def _tell(self, service: str, gate: asyncio.Semaphore) -> None:
        compiled = self._policy()
        plan = compiled.plans.get(service) if compiled is not None else None
        if plan is None or plan.breaker is None:
            self._count -= len(self._waiting.pop(service))
            return
        async with gate:
            items = self._waiting.get(service, {})
            batch = dict(islice(items.items(), _BATCH))
            now_us = self._clock.now_us()
            starts = [
                Start(uid, item.result is StartResult.OK, item.latency_us, max(0, now_us - item.at_us))
                for uid, item in batch.items()
            ]
            # Whatever comes of it: once it has set out, the store may know of it.
            items.update({uid: item._replace(is_tried=True) for uid, item in batch.items() if uid in items})
            try:
                settlements, transitions = await self._ledger.started(plan, starts)
            except StoreUnavailableError:
                self._pauses.begin(service)
                return
        self._pauses.end(service)
        for (uid, item), settlement in zip(batch.items(), settlements, strict=True):
            self._remove(service, uid)
            self._settled(plan, item, settlement)
        for transition in transitions:
            self._reports.on_transition(transition)

    def _settled(self, plan: CounterPlan, item: _Item, settlement: Settlement) -> None:
        # One that was told before, and whose answer was lost, has been heard as far as anybody knows.
        if settlement is Settlement.COUNTED or (settlement is Settlement.REPEATED and item.is_tried):
            self._reports.on_started(plan.service, item.result)
        else:
            self._reports.on_start_dropped(plan.service, settlement)

    def _remove(self, service: str, uid: str) -> None:
        items = self._waiting.get(service, {})
        self._count -= items.pop(uid, None) is not None
        if not items:
            self._waiting.pop(service, None)
