"""Loop over the breakers of variants: reports Pods to them, and evicts what should be of another variant."""

import asyncio
from collections.abc import Callable, Collection

from webhook.controller.shares.rebalancing import Rebalancing, is_settled
from webhook.controller.shares.reports import VariantReports, VariantTiming
from webhook.controller.shares.variant_breakers import VariantBreakerViews
from webhook.controller.shares.variant_evictions import EvictionAttempts, VariantEvictions
from webhook.controller.shares.variant_outcomes import VariantOutcomes
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.compiled_policy import CompiledPolicy
from webhook.ports import Clock, CounterStore, PodEvictions, SlotOwners


class VariantLoop:
    """Created for each term of leadership. It does nothing under a policy without shares.

    `owners` is None without a cluster to read them from: holes among their slots are not filled then.
    """

    def __init__(  # noqa: PLR0913  the parts of the process that it connects
        self,
        pods: VariantPods,
        store: CounterStore,
        evictions: PodEvictions,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        reports: VariantReports,
        timing: VariantTiming = VariantTiming(),  # noqa: B008  frozen
        *,
        owners: SlotOwners | None = None,
    ) -> None:
        self._pods = pods
        self._policy = policy
        self._reports = reports
        self._timing = timing
        self._breakers = VariantBreakerViews(store, policy)
        self._outcomes = VariantOutcomes(pods, store, clock, reports)
        self._attempts = EvictionAttempts(evictions, clock, reports, timing)
        self._evictions = VariantEvictions(pods, self._attempts, timing)
        self._rebalancing = Rebalancing(pods, owners, self._attempts, clock, timing)

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
        troubled = set[str]()
        for breaker in self._breakers.list_current():
            await self._outcomes.report(breaker)
            await self._evictions.evict(breaker)
            await self._rebalancing.move(breaker)
            if not is_settled(breaker):
                troubled.add(breaker.service)
        await self._fill(troubled)
        self._outcomes.sweep()
        self._attempts.sweep()
        self._reports.on_counted(*self._pods.count())

    async def _fill(self, troubled: Collection[str]) -> None:
        """Fill holes of workloads, but not in a canary: it may divide some of them by other shares."""
        compiled = self._policy()
        if compiled is None or compiled.has_canary:
            return
        for service, shares in compiled.list_shares():
            if service not in troubled:
                await self._rebalancing.fill(service, shares)
