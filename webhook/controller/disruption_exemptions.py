"""Disruption exemptions: controllers that lost Pods to evictions or node failures cause no quota events."""

import asyncio
from collections.abc import Callable

from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.retry_schedule import RetrySchedule
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import OwnedPod
from webhook.core.pods.start_outcome import find_disruption_us, find_replacing_source
from webhook.errors import StoreUnavailableError
from webhook.ports import BreakerLedger, Clock

RENEWAL_US = 300_000_000
"""A source that keeps losing Pods is exempted again after this time, before the exemption in the store expires."""

SOURCES_MAX = 10_000
"""Remembered sources. Beyond this number all are forgotten, and may be exempted twice."""


class DisruptionExemptions:
    """A `PodObserver`."""

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
        self._services: frozenset[str] = frozenset()
        """Services whose breakers count quota events."""
        self._suppressed_us: dict[tuple[str, str], int] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        self._added = asyncio.Event()
        self._retries = RetrySchedule(timing)

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        plans = compiled.plans.values() if compiled is not None else ()
        self._services = frozenset(plan.service for plan in plans if plan.breaker and plan.breaker.quota)

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        lost_us = find_disruption_us(pod)
        if lost_us is not None:  # a disruption without a time counts as long past
            self._note_disruption(pod, found, lost_us)

    def on_list_complete(self) -> None:
        """Do nothing: each Pod of a list is judged by itself."""

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        lost_us = find_disruption_us(pod)
        if lost_us is not None:
            self._note_disruption(pod, found, lost_us or self._clock.now_us())

    def on_deleted(self, uid: str) -> None:
        """Do nothing: a disrupted Pod has its condition before it is deleted."""

    def _note_disruption(self, pod: Pod, found: OwnedPod | None, lost_us: int) -> None:
        source, now_us = find_replacing_source(pod), self._clock.now_us()
        if source is None or found is None or found.service not in self._services or now_us - lost_us >= RENEWAL_US:
            return
        key = found.service, source
        if now_us - self._suppressed_us.get(key, -RENEWAL_US) < RENEWAL_US:
            return
        if len(self._suppressed_us) >= SOURCES_MAX:
            self._suppressed_us.clear()
        self._suppressed_us[key] = now_us
        self._waiting.setdefault(found.service, {})[source] = None
        self._added.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._added.clear()
            if not await self.send():
                await self._retries.wait(self._added)

    async def send(self) -> bool:
        """Send the exemptions of each service that is due; False if there are none."""
        due = [service for service in self._waiting if self._retries.is_due(service)]
        await asyncio.gather(*(self._send_service(service) for service in due))
        return bool(due)

    async def _send_service(self, service: str) -> None:
        compiled, sources = self._policy(), self._waiting.pop(service)
        plan = compiled.plans.get(service) if compiled is not None else None
        if plan is None:
            return
        try:
            await self._ledger.suppress_quota_events(plan, tuple(sources))
        except StoreUnavailableError:
            self._retries.postpone(service)
            self._waiting[service] = sources | self._waiting.get(service, {})
            return
        self._retries.reset(service)
        self._reports.on_quota_events_suppressed(service, len(sources))
