"""Release loop of the leader: keeps the queues equal to the gated Pods, and releases due Pods at a limited rate.

The gates in the cluster are the truth. The index in the store bounds and orders the queues; it is rebuilt from them.
A Pod is charged under its uid before its gate is removed. If a leader ends in between, the next one finds the Pod,
refunds the charge, which may be old, and charges it again in its turn. If the Pod is gone, the charge is refunded.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from webhook.controller.release.actions import ReleaseActions, Released
from webhook.controller.release.charging import RecentCharges, ReleaseStore
from webhook.controller.release.failures import ReleaseFailures
from webhook.controller.release.gated_groups import GatedGroup, GroupFacts
from webhook.controller.release.gated_pods import GatedPod, GatedPods
from webhook.controller.release.group_release import GroupRelease
from webhook.controller.release.index_repair import IndexRepair
from webhook.controller.release.observed_gates import ObservedGates
from webhook.controller.release.pod_deletions import PodDeletions
from webhook.controller.release.queue_reader import QueueReader
from webhook.controller.release.rate_limit import ReleaseRateLimit
from webhook.controller.release.releaser import PodReleaser
from webhook.controller.release.removal import GateRemoval, RemovalReports
from webhook.controller.release.store_troubles import StoreTroubles
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan, QueuePlan
from webhook.core.reporting.queue_document import QueueDepth
from webhook.ports import Clock, GateClient, QueueIndex

_ROUND_SECONDS = 0.1
"""How often changes of the watch are applied."""
_ROUND_SECONDS_MIN = 0.01
"""Pods that are due before the next round are released at their moment, but not one by one."""
_RETRY_SECONDS = 1.0
_LOSS_US = 10_000_000
"""How long nothing is released after a loss: servers notice it, and submit the charges of their last minute again."""
_BOOKINGS_PER_CALL_MAX = 64


@dataclass(frozen=True, slots=True)
class ReleaseReports:
    """Callbacks for each Pod that leaves a queue, with how long it waited, in seconds."""

    on_released: Callable[[GatedPod, float, float], None]
    """Also with the time from the moment at which it was due, in seconds."""
    on_expired: Callable[[GatedPod, QueuePlan, float], None]
    """With the rules of its queue, by which the Pod was deleted or is kept."""
    on_waiting: Callable[[Mapping[str, int]], None]
    """Number of waiting Pods by service."""
    on_depths: Callable[[Sequence[QueueDepth]], None]
    """Depth, oldest age and failing Pods of each queue, once a second."""
    on_trouble: Callable[[str], None]
    """The store gave no answer, or lost charges: no Pod is released for now."""


class ReleaseLoop:
    """Created for each term of leadership; `pods` observes the watch."""

    def __init__(  # noqa: PLR0913  the ports that it connects
        self,
        pods: GatedPods,
        store: ReleaseStore,
        index: QueueIndex,
        gates: GateClient,
        policy: Callable[[], CompiledPolicy | None],
        reports: ReleaseReports,
        wanted: Callable[[], Collection[str]] = tuple,
        *,
        rate: int,
        clock: Clock,
        groups: GroupFacts = GroupFacts(),  # noqa: B008  frozen
    ) -> None:
        """`wanted` returns the uids of Pods that an operator releases past every limit.

        `clock` is this process's: no step of the store's clock delays a retry, or lets Pods expire.
        """
        self._pods = pods
        self._store = store
        self._index = index
        self._policy = policy
        self._reports = reports
        self._wanted = wanted
        self._compiled: CompiledPolicy | None = None
        self._queued: tuple[CounterPlan, ...] = ()
        """Plans of the services that queue."""
        self._empty: dict[str, int] = {}
        """Their services, each with 0: the counts while no Pod waits."""
        self._releaser = PodReleaser(store, ReleaseActions(self._release, self._keep, self._delete), clock)
        self._time = self._releaser.time
        self._troubles = StoreTroubles(reports.on_trouble)
        self.groups = GroupRelease(self._releaser, store, groups, self._troubles)
        removal = RemovalReports(
            *(self._on_released, self._releaser.retry, self.groups.keep_share, self.groups.put, reports.on_trouble)
        )
        failures, self._gates = ReleaseFailures(), ObservedGates(gates, clock.now_us)
        self._limit, self._recent = ReleaseRateLimit(rate), RecentCharges()
        self._removal = GateRemoval(store, index, self._gates, failures, self._limit, removal, clock)
        shown = self._removal.is_charged, self.groups, lambda: self._unqueued
        self.queue = QueueReader(self._releaser, store, policy, failures, *shown)
        self._retried_us = 0
        releases = self._limit, self._removal
        self._deletions = PodDeletions(self._gates, index, *releases, clock.now_us, self._report_expired)
        self._repair = IndexRepair(index, self._releaser.pods, self._time, self._is_leaving, self._troubles)
        self._unqueued: Mapping[str, GatedPod] = {}
        """Pods that are in no queue yet, since the store gave no answer about them."""

    def on_lost(self) -> None:
        """Release nothing for a while, and restore what this process knows: the store may have lost charges."""
        self._releaser.held_until_us = self._time.now_us() + _LOSS_US
        self._recent.owe_all()
        self._repair.hasten()
        self._reports.on_trouble(f"the store may have lost charges: nothing is released for {_LOSS_US / 1e6:g} s")

    async def run(self) -> None:
        """Release until cancelled."""
        try:
            while True:
                due_us = await self.round()
                seconds = (due_us - self._time.now_us()) / 1_000_000 if due_us is not None else _ROUND_SECONDS
                await asyncio.sleep(min(max(seconds, _ROUND_SECONDS_MIN), _ROUND_SECONDS))
        finally:
            self._removal.attempts.cancel()
            self._deletions.cancel()
            self._gates.cancel()
            self._reports.on_waiting({})
            self._reports.on_depths(())

    async def round(self) -> int | None:
        """Apply what the watch shows, and release what is due; return when the next Pod may be due."""
        in_force = self._policy()
        # Until all Pods are listed under a policy, they may have services and costs of the former one.
        is_listed = in_force is not None and self._pods.are_counted_by(in_force)
        if in_force is not None and in_force is not self._compiled and is_listed:
            self._begin(in_force)
        if in_force is None or (compiled := self._compiled) is None:
            return None
        now_us = self._time.now_us()
        self._troubles.begin_round()
        await self._rebook(now_us)
        if self._gates.take_recovery():
            self._removal.return_unanswered()
            self._retried_us = 0
        self._removal.backoff.return_to_queue()
        await self._take_changes(compiled)
        for plan, pod in await self.groups.update(compiled.plans) if is_listed else ():
            self._removal.attempts.start(plan, pod)
        self._removal.groups.go_on_all()
        await self._removal.update_index()
        await self._repair.repair(self._queued, now_us)
        if now_us - self._retried_us >= _RETRY_SECONDS * 1_000_000:
            # No event announces that live Pods end, grants begin or breakers close.
            self._retried_us = now_us
            self._releaser.retry()
            self.groups.review_all()
            await self._removal.retry(now_us)
            for service in self._removal.slow_services if is_listed else ():
                await self._releaser.try_one(service)
            self._reports.on_depths(self.queue.list_depths())
        for uid in self._wanted() if is_listed else ():
            if uid in self._releaser:
                with self._troubles.pass_over():
                    await self._releaser.release(uid)
        self._removal.attempts.ping()
        self._deletions.ping()
        room = min(self._limit.compute_room(now_us), self._removal.attempts.room)
        due_us = await self._releaser.step(room, self._removal.held_services) if is_listed else None
        self._report_waiting()
        return due_us

    def _begin(self, compiled: CompiledPolicy) -> None:
        self._compiled = compiled
        self._queued = tuple(plan for plan in compiled.plans.values() if plan.queue is not None)
        self._empty = dict.fromkeys((plan.service for plan in self._queued), 0)
        self._repair.hasten()
        self._releaser.begin(compiled.plans)
        self.groups.review_all()

    def _report_waiting(self) -> None:
        """Report all waiting Pods, also those that are not in a queue yet."""
        counts = Counter(self.queue.count_pods())
        new = self._pods.select_new(self._releaser.__contains__).items()
        counts.update(pod.waiting.service for uid, pod in new if uid not in self._unqueued)
        self._reports.on_waiting(self._empty | counts)

    async def _rebook(self, now_us: int) -> None:
        self._recent.sweep(now_us)
        for plan, bookings in self._recent.list_owed().values():
            with self._troubles.pass_over():
                for first in range(0, len(bookings), _BOOKINGS_PER_CALL_MAX):
                    some = bookings[first : first + _BOOKINGS_PER_CALL_MAX]
                    await self._store.book(plan, some)
                    self._recent.settle(some)

    async def _take_changes(self, compiled: CompiledPolicy) -> None:
        new, left = self._pods.take_changes()
        await self._forget(left, compiled)
        await self._put_all(new, compiled)
        untaken = self._unqueued.keys() | {pod.waiting.uid for pod in new}
        found = self._pods.select_new(self._releaser.__contains__) if untaken else {}
        self._unqueued = {uid: pod for uid, pod in found.items() if uid in untaken}

    async def _forget(self, left: Iterable[str], compiled: CompiledPolicy) -> None:
        """Remove Pods that were deleted, or whose gates were removed."""
        by_service: dict[str, list[str]] = {}
        for uid in left:
            self._removal.remove(uid)
            self._deletions.note_gone(uid)
            if (service := self.groups.remove(uid)) is not None:
                by_service.setdefault(service, []).append(uid)
        for service, uids in by_service.items():
            if (plan := compiled.plans.get(service)) is not None:
                with self._troubles.pass_over():
                    await self._index.forget(plan, uids)

    async def _put_all(self, new: Iterable[GatedPod], compiled: CompiledPolicy) -> None:
        """Let Pods wait, or as they are now. About those that are known the store need not be asked."""
        by_service: dict[str, list[GatedPod]] = {}
        for pod in new:
            if self._is_leaving(pod.waiting.uid):
                self._removal.update_pod(pod)
            elif (known := self._releaser.pods.get(pod.waiting.uid)) is not None:
                self._put(pod, known.waiting.since_us)
            else:
                by_service.setdefault(pod.waiting.service, []).append(pod)
        for service, pods in by_service.items():
            plan = compiled.plans.get(service)
            with self._troubles.pass_over():
                since_us = await self._repair.find_since_us(plan, pods) if plan is not None else {}
                for pod in pods:
                    self._put(pod, since_us.get(pod.waiting.uid, pod.waiting.since_us))
            self._pods.put_back(pod for pod in pods if pod.waiting.uid not in self._releaser)

    def _put(self, pod: GatedPod, since_us: int) -> None:
        self.groups.put(replace(pod, waiting=replace(pod.waiting, since_us=since_us)))

    async def _release(self, whole: Released) -> None:
        pods = self.groups.take(whole)
        plan = self._find_plan(pods[0])
        if isinstance(whole, GatedGroup) and plan is not None:
            self._removal.groups.start(plan, pods)
            return
        for pod in pods:
            self._removal.attempts.start(plan, pod)

    def _on_released(self, pod: GatedPod) -> None:
        self._pods.note_released(pod.waiting.uid)
        now_us = self._time.now_us()
        latency_seconds = max(0, now_us - (pod.due_us or now_us)) / 1_000_000
        self._reports.on_released(pod, self._compute_waited_seconds(pod), latency_seconds)
        if (plan := self._find_plan(pod)) is not None:
            booking = pod.build_booking(self._store.now_us())
            self._recent.add(plan, booking, now_us, is_owed=now_us < self._releaser.held_until_us)

    def _is_leaving(self, uid: str) -> bool:
        """Return whether a Pod is in no queue, since it is being released or deleted, or was set aside after that."""
        return uid in self._removal or uid in self._deletions

    def _keep(self, pod: GatedPod) -> None:
        if (plan := self._find_plan(pod)) is not None:
            self._report_expired(plan, pod)

    async def _delete(self, pod: GatedPod) -> bool:
        plan = self._find_plan(pod)
        if plan is None or not self._deletions.has_room(pod.namespace):
            return False
        self.groups.remove(pod.waiting.uid)
        self._deletions.start(plan, pod)
        return True

    def _report_expired(self, plan: CounterPlan, pod: GatedPod) -> None:
        if plan.queue is not None:
            self._reports.on_expired(pod, plan.queue, self._compute_waited_seconds(pod))

    def _find_plan(self, pod: GatedPod) -> CounterPlan | None:
        return self._compiled.plans.get(pod.waiting.service) if self._compiled is not None else None

    def _compute_waited_seconds(self, pod: GatedPod) -> float:
        return max(0, self._time.now_us() - pod.waiting.since_us) / 1_000_000
