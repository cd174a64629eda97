"""Rebalancing: Pods are evicted one after another, so that their workloads have the split of their policy again.

They fell back from a variant that is to be had again, or a scale-down has left holes among the slots below them.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from webhook.controller.shares.reports import EvictionCause, VariantTiming
from webhook.controller.shares.variant_breakers import VariantBreaker
from webhook.controller.shares.variant_evictions import EvictionAttempts
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.breaker import State
from webhook.core.pods.variant_pod import VariantPod
from webhook.core.shares import SharesPlan
from webhook.ports import Clock, SlotOwners


class _Move(Struct, frozen=True):
    """A Pod that was evicted, how many Pods its owner had, and since when its replacement is waited for."""

    pod: VariantPod
    pods: int
    since_us: int


class Rebalancing:
    """One Pod of a service at a time. Pods of Jobs stay where they are: they would lose their work."""

    def __init__(
        self,
        pods: VariantPods,
        owners: SlotOwners | None,
        attempts: EvictionAttempts,
        clock: Clock,
        timing: VariantTiming,
    ) -> None:
        self._pods = pods
        self._owners = owners
        self._attempts = attempts
        self._clock = clock
        self._timing = timing
        self._moves: dict[str, _Move] = {}
        """By service."""
        self._holed: dict[str, dict[str, int]] = {}
        """By service, since when owners have had holes, or were last found not to be at rest; by their uids."""

    async def move(self, breaker: VariantBreaker) -> None:
        """Move one Pod back to a variant, unless another one of its service is on its way."""
        if not breaker.shares.rebalance or breaker.view is None or not is_settled(breaker):
            return
        if self._is_moving(breaker.service):
            return
        note = f"service {breaker.service}: variant {breaker.variant} is to be had again: its slot moves back to it"
        highest = max(self._list_movable(breaker), key=lambda pod: pod.slot, default=None)
        if highest is not None:
            await self._evict(highest, EvictionCause.BACK, note)

    async def fill(self, service: str, shares: SharesPlan) -> None:
        """Move one Pod of a ReplicaSet into a hole below it, unless another one of its service is on its way.

        All variants must be to be had. A ReplicaSet has holes also while it creates Pods: they must last.
        """
        if self._owners is None or not shares.rebalance or self._is_moving(service):
            return
        holed, now_us = {pods[0].owner.uid: pods for pods in self._list_holed(service, shares)}, self._clock.now_us()
        known = self._holed.get(service, {})
        since_us = self._holed[service] = {uid: known.get(uid, now_us) for uid in holed}
        for uid, pods in holed.items():
            if now_us - since_us[uid] < self._timing.hole_us:
                continue
            since_us[uid] = now_us
            highest = max(pods, key=lambda pod: pod.slot)
            if self._attempts.is_left_alone(highest):
                continue
            if await self._owners.read_replicas(highest.owner) == len(pods):
                note = f"service {service}: slot {highest.slot} of {len(pods)} Pods: its replacement gets a lower one"
                await self._evict(highest, EvictionCause.HOLE, note)
                return

    async def _evict(self, pod: VariantPod, cause: EvictionCause, note: str) -> None:
        pods = sum(1 for _ in self._pods.list_of_owner(pod.service, pod.owner.uid))
        if await self._attempts.evict(pod, cause, note):
            self._moves[pod.service] = _Move(pod, pods, self._clock.now_us())

    def _list_movable(self, breaker: VariantBreaker) -> list[VariantPod]:
        """Return the Pods that fell back from the variant that their slots still have, of owners that are all Ready."""
        found = [
            pod
            for pod in self._pods.list_fallen_back(breaker.service, breaker.variant)
            if pod.slot_variant == breaker.variant and pod.owner.kind != "Job" and not self._attempts.is_left_alone(pod)
        ]
        ready: dict[str, bool] = {}
        for uid in {pod.owner.uid for pod in found}:
            ready[uid] = all(pod.is_ready for pod in self._pods.list_of_owner(breaker.service, uid))
        return [pod for pod in found if ready[pod.owner.uid]]

    def _list_holed(self, service: str, shares: SharesPlan) -> Iterator[Sequence[VariantPod]]:
        """Yield the Pods of each ReplicaSet whose split is off, though each has its slot's variant and all are Ready.

        One of another variant fell back, or is of a former split: a change of the policy concerns new Pods.
        """
        for pods in self._pods.group_by_owner(service):
            count = len(pods)
            if pods[0].owner.kind != "ReplicaSet" or all(pod.slot <= count for pod in pods):
                continue
            if any(pod.variant != pod.slot_variant or not pod.is_ready for pod in pods):
                continue
            variants = [pod.variant for pod in pods]
            expected = shares.split.count_by_variant(count)
            if any(variants.count(name) != expected[name] for name in expected):
                yield pods

    def _is_moving(self, service: str) -> bool:
        """Return whether the replacement of an evicted Pod is still waited for."""
        move = self._moves.get(service)
        if move is None:
            return False
        owner = [pod for pod in self._pods.list_of_owner(service, move.pod.owner.uid) if pod.uid != move.pod.uid]
        is_there = len(owner) >= move.pods and all(pod.is_ready for pod in owner)
        is_late = self._clock.now_us() - move.since_us >= self._timing.replacement_us
        if is_there or is_late:
            del self._moves[service]
            return False
        return True


def is_settled(breaker: VariantBreaker) -> bool:
    """Return whether a variant has been to be had for a while: as long as it would be avoided."""
    open_for_us = 0 if breaker.counters.breaker is None else breaker.counters.breaker.open_for_us
    return breaker.state is State.CLOSED and breaker.now_us - breaker.since_us >= open_for_us
