"""Tells breakers at once who has lost Pods to the cluster: what asks for replacements causes no quota events."""

import asyncio
from collections.abc import Callable

from webhook.controller.backoff import Pauses
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.disruption import disrupted_us, replacing
from webhook.core.pods.ownership import Owned
from webhook.errors import StoreUnavailableError
from webhook.ports import BreakerLedger, Clock

AGAIN_US = 300_000_000
"""A source that goes on losing Pods is excused again after so long: before the store forgets."""

MOST = 10_000
"""Sources that are remembered. Beyond it all are forgotten, and excused once more than they need be."""


class DisruptionExemptions:
    """An `PodObserver`."""

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
        self._listens: frozenset[str] = frozenset()
        """Services whose breakers hear of quota events."""
        self._excused: dict[tuple[str, str], int] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        self._noted = asyncio.Event()
        self._pauses = Pauses(pace)

    def begin(self, compiled: CompiledPolicy | None) -> None:
        plans = compiled.plans.values() if compiled is not None else ()
        self._listens = frozenset(plan.service for plan in plans if plan.breaker and plan.breaker.quota)

    def listed(self, pod: Pod, found: Owned | None) -> None:
        lost_us = disrupted_us(pod)
        if lost_us is not None:  # where it does not say when, that is taken for long ago
            self._lost(pod, found, lost_us)

    def changed(self, pod: Pod, found: Owned | None) -> None:
        lost_us = disrupted_us(pod)
        if lost_us is not None:
            self._lost(pod, found, lost_us or self._clock.now_us())

    def gone(self, uid: str) -> None:
        """Do nothing: who is taken away is marked before."""

    def _lost(self, pod: Pod, found: Owned | None, lost_us: int) -> None:
        source, now_us = replacing(pod), self._clock.now_us()
        if source is None or found is None or found.service not in self._listens or now_us - lost_us >= AGAIN_US:
            return
        key = found.service, source
        if now_us - self._excused.get(key, -AGAIN_US) < AGAIN_US:
            return
        if len(self._excused) >= MOST:
            self._excused.clear()
        self._excused[key] = now_us
        self._waiting.setdefault(found.service, {})[source] = None
        self._noted.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            self._noted.clear()
            if not await self.tell():
                await self._pauses.rest(self._noted)

    async def tell(self) -> bool:
        """Tell of each service that is not paused; False where there is nothing to tell."""
        due = [service for service in self._waiting if self._pauses.is_over(service)]
        await asyncio.gather(*(self._tell(service) for service in due))
        return bool(due)

    async def _tell(self, service: str) -> None:
        compiled, sources = self._policy(), self._waiting.pop(service)
        plan = compiled.plans.get(service) if compiled is not None else None
        if plan is None:
            return
        try:
            await self._ledger.excuse(plan, tuple(sources))
        except StoreUnavailableError:
            self._pauses.begin(service)
            self._waiting[service] = sources | self._waiting.get(service, {})
            return
        self._pauses.end(service)
        self._reports.on_excused(service, len(sources))
