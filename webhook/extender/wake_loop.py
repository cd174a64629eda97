"""Wake loop: wakes kube-scheduler when a node that was refused to a Pod would pass it again."""

import asyncio
from typing import Protocol

from webhook.core.scheduling.attempts import UnschedulablePods
from webhook.errors import SchedulerWakeError
from webhook.extender.load_table import LoadTable
from webhook.ports.scheduling import SchedulerWake
from webhook.support.condition import Condition
from webhook.support.slices import slices

_ROUND_SECONDS = 1.0
_INTERVAL_SECONDS_MIN = 5.0
"""Shortest time between two wakes: each makes the scheduler try all waiting Pods."""


class WakeObserver(Protocol):
    """Observer of attempts to wake kube-scheduler."""

    def on_woken(self) -> None: ...
    def on_wake_failed(self) -> None: ...


class WakeLoop:
    """Looks at the refused Pods each second."""

    def __init__(
        self,
        refused: UnschedulablePods,
        table: LoadTable,
        scheduler: SchedulerWake,
        observer: WakeObserver,
        trouble: Condition[str],
    ) -> None:
        self._refused = refused
        self._table = table
        self._scheduler = scheduler
        self._observer = observer
        self._trouble = trouble

    async def run(self) -> None:
        """Wake the scheduler whenever it helps, until cancelled."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            if not await self._take_fitting():
                continue
            try:
                await self._scheduler.wake()
            except SchedulerWakeError as error:
                self._trouble.enter(str(error))
                self._observer.on_wake_failed()
            else:
                self._trouble.leave()
                self._observer.on_woken()
            await asyncio.sleep(_INTERVAL_SECONDS_MIN)

    async def _take_fitting(self) -> bool:
        """Return whether a refused Pod fits somewhere now; such Pods are forgotten."""
        fitting = False
        async for [kind] in slices(self._refused.list_kinds(), 1):
            fitting |= self._refused.take_if_fitting(kind, self._table.rows)
        return fitting
