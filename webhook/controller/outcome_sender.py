"""Sender of Pod start outcomes: batches for each service, retried until the store answers."""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from webhook.controller.reports import OVERFLOW, ControllerReports, ControllerTiming
from webhook.controller.retry_schedule import RetrySchedule
from webhook.core.breaker.outcome_types import Settlement, Start
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.pods.start_outcome import StartResult
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import BreakerLedger, Clock

OUTCOMES_MAX = 10_000
"""Beyond this number the oldest outcome is dropped: it would be too old to count."""

_BATCH_MAX = 64
_CONCURRENT_SERVICES_MAX = 8


class _Item(NamedTuple):
    result: StartResult
    latency_us: int
    at_us: int
    is_tried: bool = False


class StartOutcomeSender:
    """Sends one batch for a service at a time. An outcome stays queued until the store has answered."""

    def __init__(
        self,
        ledger: BreakerLedger,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        reports: ControllerReports,
        timing: ControllerTiming,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._policy = policy
        self._reports = reports
        self._waiting: dict[str, dict[str, _Item]] = {}
        self._count = 0
        self._added = asyncio.Event()
        self._retries = RetrySchedule(timing)

    def enqueue(self, service: str, uid: str, result: StartResult, latency_us: int) -> None:
        """Queue the outcome of a start, as of now."""
        items = self._waiting.setdefault(service, {})
        self._count += uid not in items
        items[uid] = _Item(result, latency_us, self._clock.now_us())
        if self._count > OUTCOMES_MAX:
            longest = max(self._waiting, key=lambda name: len(self._waiting[name]))
            self._remove(longest, next(iter(self._waiting[longest])))
            self._reports.on_start_dropped(longest, OVERFLOW)
        self._added.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._added.clear()
            if not await self.send():
                await self._retries.wait(self._added)

    async def send(self) -> bool:
        """Send one batch for each service that is due; False if there is none."""
        due = [service for service in self._waiting if self._retries.is_due(service)]
        gate = asyncio.Semaphore(_CONCURRENT_SERVICES_MAX)
        await asyncio.gather(*(self._send_batch(service, gate) for service in due))
        return bool(due)

    async def _send_batch(self, service: str, gate: asyncio.Semaphore) -> None:
        compiled = self._policy()
        plan = compiled.plans.get(service) if compiled is not None else None
        if plan is None or plan.breaker is None:
            self._count -= len(self._waiting.pop(service))
            return
        async with gate:
            items = self._waiting.get(service, {})
            batch = dict(islice(items.items(), _BATCH_MAX))
            now_us = self._clock.now_us()
            starts = [
                Start(uid, item.result is StartResult.OK, item.latency_us, max(0, now_us - item.at_us))
                for uid, item in batch.items()
            ]
            # From here on the store may have received it, even if the answer is lost.
            items.update({uid: item._replace(is_tried=True) for uid, item in batch.items() if uid in items})
            try:
                settlements, transitions = await self._ledger.record_starts(plan, starts)
            except StoreUnavailableError:
                self._retries.postpone(service)
                return
        self._retries.reset(service)
        for (uid, item), settlement in zip(batch.items(), settlements, strict=True):
            self._remove(service, uid)
            self._report(plan, item, settlement)
        for transition in transitions:
            self._reports.on_transition(transition)

    def _report(self, plan: CounterPlan, item: _Item, settlement: Settlement) -> None:
        # A repetition of an outcome whose answer was lost: it was counted the first time.
        if settlement is Settlement.COUNTED or (settlement is Settlement.REPEATED and item.is_tried):
            self._reports.on_started(plan.service, item.result)
        else:
            self._reports.on_start_dropped(plan.service, settlement)

    def _remove(self, service: str, uid: str) -> None:
        items = self._waiting.get(service, {})
        self._count -= items.pop(uid, None) is not None
        if not items:
            self._waiting.pop(service, None)
