"""Release loop of the leader: keeps the queues equal to the gated Pods in the cluster, and releases what is due.

The gates in the cluster are the truth. The index in the store bounds and orders the queues; it is rebuilt from them.
A Pod is charged under its uid before its gate is removed. If a leader ends in between, the next one finds the Pod,
refunds the charge, which may be old, and charges it again in its turn. If the Pod is gone, the charge is refunded.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from webhook.controller.release.gated_pods import GatedPods
from webhook.controller.release.queue_reader import QueueReader
from webhook.controller.release.releaser import GatedPod, PodReleaser, ReleaseActions
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy_spec import WhenExpired
from webhook.core.quota import CounterPlan
from webhook.errors import GateError, StoreUnavailableError
from webhook.ports import CounterStore, GateClient, QueueIndex

_ROUND_SECONDS = 0.1
"""How often changes of the watch are taken over: a release follows its moment by less than 250 ms."""
_AT_ONCE = 16
"""Gates that are removed concurrently; the API server does several hundred a second."""
_AGAIN_SECONDS = 1.0
_INDEX_SECONDS = 10.0
_RESERVED_US = 30_000_000
_UNSEEN_US = 60_000_000
"""A registered Pod that the watch has not shown for so long was never created."""


@dataclass(frozen=True, slots=True)
class ReleaseReports:
    """Callbacks for each Pod that leaves a queue, with its service and how long it waited, in seconds."""

    on_released: Callable[[str, float], None]
    on_expired: Callable[[str, float], None]
    on_waiting: Callable[[Mapping[str, int]], None]
    """Number of waiting Pods by service."""
    on_trouble: Callable[[str], None]
    """A Pod could not be released yet; it will be tried again."""


class ReleaseLoop:
    """Created for each term of leadership; `pods` observes the watch."""

    def __init__(
        self,
        pods: GatedPods,
        store: CounterStore,
        index: QueueIndex,
        gates: GateClient,
        policy: Callable[[], CompiledPolicy | None],
        reports: ReleaseReports,
        wanted: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`wanted` returns the uids of Pods that an operator releases past every limit."""
        self._pods = pods
        self._store = store
        self._index = index
        self._gates = gates
        self._policy = policy
        self._reports = reports
        self._wanted = wanted
        self._compiled: CompiledPolicy | None = None
        self._queued: tuple[CounterPlan, ...] = ()
        """Plans of the services that queue."""
        self._releaser = PodReleaser(store, ReleaseActions(self._release, self._expire))
        self.queue = QueueReader(self._releaser, store, policy)
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._releasing: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, tuple[GatedPod, int]] = {}
        """Charged Pods whose gates could not be removed, and when. Until they are, no further Pod is charged."""
        self._retried_us = self._indexed_us = 0

    async def run(self) -> None:
        """Release until cancelled."""
        try:
            while True:
                await self.round()
                await asyncio.sleep(_ROUND_SECONDS)
        finally:
            for task in self._releasing.values():
                task.cancel()
            self._reports.on_waiting({})

    async def round(self) -> None:
        """Take over what the watch shows, and release what is due."""
        compiled = self._policy()
        if compiled is None:
            return
        if compiled is not self._compiled:
            self._compiled = compiled
            self._queued = tuple(plan for plan in compiled.plans.values() if plan.queue is not None)
            self._releaser.begin(compiled.plans)
        now_us = self._store.now_us()
        try:
            await self._take_changes(compiled)
            if now_us - self._indexed_us >= _INDEX_SECONDS * 1_000_000:
                self._indexed_us = now_us
                await self._clean_index(now_us)
            if now_us - self._retried_us >= _AGAIN_SECONDS * 1_000_000:
                # Live Pods end, grants begin, breakers close: nothing announces all of that.
                self._retried_us = now_us
                self._releaser.retry()
                await self._retry_failed(compiled, now_us)
            for uid in self._wanted():
                if uid in self._releaser:
                    await self._releaser.release(uid)
        except StoreUnavailableError as error:
            self._reports.on_trouble(str(error))
            return
        if not self._failed:
            await self._releaser.step()
        empty = dict.fromkeys([plan.service for plan in self._queued], 0)
        self._reports.on_waiting({**empty, **self._releaser.counts()})

    async def _take_changes(self, compiled: CompiledPolicy) -> None:
        new, left = self._pods.take_changes()
        for uid in left:
            await self._left(uid, compiled)
        by_service: dict[str, list[GatedPod]] = {}
        for pod in new:
            if pod.waiting.uid not in self._releasing and pod.waiting.uid not in self._failed:
                by_service.setdefault(pod.waiting.service, []).append(pod)
        for service, pods in by_service.items():
            plan = compiled.plans.get(service)
            times_us = await self._registered(plan, pods) if plan is not None and plan.queue is not None else {}
            for pod in pods:
                since_us = times_us.get(pod.waiting.uid, pod.waiting.since_us)
                self._releaser.put(replace(pod, waiting=replace(pod.waiting, since_us=since_us)))

    async def _registered(self, plan: CounterPlan, pods: list[GatedPod]) -> Mapping[str, int]:
        """Return when Pods were registered; those that the index has lost are registered at their creation."""
        known = await self._index.waiting(plan)
        now_us = self._store.now_us()
        lost = {pod.waiting.uid: pod.waiting.since_us or now_us for pod in pods if pod.waiting.uid not in known}
        if lost:
            await self._index.restore(plan, lost)
        return {**known, **lost}

    async def _clean_index(self, now_us: int) -> None:
        for plan in self._queued:
            known = await self._index.waiting(plan)
            gone = [uid for uid, at_us in known.items() if uid not in self._releaser and now_us - at_us > _UNSEEN_US]
            await self._index.forget(plan, [uid for uid in gone if uid not in self._releasing])

    async def _left(self, uid: str, compiled: CompiledPolicy) -> None:
        """Remove a Pod that was deleted, or whose gate was removed."""
        service = self._releaser.gone(uid)
        plan = compiled.plans.get(service) if service is not None else None
        if plan is not None:
            await self._index.forget(plan, [uid])

    async def _release(self, pod: GatedPod) -> None:
        """Start to remove the gate of a charged Pod."""
        uid = pod.waiting.uid
        await self._room.acquire()
        self._releasing[uid] = task = asyncio.create_task(self._remove_gate(pod))
        task.add_done_callback(lambda _: self._releasing.pop(uid, None))

    async def _remove_gate(self, pod: GatedPod) -> None:
        waiting, plan = pod.waiting, self._plan(pod)
        try:
            if await self._gates.remove(pod.namespace, pod.name, waiting.uid):
                self._reports.on_released(waiting.service, self._waited_seconds(pod))
            elif plan is not None:
                await self._store.refund(plan, waiting.uid)
                self._releaser.retry()
            if plan is not None:
                await self._index.forget(plan, [waiting.uid])
        except (GateError, StoreUnavailableError) as error:
            self._reports.on_trouble(str(error))
            self._failed.setdefault(waiting.uid, (pod, self._store.now_us()))
        else:
            self._failed.pop(waiting.uid, None)
        finally:
            self._room.release()

    async def _retry_failed(self, compiled: CompiledPolicy, now_us: int) -> None:
        """Remove the gates again. After 30 s refund the charge, which will leave its window, and let the Pod wait."""
        for uid, (pod, failed_us) in tuple(self._failed.items()):
            if uid in self._releasing:
                continue
            if now_us - failed_us < _RESERVED_US:
                await self._release(pod)
                continue
            if (plan := compiled.plans.get(pod.waiting.service)) is not None:
                await self._store.refund(plan, uid)
            del self._failed[uid]
            self._releaser.put(pod)

    async def _expire(self, pod: GatedPod) -> None:
        """Apply whenExpired. A Pod that is kept stays gated until somebody deletes it."""
        plan = self._plan(pod)
        rules = plan.queue if plan is not None else None
        try:
            if rules is not None and rules.when_expired is WhenExpired.DELETE:
                await self._gates.delete(pod.namespace, pod.name, pod.waiting.uid)
            if plan is not None:
                await self._index.forget(plan, [pod.waiting.uid])
        except (GateError, StoreUnavailableError) as error:
            self._reports.on_trouble(str(error))
            self._releaser.put(pod)  # expires again in the next round
            return
        self._reports.on_expired(pod.waiting.service, self._waited_seconds(pod))

    def _plan(self, pod: GatedPod) -> CounterPlan | None:
        return self._compiled.plans.get(pod.waiting.service) if self._compiled is not None else None

    def _waited_seconds(self, pod: GatedPod) -> float:
        return max(0, self._store.now_us() - pod.waiting.since_us) / 1_000_000
