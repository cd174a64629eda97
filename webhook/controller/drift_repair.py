"""Drift repair: compares the live Pods in the store with those in the cluster, and corrects the store."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from webhook.controller.pod_lifecycle import PodTracker
from webhook.controller.pool_repair import PoolRepair
from webhook.controller.repair_schedule import RepairSchedule
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.controller.watched_live_pods import WatchedLivePods
from webhook.core.pods.ownership import NOT_LIVE_US, OwnedPod
from webhook.core.quota import Cost, CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger


class DriftRepair:
    """Checks each service with limits on live Pods, independently of the others."""

    def __init__(
        self,
        tracker: PodTracker,
        sighting_sender: SightingSender,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        timing: ControllerTiming,
    ) -> None:
        self._tracker = tracker
        self._watched = WatchedLivePods(tracker, sighting_sender, clock, timing)
        self._pools = PoolRepair(tracker, self._watched, ledger, clock, reports, timing)
        self._ledger = ledger
        self._clock = clock
        self._reports = reports
        self._timing = timing
        self._schedule = RepairSchedule(self._watched, clock, timing)

    async def run(self) -> None:
        """Repair each service once a list has been sent to the store, and then periodically, until cancelled."""
        while True:
            await asyncio.sleep(self._timing.round_seconds)
            self._reports.on_watched(len(self._tracker.index))
            await self.round()

    async def round(self) -> None:
        """Repair each service and each pool that is due."""
        if self._tracker.listed_turn is None:
            return
        plans = self.list_plans()
        services = {plan.service for plan in plans}
        self._schedule.keep(services)
        listed = self._tracker.listed_turn
        await self._repair([plan for plan in plans if self._schedule.is_due(plan.service, listed, (plan.service,))])
        if self._tracker.listed_turn is not None:
            await self._pools.round(self._tracker.listed_turn)

    async def repair_all(self) -> None:
        """Repair all services and pools, after a complete list. A surplus is corrected if it is found twice."""
        await self._repair(self.list_plans())
        await self._pools.repair(self._pools.list_pools())

    def list_plans(self) -> Sequence[CounterPlan]:
        """Return the services with limits of their own on live Pods."""
        compiled = self._tracker.compiled
        return [] if compiled is None else [plan for plan in compiled.plans.values() if plan.standing is not None]

    async def _repair(self, plans: Sequence[CounterPlan]) -> None:
        """Repair these services, after a complete list. A surplus is corrected if the next repair finds it as well."""
        listed = self._tracker.listed_turn
        live = self._watched.list_live({plan.service for plan in plans}) if plans else {}
        for plan in plans:
            is_reached = True
            try:
                await self._repair_service(plan, live[plan.service])
            except StoreUnavailableError:  # already reported
                is_reached = False
            self._schedule.record(plan.service, listed, is_reached=is_reached)

    async def _repair_service(self, plan: CounterPlan, live: Mapping[str, OwnedPod]) -> None:
        held: list[tuple[str, str]] = []
        differing: set[str] = set()
        for scope in await self._ledger.list_scopes(plan):
            async for pods in self._read_pages(plan, scope):
                held += ((uid, scope) for uid in pods)
                differing.update(self._find_differing(plan, scope, pods))
        standing = await self._take_moved(plan, live, held)
        drift = self._compare(plan, live, standing, differing)
        self._reports.on_drift(plan.service, drift)
        if not drift or await self._watched.wait_until_sent((plan.service,)):
            await self._ledger.mark_complete(plan, sorted({plan.scope_of(pod) for pod in live.values()}))

    async def _take_moved(
        self, plan: CounterPlan, live: Mapping[str, OwnedPod], held: Sequence[tuple[str, str]]
    ) -> dict[str, str]:
        """Take Pods from a scope that is not theirs; return the scope of all others.

        Their Namespace has another team now, or the scope was a team of that name before namespaces counted apart.
        """
        moved = [(uid, scope) for uid, scope in held if uid in live and scope != plan.scope_of(live[uid])]
        now_us = self._clock.now_us()
        gone = [_make_deleted_pod(plan.service, scope).build_sighting(uid, plan, now_us) for uid, scope in moved]
        if gone:
            await self._ledger.observe(plan, gone)
        return dict(set(held).difference(moved))

    async def _read_pages(self, plan: CounterPlan, scope: str) -> AsyncIterator[Mapping[str, Cost]]:
        pods, after = await self._ledger.list_live(plan, scope)
        yield pods
        while after:
            pods, after = await self._ledger.list_live(plan, scope, after)
            yield pods

    def _find_differing(self, plan: CounterPlan, scope: str, held: Mapping[str, Cost]) -> Iterator[str]:
        """Yield the Pods whose amounts in the store are not those of the watch."""
        for uid, amounts in held.items():
            pod = self._watched.find(uid, (plan.service,))
            if pod is None or plan.standing is None or plan.scope_of(pod) != scope:
                continue
            if self._watched.differs(uid, pod, amounts, plan.standing):
                yield uid

    def _compare(
        self, plan: CounterPlan, live: Mapping[str, OwnedPod], standing: Mapping[str, str], differing: AbstractSet[str]
    ) -> int:
        """Enqueue what differs; return the number of differing Pods. Pods still to be sent do not count."""
        service, of_service = plan.service, (plan.service,)
        underway = self._watched.list_underway(of_service)
        missing = [
            uid
            for uid in live
            if uid not in standing and uid not in underway and self._watched.is_live(uid, of_service)
        ]
        for uid in missing:
            self._tracker.enqueue(uid, live[uid])
        absent = {uid for uid in standing if uid not in underway and not self._watched.is_live(uid, of_service)}
        suspects = {uid for uid in absent if self._watched.is_gone(uid, service)}
        sendable = ((uid, self._watched.find(uid, of_service)) for uid in differing - underway)
        shown = {uid: pod for uid, pod in sendable if pod is not None}
        confirmed = self._schedule.confirm(service, suspects.union(shown))
        for uid in confirmed:
            self._tracker.enqueue(uid, shown.get(uid) or _make_deleted_pod(service, standing[uid]))
        return len(missing) + len(confirmed)


def _make_deleted_pod(service: str, scope: str) -> OwnedPod:
    """Return a Pod that is not live, and of which only the service and scope are known."""
    return OwnedPod(service, scope, "", {}, NOT_LIVE_US, 0, is_sure=True, is_labelled=False, team=scope)
