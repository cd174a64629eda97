"""Loop over the breakers of variants: reports Pods to them, and evicts what should be of another variant."""

import asyncio
from collections.abc import Callable

from webhook.controller.shares.rebalancing import Rebalancing
from webhook.controller.shares.reports import VariantReports, VariantTiming
from webhook.controller.shares.variant_breakers import VariantBreakerViews
from webhook.controller.shares.variant_evictions import EvictionAttempts, VariantEvictions
from webhook.controller.shares.variant_outcomes import VariantOutcomes
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.compiled_policy import CompiledPolicy
from webhook.ports import Clock, CounterStore, PodEvictions


class VariantLoop:
    """Created for each term of leadership. It does nothing under a policy without shares."""

    def __init__(
        self,
        pods: VariantPods,
        store: CounterStore,
        evictions: PodEvictions,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        reports: VariantReports,
        timing: VariantTiming = VariantTiming(),  # noqa: B008  frozen
    ) -> None:
        self._pods = pods
        self._reports = reports
        self._timing = timing
        self._breakers = VariantBreakerViews(store, policy)
        self._outcomes = VariantOutcomes(pods, store, clock, reports)
        self._attempts = EvictionAttempts(evictions, clock, reports, timing)
        self._evictions = VariantEvictions(pods, self._attempts, timing)
        self._rebalancing = Rebalancing(pods, self._attempts, clock, timing)

    async def run(self) -> None:
        """Act each second until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._timing.round_seconds)
                await self.round()
        finally:
            self._reports.on_counted({}, {})  # the next leader counts itself

    async def round(self) -> None:
        """Compare the Pods with the breakers once."""
        for breaker in self._breakers.list_current():
            await self._outcomes.report(breaker)
            await self._evictions.evict(breaker)
            await self._rebalancing.move(breaker)
        self._outcomes.sweep()
        self._attempts.sweep()
        self._reports.on_counted(*self._pods.count())
