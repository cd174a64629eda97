"""Rebalancing: Pods that fell back are evicted one after another, once their variant is to be had again."""

from msgspec import Struct

from webhook.controller.shares.reports import EvictionCause, VariantTiming
from webhook.controller.shares.variant_breakers import VariantBreaker
from webhook.controller.shares.variant_evictions import EvictionAttempts
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.breaker import State
from webhook.core.pods.variant_pod import VariantPod
from webhook.ports import Clock


class _Move(Struct, frozen=True):
    """A Pod that was evicted, and since when its replacement is waited for."""

    pod: VariantPod
    since_us: int


class Rebalancing:
    """One Pod of a service at a time. Pods of Jobs stay where they are: they would lose their work."""

    def __init__(self, pods: VariantPods, attempts: EvictionAttempts, clock: Clock, timing: VariantTiming) -> None:
        self._pods = pods
        self._attempts = attempts
        self._clock = clock
        self._timing = timing
        self._moves: dict[str, _Move] = {}
        """By service."""

    async def move(self, breaker: VariantBreaker) -> None:
        """Move one Pod back to a variant, unless another one of its service is on its way."""
        open_for_us = 0 if breaker.counters.breaker is None else breaker.counters.breaker.open_for_us
        is_back = breaker.view is not None and breaker.state is State.CLOSED
        if not breaker.shares.rebalance or not is_back or breaker.now_us - breaker.since_us < open_for_us:
            return
        if self._is_moving(breaker.service):
            return
        note = f"service {breaker.service}: variant {breaker.variant} is to be had again: its slot moves back to it"
        for pod in sorted(self._list_movable(breaker), key=lambda pod: -pod.slot):
            if await self._attempts.evict(pod, EvictionCause.BACK, note):
                self._moves[breaker.service] = _Move(pod, self._clock.now_us())
            return

    def _list_movable(self, breaker: VariantBreaker) -> list[VariantPod]:
        """Return the Pods that fell back from a variant, of owners all of whose Pods are Ready."""
        found = [
            pod
            for pod in self._pods.list_fallen_back(breaker.service, breaker.variant)
            if pod.owner.kind != "Job" and not self._attempts.is_left_alone(pod)
        ]
        ready: dict[str, bool] = {}
        for uid in {pod.owner.uid for pod in found}:
            ready[uid] = all(pod.is_ready for pod in self._pods.list_of_owner(breaker.service, uid))
        return [pod for pod in found if ready[pod.owner.uid]]

    def _is_moving(self, service: str) -> bool:
        """Return whether the replacement of an evicted Pod is still waited for."""
        move = self._moves.get(service)
        if move is None:
            return False
        owner = self._pods.list_of_owner(service, move.pod.owner.uid)
        is_there = any(pod.place == move.pod.place and pod.uid != move.pod.uid and pod.is_ready for pod in owner)
        is_late = self._clock.now_us() - move.since_us >= self._timing.replacement_us
        if is_there or is_late:
            del self._moves[service]
            return False
        return True
