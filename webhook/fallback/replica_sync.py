"""ReplicaSync: the wait, after an outage, until the other replicas have booked their backlogs, or a time limit."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import SharedStore


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """One wait: its start, by the loop's clock."""

    since: float


class ReplicaSync:
    """Waits by tag. `count` returns how many other replicas there are; no wait is longer than `seconds`."""

    def __init__(self, store: SharedStore, count: Callable[[], int], seconds: float) -> None:
        self._store = store
        self._count = count
        self._seconds = seconds
        self._waits: dict[str, _Wait] = {}

    def restart(self, tag: str) -> None:
        """Wait for all of them again: this replica has a backlog, or the store was unavailable again."""
        self._waits.pop(tag, None)

    async def has_settled(self, plan: CounterPlan) -> bool:
        """Return whether the others have shown since the wait began that they owe nothing, or the time is up."""
        count = self._count()
        if not count:
            return True
        now, wait = asyncio.get_running_loop().time, self._waits.get(plan.tag)
        afresh = wait is None
        if wait is None:
            wait = self._waits[plan.tag] = _Wait(now())
        try:
            settled = await self._store.count_settled_replicas(plan, afresh=afresh)
        except StoreUnavailableError:
            self.restart(plan.tag)  # they may owe something by now
            raise
        if self._waits.get(plan.tag) is not wait:
            return False
        return settled >= count or now() >= wait.since + self._seconds
