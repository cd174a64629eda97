"""Tells the store what the watch showed: in batches, services side by side, again while it gives no answer."""

import asyncio
from collections.abc import Mapping, Sequence

from webhook.controller.backoff import Pauses
from webhook.controller.pending_sightings import PendingSighting
from webhook.controller.pod_tracker import PodTracker
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.core.quota import CounterPlan, Seen
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger

_BATCH = 64
_SERVICES_AT_ONCE = 8


class SightingSender:
    """One batch of a service travels at a time, so that its Pods' states arrive in their order."""

    def __init__(
        self,
        following: PodTracker,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        pace: ControllerTiming,
    ) -> None:
        self._following = following
        self._untold = following.untold
        self._ledger = ledger
        self._clock = clock
        self._reports = reports
        self._pauses = Pauses(pace)
        self.strangers: set[str] = set()
        """Pods that the store does not know, and whose owner is not sure: nobody's, as it turns out."""

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            self._untold.noted.clear()
            self._following.pass_time()
            if not await self.tell():
                await self._pauses.rest(self._untold.noted)  # or for time alone to have ended Pods

    async def tell(self) -> bool:
        """Tell one batch of each service that is not paused; False where there is none."""
        due = [service for service in self._untold.services if self._pauses.is_over(service)]
        gate = asyncio.Semaphore(_SERVICES_AT_ONCE)
        await asyncio.gather(*(self._tell(service, gate) for service in due))
        return bool(due)

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
                self._pauses.begin(service)
                self._untold.failed(service)
                return
            except BaseException:  # cancelled, say: what travels is not lost with it
                self._untold.failed(service)
                raise
        self._pauses.end(service)
        self._untold.told(service)
        self._take(plan, batch, seen)

    def _take(self, plan: CounterPlan, batch: Mapping[str, PendingSighting], answers: Sequence[Seen]) -> None:
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
