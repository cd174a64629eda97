"""Variant evictions: while a variant is not to be had, its Pods without a node are evicted, so that they get another.

Each slot is evicted once in an opening of the breaker: endless evictions would keep a rollout from ever being failed.
"""

import asyncio

from webhook.controller.shares.reports import EvictionCause, VariantReports, VariantTiming
from webhook.controller.shares.variant_breakers import Opening, VariantBreaker
from webhook.controller.shares.variant_pods import VariantKey, VariantPods
from webhook.core.pods.variant_pod import VariantPod
from webhook.errors import EvictionError
from webhook.ports import Clock, EvictionResult, PodEvictions
from webhook.support.condition import Condition


class EvictionAttempts:
    """Evicts Pods, and leaves alone for a while those that cannot be evicted."""

    def __init__(self, evictions: PodEvictions, clock: Clock, reports: VariantReports, timing: VariantTiming) -> None:
        self._evictions = evictions
        self._clock = clock
        self._reports = reports
        self._timing = timing
        self._free = asyncio.Semaphore(timing.concurrent_evictions_max)
        self._left: dict[str, int] = {}
        """Until when Pods are left alone, by their uids."""
        self._failure = Condition(reports.on_trouble, reports.on_over)

    def is_left_alone(self, pod: VariantPod) -> bool:
        return self._left.get(pod.uid, 0) > self._clock.now_us()

    async def evict(self, pod: VariantPod, cause: EvictionCause, note: str) -> bool:
        """Evict a Pod as it is known; return whether it is gone."""
        async with self._free:
            try:
                result = await self._evictions.evict(pod.namespace, pod.name, pod.uid, pod.version)
            except EvictionError as error:
                self._failure.enter(str(error))
                self._leave(pod, self._timing.refused_us)
                return False
        self._failure.leave()
        if result is EvictionResult.BLOCKED:
            self._leave(pod, self._timing.blocked_us)
        if result is EvictionResult.EVICTED:
            self._reports.on_evicted(pod, cause, note)
        return result in {EvictionResult.EVICTED, EvictionResult.GONE}

    def sweep(self) -> None:
        """Forget Pods whose time has passed: they were tried again, or nothing is to be evicted any more."""
        now_us = self._clock.now_us()
        self._left = {uid: until_us for uid, until_us in self._left.items() if until_us > now_us}
        if not self._left:
            self._failure.leave()

    def _leave(self, pod: VariantPod, for_us: int) -> None:
        self._left[pod.uid] = self._clock.now_us() + for_us


class VariantEvictions:
    """Evicts the waiting Pods of open variants. Variants without a breaker, the last ones, are never open."""

    def __init__(self, pods: VariantPods, attempts: EvictionAttempts, timing: VariantTiming) -> None:
        self._pods = pods
        self._attempts = attempts
        self._timing = timing
        self._done: dict[VariantKey, tuple[Opening, set[tuple[str, int]]]] = {}
        """The opening of each open variant, and the owners and slots that were evicted in it."""

    async def evict(self, breaker: VariantBreaker) -> None:
        """Evict what waits for an open variant, within the bounds of one round."""
        key, opening = (breaker.service, breaker.variant), breaker.opening
        if opening is None:
            self._done.pop(key, None)
            return
        known = self._done.get(key)
        if known is None or known[0] != opening:
            known = self._done[key] = opening, set()
        places = known[1]
        due = [
            pod
            for pod in self._pods.list_of(*key)
            if pod.unschedulable_us
            and pod.has_breaker
            and pod.place not in places
            and not self._attempts.is_left_alone(pod)
        ][: self._timing.evictions_per_round_max]
        note = (
            f"service {breaker.service}: no node for variant {breaker.variant}, whose breaker is {opening[0]}:"
            " its replacement gets another variant"
        )
        gone = await asyncio.gather(*(self._attempts.evict(pod, EvictionCause.OPEN, note) for pod in due))
        places.update(pod.place for pod, is_gone in zip(due, gone, strict=True) if is_gone)
