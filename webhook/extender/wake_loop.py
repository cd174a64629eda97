"""Wake loop: has kube-scheduler try waiting Pods again once a node that was refused to them would pass."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from webhook.core.scheduling.unschedulable_pods import PodReference
from webhook.errors import SchedulerWakeError
from webhook.extender.extender import Extender
from webhook.ports.scheduling import PodWakeRequests, SchedulerWake
from webhook.support.condition import Condition
from webhook.support.slices import slices

PODS_MAX = 20
"""Pods that are woken one by one. More are woken all at once, with all other Pods that wait."""
ANSWER_SECONDS = 3.0
"""Time within which the watch shows the annotation of a Pod whose wake was asked for."""
ALONE_SECONDS = 60.0
"""How long no wake is asked for after one without an answer: there may be no controller."""
INCOMPLETE_SECONDS = 60.0
"""Time between two wakes while more Pods wait than are kept, and from the start to the first one.

At the start Pods may wait that another process refused. By then, the scheduler reaches this one.
"""
_ROUND_SECONDS = 1.0
_SOME_SECONDS, _ALL_SECONDS = 2.0, 5.0
"""Shortest time from a wake of some or all Pods to the next one: the scheduler tries each of them."""
_SLICE_MAX = 50


@dataclass(frozen=True, slots=True)
class SchedulerWakeReports:
    """Callbacks of the loop."""

    on_woken: Callable[[], None]
    on_wake_failed: Callable[[], None]
    on_unanswered: Callable[[int], None]
    """With the number of Pods whose wake was asked for in vain."""
    trouble: Condition[str]
    """That no Pods can be woken."""
    loneliness: Condition[str]
    """That Pods cannot be woken one by one."""


class WakeLoop:
    """Looks at the waiting Pods each second."""

    def __init__(
        self,
        extender: Extender,
        scheduler: SchedulerWake,
        requests: PodWakeRequests,
        is_ready: Callable[[], bool],
        reports: SchedulerWakeReports,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it. `is_ready`: calls can be answered, so that Pods that are woken go to no hot node."""
        self._extender = extender
        self._waiting = extender.waiting
        self._scheduler = scheduler
        self._requests = requests
        self._is_ready = is_ready
        self._reports = reports
        self._now_seconds = now_seconds
        self._due_seconds = self._alone_until_seconds = -inf
        self._all_at_seconds: float | None = None

    async def run(self) -> None:
        """Wake the Pods that fit, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            await self.round()

    async def round(self) -> None:
        """Wake the Pods that fit now, unless others were woken just before."""
        if not self._is_ready():
            return
        await self._judge()
        now_seconds = self._now_seconds()
        if self._all_at_seconds is None:
            self._all_at_seconds = now_seconds
        unanswered = self._waiting.count_unanswered(now_seconds - ANSWER_SECONDS)
        if unanswered and now_seconds >= self._alone_until_seconds:
            self._reports.on_unanswered(unanswered)
            self._go_alone("no controller has annotated the Pods that were asked for", now_seconds)
        if now_seconds < self._due_seconds:
            return
        fitting = self._waiting.list_fitting()
        are_others_due = self._waiting.is_incomplete and now_seconds >= self._all_at_seconds + INCOMPLETE_SECONDS
        if not (fitting or unanswered or are_others_due):
            return
        is_alone = now_seconds < self._alone_until_seconds
        must_wake_all = is_alone or unanswered or are_others_due or len(fitting) > PODS_MAX
        if must_wake_all or not await self._wake_some(fitting, now_seconds):
            await self._wake_all(now_seconds)

    async def _judge(self) -> None:
        """Keep the Pods that are still not bound, and find out which nodes pass them."""
        waiting, extender = self._waiting, self._extender
        rows = extender.table.node_rows
        async for uids in slices(waiting.begin_round(len(rows.by_name)), _SLICE_MAX):
            for uid in uids:
                waiting.keep_noted(uid)
        async for [kind] in slices(waiting.list_kinds(), 1):
            waiting.judge(kind, rows, extender.list_services(), extender.find_filters)

    async def _wake_some(self, pods: Sequence[PodReference], now_seconds: float) -> bool:
        """Ask the controller to wake these Pods; return whether that could be asked."""
        self._waiting.ask(pods, now_seconds)
        try:
            await self._requests.request(pods)
        except SchedulerWakeError as error:
            self._go_alone(str(error), now_seconds)
            return False
        self._due_seconds = now_seconds + _SOME_SECONDS
        self._reports.on_woken()
        return True

    def on_answered(self) -> None:
        """Receive that a Pod was woken which the controller was asked for."""
        self._alone_until_seconds = -inf
        self._reports.loneliness.leave()

    def _go_alone(self, reason: str, now_seconds: float) -> None:
        self._alone_until_seconds = now_seconds + ALONE_SECONDS
        self._reports.loneliness.enter(reason)

    async def _wake_all(self, now_seconds: float) -> None:
        serial = self._waiting.serial  # Pods that are refused from now on may not be among those that are woken
        self._due_seconds = now_seconds + _ALL_SECONDS
        try:
            await self._scheduler.wake()
        except SchedulerWakeError as error:
            self._reports.trouble.enter(str(error))
            self._reports.on_wake_failed()
            return
        self._reports.trouble.leave()
        self._reports.on_woken()
        self._all_at_seconds = now_seconds
        self._waiting.forget_until(serial)
