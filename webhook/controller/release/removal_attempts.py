"""Attempts to remove gates or to delete Pods: concurrent, as slots of namespaces and the rate of releases allow."""

import asyncio
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet

from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.observed_gates import ObservedGates
from webhook.controller.release.rate_limit import ReleaseRateLimit
from webhook.controller.release.removal_slots import RemovalSlots
from webhook.core.quota import CounterPlan
from webhook.errors import GateError

_BACKLOG_MAX = 16
"""Charged Pods that wait for a slot: a charge is older than the release that it is for."""

Answer = bool | GateError | None
"""As a `GateClient` returns or raises it; None if the Pod was not tried, as others had no answer."""


class RemovalAttempts:
    """Attempts under way, at most one of each Pod."""

    def __init__(
        self,
        gates: ObservedGates,
        limit: ReleaseRateLimit,
        now_us: Callable[[], int],
        on_answer: Callable[[CounterPlan | None, GatedPod, Answer], Awaitable[None]],
        on_end: Callable[[str], None],
        *,
        deletes: bool = False,
    ) -> None:
        """`on_answer` belongs to the attempt; `on_end` is called with the uid when it is no longer under way."""
        self._gates = gates
        self._deletes = deletes
        self._limit = limit
        self._now_us = now_us
        self._on_answer = on_answer
        self._on_end = on_end
        self._slots = RemovalSlots(gates, now_us)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._backlog: dict[str, GatedPod] = {}
        """Pods that wait for a slot."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._running

    @property
    def room(self) -> int:
        """Return how many further Pods should be charged now."""
        waiting = sum(not self._slots.hangs(pod.namespace) for pod in self._backlog.values())
        return self._gates.bound_calls(max(0, _BACKLOG_MAX - waiting))

    @property
    def hung_services(self) -> AbstractSet[str]:
        """Services with Pods that wait for a slot in a namespace that gives no answer."""
        return {pod.waiting.service for pod in self._backlog.values() if self._slots.hangs(pod.namespace)}

    def has_room(self, namespace: str) -> bool:
        """Return whether a Pod of a namespace may be tried without delay for others."""
        waiting = sum(pod.namespace == namespace for pod in self._backlog.values())
        return waiting < _BACKLOG_MAX and self._limit.compute_room(self._now_us()) > 0

    def is_stuck(self, namespace: str) -> bool:
        """Return whether calls in a namespace run or wait, and none was answered lately."""
        return self._slots.is_busy(namespace) and self._slots.hangs(namespace)

    def ping(self) -> None:
        """Find out whether the API server answers, if that is in doubt; called each round."""
        if self._gates.is_in_doubt or self._slots.needs_ping():
            self._gates.ping()

    def start(self, plan: CounterPlan | None, pod: GatedPod) -> None:
        """Start the call for a Pod."""
        uid = pod.waiting.uid
        self._limit.spend()
        self._backlog[uid] = pod
        self._running[uid] = task = asyncio.create_task(self._run(plan, pod))
        task.add_done_callback(lambda _: self._forget(uid))

    def cancel(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def _run(self, plan: CounterPlan | None, pod: GatedPod) -> None:
        has_slot = await self._slots.acquire(pod.namespace)
        del self._backlog[pod.waiting.uid]
        await self._on_answer(plan, pod, await self._remove(pod) if has_slot else None)

    async def _remove(self, pod: GatedPod) -> bool | GateError:
        is_answered = False
        try:
            call = self._gates.delete if self._deletes else self._gates.remove
            is_there = await call(pod.namespace, pod.name, pod.waiting.uid)
            is_answered = True
        except GateError as error:
            is_answered = error.is_refused
            return error
        finally:
            self._slots.release(pod.namespace, is_answered=is_answered)
        return is_there

    def _forget(self, uid: str) -> None:
        del self._running[uid]
        self._on_end(uid)
