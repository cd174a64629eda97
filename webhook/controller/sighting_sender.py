"""Sender of sightings: batches of Pod states for each service, retried until the store answers."""

import asyncio
from collections.abc import Mapping, Sequence

from webhook.controller.pending_sightings import PendingSighting
from webhook.controller.pod_lifecycle import PodTracker
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.retry_schedule import RetrySchedule
from webhook.core.quota import CounterPlan, Seen
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger

_BATCH_MAX = 64
_CONCURRENT_SERVICES_MAX = 8


class SightingSender:
    """Sends one batch for a service at a time, so that the states of its Pods arrive in order."""

    def __init__(
        self,
        tracker: PodTracker,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        timing: ControllerTiming,
    ) -> None:
        self._tracker = tracker
        self._pending = tracker.pending
        self._ledger = ledger
        self._clock = clock
        self._reports = reports
        self._retries = RetrySchedule(timing)
        self.unknown: set[str] = set()
        """Pods that only their label assigns to a service, and that the store has not charged: they are ignored."""

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._pending.added.clear()
            self._tracker.enqueue_ended()
            if not await self.send():
                await self._retries.wait(self._pending.added)  # or for a grace period to have passed

    async def send(self) -> bool:
        """Send one batch for each service that is due; False if there is none."""
        due = [service for service in self._pending.services if self._retries.is_due(service)]
        gate = asyncio.Semaphore(_CONCURRENT_SERVICES_MAX)
        await asyncio.gather(*(self._send_batch(service, gate) for service in due))
        return bool(due)

    async def _send_batch(self, service: str, gate: asyncio.Semaphore) -> None:
        compiled = self._tracker.compiled
        plan = compiled.plans.get(service) if compiled is not None else None
        if plan is None:
            self._pending.drop(service)
            return
        async with gate:
            batch = self._pending.take(service, _BATCH_MAX)
            now_us = self._clock.now_us()
            sightings = [item.found.build_sighting(uid, plan, now_us) for uid, item in batch.items()]
            try:
                seen = await self._ledger.observe(plan, sightings)
            except StoreUnavailableError:
                self._retries.postpone(service)
                self._pending.requeue(service)
                return
            except BaseException:  # such as a cancellation: the batch must not be lost
                self._pending.requeue(service)
                raise
        self._retries.reset(service)
        self._pending.acknowledge(service)
        self._take_answers(plan, batch, seen)

    def _take_answers(self, plan: CounterPlan, batch: Mapping[str, PendingSighting], answers: Sequence[Seen]) -> None:
        for (uid, item), seen in zip(batch.items(), answers, strict=True):
            if seen.charged and not plan.counts_nothing:
                self._reports.on_charged_afterwards(plan.service)
            if seen.raised:
                self._reports.on_raised(plan.service)
            if not seen.ignored or not item.found.is_live(self._clock.now_us()):
                self.unknown.discard(uid)
            elif uid not in self.unknown:
                self.unknown.add(uid)
                if item.found.is_labelled:
                    self._reports.on_label_ignored()
