"""Tells the store what the watch showed: in batches, services side by side, again while it gives no answer."""

import asyncio
import random
from collections.abc import Mapping, Sequence

from webhook.controller.following import Following
from webhook.controller.reports import ControllerPace, ControllerReports
from webhook.controller.untold import Item
from webhook.core.quota import CounterPlan, Seen
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger

_BATCH = 64
_SERVICES_AT_ONCE = 8


class Telling:
    """One batch of a service travels at a time, so that its Pods' states arrive in their order."""

    def __init__(
        self,
        following: Following,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        pace: ControllerPace,
    ) -> None:
        self._following = following
        self._untold = following.untold
        self._ledger = ledger
        self._clock = clock
        self._reports = reports
        self._pace = pace
        self._pauses: dict[str, tuple[float, float]] = {}
        """By service that the store gave no answer for: when it is tried again, and the pause before it."""
        self.strangers: set[str] = set()
        """Pods that the store does not know, and whose owner is not sure: nobody's, as it turns out."""

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            self._untold.noted.clear()
            self._following.pass_time()
            if not await self.tell():
                await self._rest()

    async def tell(self) -> bool:
        """Tell one batch of each service that is not paused; False where there is none."""
        now = asyncio.get_running_loop().time()
        due = [service for service in self._untold.services if self._pauses.get(service, (0.0, 0.0))[0] <= now]
        gate = asyncio.Semaphore(_SERVICES_AT_ONCE)
        await asyncio.gather(*(self._tell(service, gate) for service in due))
        return bool(due)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._pace.round_seconds):
                await self._untold.noted.wait()
        except TimeoutError:
            pass  # time alone may have ended Pods, and pauses

    async def _tell(self, service: str, gate: asyncio.Semaphore) -> None:
        compiled = self._following.compiled
        plan = compiled.plans.get(service) if compiled is not None else None
        if plan is None:
            self._untold.drop(service)
            return
        async with gate:
            batch = self._untold.take(service, _BATCH)
            now_us = self._clock.now_us()
            sightings = [item.found.sighting(uid, plan, now_us) for uid, item in batch.items()]
            try:
                seen = await self._ledger.see(plan, sightings)
            except StoreUnavailableError:
                self._pause(service)
                self._untold.failed(service)
                return
            except BaseException:  # cancelled, say: what travels is not lost with it
                self._untold.failed(service)
                raise
        self._pauses.pop(service, None)
        self._untold.told(service)
        self._take(plan, batch, seen)

    def _pause(self, service: str) -> None:
        _, before = self._pauses.get(service, (0.0, 0.0))
        pause = min(max(before * 2, self._pace.first_retry_seconds), self._pace.longest_retry_seconds)
        until = asyncio.get_running_loop().time() + pause * random.uniform(0.5, 1)  # noqa: S311  it guards nothing
        self._pauses[service] = until, pause

    def _take(self, plan: CounterPlan, batch: Mapping[str, Item], answers: Sequence[Seen]) -> None:
        for (uid, item), seen in zip(batch.items(), answers, strict=True):
            if seen.charged:
                self._reports.on_charged_afterwards(plan.service)
            if seen.raised:
                self._reports.on_raised(plan.service)
            if not seen.ignored or not item.found.lives(self._clock.now_us()):
                self.strangers.discard(uid)
            elif uid not in self.strangers:
                self.strangers.add(uid)
                if item.found.is_labelled:
                    self._reports.on_label_ignored()
