"""Index repair: keeps the index of waiting Pods in the store equal to the queues, which are rebuilt from the gates."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.queue_time import QueueTime
from webhook.controller.release.queued_pods import QueuedPods
from webhook.controller.release.store_troubles import StoreTroubles
from webhook.core.quota import CounterPlan
from webhook.ports import QueueIndex

_PAUSE_US = 10_000_000
_REPAIRED_PER_ROUND_MAX = 64
_UNSEEN_US = 60_000_000
"""A registered Pod that the watch has not shown for this time was never created."""


class IndexRepair:
    """Called in each round of the release loop. Of services about which the store gives no answer it does the rest."""

    def __init__(
        self,
        index: QueueIndex,
        pods: QueuedPods,
        time: QueueTime,
        is_removing: Callable[[str], bool],
        troubles: StoreTroubles,
    ) -> None:
        """`is_removing` returns whether the gate of a Pod is being removed, which is in no queue then."""
        self._index = index
        self._pods = pods
        self._time = time
        self._is_removing = is_removing
        self._troubles = troubles
        self._repaired_us = 0
        self._due: list[CounterPlan] = []
        """The services to repair in the next rounds."""

    def hasten(self) -> None:
        """Repair the index in the next round: the store may have lost it, or Pods may have other services."""
        self._repaired_us = 0

    async def find_since_us(self, plan: CounterPlan, pods: Sequence[GatedPod]) -> Mapping[str, int]:
        """Return since when Pods wait; those that the index has lost are registered as of their creation.

        A service that no longer queues registers none, but its Pods keep their order under a new leader.
        StoreUnavailableError: it is not known.
        """
        known = await self._index.find_times_us(plan, [pod.waiting.uid for pod in pods])
        since_us = {
            pod.waiting.uid: self._time.find_since_us(known[pod.waiting.uid], pod.created_us)
            if pod.waiting.uid in known
            else pod.waiting.since_us or self._time.now_us()
            for pod in pods
        }
        lost = {uid: self._time.find_store_us(at_us) for uid, at_us in since_us.items() if uid not in known}
        if lost and plan.queue is not None:
            await self._index.restore(plan, lost)
        return since_us

    async def repair(self, plans: Iterable[CounterPlan], now_us: int) -> None:
        """Forget Pods that were never created, and register again what the store has lost, of a part of the services.

        All of them in one round would delay releases.
        """
        if now_us - self._repaired_us >= _PAUSE_US:
            self._repaired_us, self._due = now_us, list(plans)
        if self._due:
            some, self._due = self._due[:_REPAIRED_PER_ROUND_MAX], self._due[_REPAIRED_PER_ROUND_MAX:]
            times_us = self._pods.list_times_us()
            await asyncio.gather(*(self._repair(plan, times_us.get(plan.service, {})) for plan in some))

    async def _repair(self, plan: CounterPlan, waiting: Mapping[str, int]) -> None:
        with self._troubles.pass_over():
            known = await self._index.list_waiting(plan)
            now_us = self._time.find_store_us(self._time.now_us())
            old = [uid for uid, at_us in known.items() if now_us - at_us > _UNSEEN_US]
            await self._index.forget(plan, [uid for uid in old if uid not in waiting and not self._is_removing(uid)])
            lost = {uid: self._time.find_store_us(at_us) for uid, at_us in waiting.items() if uid not in known}
            if lost:
                await self._index.restore(plan, lost)
