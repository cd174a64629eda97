"""Gate removal: removes the gates of charged Pods concurrently, and tries again what failed.

A charge is kept until it is known whether the gate is removed, but not for long: it will leave its window.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

from webhook.controller.release.gated_pods import GatedPod
from webhook.core.quota import CounterPlan
from webhook.errors import GateError, StoreUnavailableError
from webhook.ports import CounterStore, GateClient, QueueIndex

_AT_ONCE = 16
"""Gates that are removed concurrently; the API server does several hundred a second."""
_RESERVED_US = 30_000_000
_ASIDE_US = 5_000_000


@dataclass(frozen=True, slots=True)
class RemovalReports:
    """Callbacks of a `GateRemoval`."""

    on_released: Callable[[GatedPod], None]
    on_room: Callable[[], None]
    """A charge was refunded."""
    on_waiting: Callable[[GatedPod], None]
    """A Pod that was set aside waits again."""
    on_trouble: Callable[[str], None]


class GateRemoval:
    """Gates that are being removed, and those that could not be.

    - Without an answer the Pod stays charged, and its gate is removed again each second. After 30 s it is refunded.
    - A refusal concerns one Pod: it is refunded.
    - A refunded Pod is set aside for 5 s: others take their turn.
    """

    def __init__(self, store: CounterStore, index: QueueIndex, gates: GateClient, reports: RemovalReports) -> None:
        self._store = store
        self._index = index
        self._gates = gates
        self._reports = reports
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._charged: dict[str, tuple[CounterPlan, GatedPod, int]] = {}
        """Charged Pods whose gates may still be there, and since when."""
        self._aside: dict[str, tuple[GatedPod, int]] = {}
        """Pods that are set aside, and until when."""
        self._left: dict[str, tuple[CounterPlan, list[str]]] = {}
        """Pods that have left the queue and are still in the index, by service."""
        self._failures = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._running or uid in self._charged or uid in self._aside

    @property
    def room(self) -> int:
        """Return how many further Pods should be charged at once: fewer with each removal in a row that failed."""
        return max(0, _AT_ONCE - self._failures)

    @property
    def held(self) -> AbstractSet[str]:
        """Services of charged Pods whose gates may still be there: no further Pod of theirs should be charged."""
        return {pod.waiting.service for _, pod, _ in self._charged.values()}

    async def start(self, plan: CounterPlan | None, pod: GatedPod) -> None:
        """Start to remove the gate of a charged Pod; without a plan it is not charged."""
        await self._slots.acquire()
        uid = pod.waiting.uid
        self._running[uid] = task = asyncio.create_task(self._remove(plan, pod))
        task.add_done_callback(lambda _: self._running.pop(uid, None))

    def cancel(self) -> None:
        for task in self._running.values():
            task.cancel()

    def set_aside(self, pod: GatedPod) -> None:
        """Let a Pod wait again, but not at once."""
        self._aside[pod.waiting.uid] = pod, self._store.now_us() + _ASIDE_US

    def gone(self, uid: str) -> None:
        """Forget a Pod that is deleted, or has no gate any more; a charged one is tried again, and then refunded."""
        self._aside.pop(uid, None)

    async def forget(self) -> None:
        """Remove the Pods that have left the queue from the index, those of one service in one call."""
        left, self._left = self._left, {}
        for plan, uids in left.values():
            with suppress(StoreUnavailableError):  # then the loop does it when it mends the index
                await self._index.forget(plan, uids)

    async def retry(self, now_us: int) -> None:
        """Remove gates again; refund what is charged for too long."""
        self._failures = min(self._failures, _AT_ONCE - 1)
        for uid, (plan, pod, since_us) in tuple(self._charged.items()):
            if uid in self._running:
                continue
            if now_us - since_us < _RESERVED_US:
                await self.start(plan, pod)
            else:
                await self._refund(plan, pod)
        for uid, (pod, until_us) in tuple(self._aside.items()):
            if until_us <= now_us:
                del self._aside[uid]
                self._reports.on_waiting(pod)

    async def _remove(self, plan: CounterPlan | None, pod: GatedPod) -> None:
        uid = pod.waiting.uid
        try:
            is_there = await self._gates.remove(pod.namespace, pod.name, uid)
            self._failures = 0
            if is_there:
                self._reports.on_released(pod)
            elif plan is not None:
                await self._store.refund(plan, uid)
                self._reports.on_room()
            self._charged.pop(uid, None)
        except (GateError, StoreUnavailableError) as error:
            self._reports.on_trouble(str(error))
            await self._failed(plan, pod, error)
        else:
            if plan is not None:
                self._left.setdefault(plan.service, (plan, []))[1].append(uid)
        finally:
            self._slots.release()

    async def _failed(self, plan: CounterPlan | None, pod: GatedPod, error: GateError | StoreUnavailableError) -> None:
        self._failures += 1
        if plan is None:
            self.set_aside(pod)
            return
        self._charged.setdefault(pod.waiting.uid, (plan, pod, self._store.now_us()))
        if isinstance(error, GateError) and error.is_refused:
            try:
                await self._refund(plan, pod)
            except StoreUnavailableError as unavailable:
                self._reports.on_trouble(str(unavailable))

    async def _refund(self, plan: CounterPlan, pod: GatedPod) -> None:
        await self._store.refund(plan, pod.waiting.uid)
        self._charged.pop(pod.waiting.uid, None)
        self.set_aside(pod)
        self._reports.on_room()
