"""Repair of the live Pods of pools: compares those in the store with those of all members in the cluster."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from webhook.controller.pod_lifecycle import PodTracker
from webhook.controller.repair_schedule import RepairSchedule
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.watched_live_pods import WatchedLivePods
from webhook.core.pods.ownership import OwnedPod
from webhook.core.quota import CounterPlan, PoolPod
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger


class LimitedPool(Struct, frozen=True):
    """A pool with limits on live Pods, and the plans of its members by service."""

    name: str
    plans: dict[str, CounterPlan] = {}

    @property
    def plan(self) -> CounterPlan:
        """The plan of any member: all have the same counters."""
        return next(iter(self.plans.values()))


class PoolRepair:
    """Checks each pool with limits on live Pods, independently of the others.

    A Pod that the store lacks, or counts for another service or without a limit or guarantee of today, is sent again.
    So is one that counts by other amounts than the watch shows, if the next repair finds it as well.
    """

    def __init__(
        self,
        tracker: PodTracker,
        watched: WatchedLivePods,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        timing: ControllerTiming,
    ) -> None:
        self._tracker = tracker
        self._watched = watched
        self._ledger = ledger
        self._reports = reports
        self._schedule = RepairSchedule(watched, clock, timing)
        self._drift: dict[str, int] = {}

    async def round(self, listed: int) -> None:
        """Repair each pool that is due; `listed` is the turn after the newest complete list."""
        pools = self.list_pools()
        names = {pool.name for pool in pools}
        self._schedule.keep(names)
        self._drift = {name: count for name, count in self._drift.items() if name in names}
        await self.repair(pool for pool in pools if self._schedule.is_due(pool.name, listed, pool.plans))
        self._reports.on_pool_drift(dict(self._drift))

    def list_pools(self) -> Sequence[LimitedPool]:
        """Return the pools with limits on live Pods, with those members that count there."""
        found: dict[str, LimitedPool] = {}
        for plan in self._tracker.compiled.plans.values() if self._tracker.compiled is not None else ():
            if plan.limited_pool is not None:
                name = plan.limited_pool.name
                found.setdefault(name, LimitedPool(name)).plans[plan.service] = plan
        return list(found.values())

    async def repair(self, pools: Iterable[LimitedPool]) -> None:
        """Repair these pools, after a complete list. A surplus is corrected if the next repair finds it as well."""
        for pool in pools:
            listed, is_reached = self._tracker.listed_turn, True
            try:
                await self._repair_pool(pool)
            except StoreUnavailableError:  # already reported
                is_reached = False
            self._schedule.record(pool.name, listed, is_reached=is_reached)

    async def _repair_pool(self, pool: LimitedPool) -> None:
        of_members = self._watched.list_live(pool.plans)  # before the store's, which then has all of them
        held = await self._list_held(pool.plan)
        sent = self._send_missing(pool, held, of_members)
        differing, absent = self._find_differing(pool, held), self._find_absent(pool, held)
        confirmed = self._schedule.confirm(pool.name, {*differing, *absent})
        for uid in confirmed.intersection(differing):
            self._tracker.enqueue(uid, differing[uid])
            sent += 1
        surplus = [held[uid] for uid in confirmed & absent]
        if surplus:
            await self._ledger.drop_pool_pods(pool.plan, surplus)
        self._drift[pool.name] = sent + len(surplus)
        if not sent or await self._watched.wait_until_sent(pool.plans):
            await self._ledger.mark_pool_complete(pool.plan)

    async def _list_held(self, plan: CounterPlan) -> dict[str, PoolPod]:
        pods, after = await self._ledger.list_pool_live(plan)
        found = {pod.uid: pod for pod in pods}
        while after:
            pods, after = await self._ledger.list_pool_live(plan, after)
            found |= {pod.uid: pod for pod in pods}
        return found

    def _send_missing(
        self, pool: LimitedPool, held: Mapping[str, PoolPod], of_members: Mapping[str, Mapping[str, OwnedPod]]
    ) -> int:
        """Enqueue the Pods that the store does not count as it should; return their number."""
        underway, count = self._watched.list_underway(pool.plans), 0
        for service, pods in of_members.items():
            for uid, pod in pods.items():
                is_right = _counts_rightly(held.get(uid), pool.plans[service], pod)
                if not is_right and uid not in underway and self._watched.is_live(uid, (service,)):
                    self._tracker.enqueue(uid, pod)
                    count += 1
        return count

    def _find_differing(self, pool: LimitedPool, held: Mapping[str, PoolPod]) -> dict[str, OwnedPod]:
        """Return the Pods whose amounts in the store are not those of the watch."""
        underway, found = self._watched.list_underway(pool.plans), {}
        for uid, of_pool in held.items():
            pod, plan = self._watched.find(uid, (of_pool.service,)), pool.plans.get(of_pool.service)
            if pod is None or plan is None or plan.pool_standing is None or uid in underway:
                continue
            if self._watched.differs(uid, pod, of_pool.amounts, plan.pool_standing):
                found[uid] = pod
        return found

    def _find_absent(self, pool: LimitedPool, held: Mapping[str, PoolPod]) -> set[str]:
        """Return the Pods that only the store has."""
        underway = self._watched.list_underway(pool.plans)
        absent = [uid for uid in held if uid not in underway and not self._watched.is_live(uid, pool.plans)]
        return {uid for uid in absent if self._watched.is_gone(uid, held[uid].service)}


def _counts_rightly(held: PoolPod | None, plan: CounterPlan, pod: OwnedPod) -> bool:
    """Return whether the store counts a Pod for its service, in every limit of the pool and guarantee of today.

    Its amounts are compared apart: those of a resize are in the store before the watch shows them.
    """
    if held is None or held.service != plan.service or plan.pool_standing is None:
        return False
    return held.amounts.keys() == plan.pool_standing.select_amounts(pod.standing_cost).keys()
