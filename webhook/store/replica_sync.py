"""Wait for the other replicas of a store that is back: until they have booked what they owe, or had time enough to."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import SharedStore


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """One wait: since when, by the loop's clock."""

    since: float


class ReplicaSync:
    """By tag. `count` is how many other replicas there are; none is waited for longer than `seconds`."""

    def __init__(self, store: SharedStore, count: Callable[[], int], seconds: float) -> None:
        self._store = store
        self._count = count
        self._seconds = seconds
        self._waits: dict[str, _Wait] = {}

    def begin_anew(self, tag: str) -> None:
        """Wait for all of them again, if need be: this replica owes something, or the store was away once more."""
        self._waits.pop(tag, None)

    async def have_settled(self, plan: CounterPlan) -> bool:
        """Say whether the others have shown that they owe nothing, since this replica asked for the first time."""
        count = self._count()
        if not count:
            return True
        now, wait = asyncio.get_running_loop().time, self._waits.get(plan.tag)
        afresh = wait is None
        if wait is None:
            wait = self._waits[plan.tag] = _Wait(now())
        try:
            settled = await self._store.others_settled(plan, afresh=afresh)
        except StoreUnavailableError:
            self.begin_anew(plan.tag)  # whatever they owe by now
            raise
        if self._waits.get(plan.tag) is not wait:
            return False
        return settled >= count or now() >= wait.since + self._seconds
