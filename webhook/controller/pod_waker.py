"""Pod waker: wakes waiting Pods for which an extender has found a node."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from webhook.core.lru_cache import LruCache
from webhook.core.scheduling.unschedulable_pods import PodReference
from webhook.errors import SchedulerWakeError
from webhook.ports import Clock
from webhook.ports.scheduling import PodWakes
from webhook.support.condition import Condition

_AGAIN_US = 1_000_000
"""Replicas of the extender may ask for a Pod at the same time: it is woken once."""
_REMEMBERED_MAX = 1_000
_REQUESTS_MAX = 5


class PodWakeResult(StrEnum):
    """Result of a request to wake a Pod, as metrics have it."""

    ANNOTATED = "annotated"
    GONE = "gone"
    """Or bound."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PodWakeReports:
    """Callbacks of the waker."""

    on_woken: Callable[[PodWakeResult], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]


class PodWaker:
    """Created for each term of leadership."""

    def __init__(self, wakes: PodWakes, clock: Clock, reports: PodWakeReports) -> None:
        self._wakes = wakes
        self._clock = clock
        self._reports = reports
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._woken_us: LruCache[str, int] = LruCache(_REMEMBERED_MAX)
        self._free = asyncio.Semaphore(_REQUESTS_MAX)

    async def run(self) -> None:
        """Wake Pods until cancelled."""
        await self._wakes.run(self)

    async def on_wake_requested(self, pods: Sequence[PodReference]) -> None:
        """Wake these Pods; what fails is not repeated: the extender notices."""
        await asyncio.gather(*(self._wake(pod) for pod in pods))

    async def _wake(self, pod: PodReference) -> None:
        now_us = self._clock.now_us()
        last_us = self._woken_us.get(pod.uid)
        if last_us is not None and now_us - last_us < _AGAIN_US:
            return
        self._woken_us.keep(pod.uid, now_us)
        async with self._free:
            try:
                is_done = await self._wakes.wake(pod, now_us)
            except SchedulerWakeError as error:
                self._failure.enter(str(error))
                self._reports.on_woken(PodWakeResult.FAILED)
                return
        self._failure.leave()
        self._reports.on_woken(PodWakeResult.ANNOTATED if is_done else PodWakeResult.GONE)
