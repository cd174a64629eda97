"""Sizes of waiting groups whose Pods do not carry them: read from their objects, again and again as they wait."""

import asyncio
from collections.abc import Callable, Collection

from webhook.controller.release.gated_groups import GroupKey
from webhook.core.groups.completeness import Size
from webhook.core.policy_fields import GroupSource
from webhook.ports import Clock, GroupObjects

_ROUND_SECONDS = 0.5
_FRESH_US, _PROBLEM_US = 10_000_000, 2_000_000
"""How long a size is used, and how long a problem with it: Jobs change, and PodGroups are created after their Pods."""
_CONCURRENT_MAX = 8
_ON_PODS = frozenset({GroupSource.ANNOTATIONS, GroupSource.KUEUE, GroupSource.LEADER_WORKER_SET})


class GroupSizes:
    """`find` returns what `run` has read. Groups that no longer wait are forgotten."""

    def __init__(self, objects: GroupObjects, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._sizes: dict[GroupKey, tuple[Size, int]] = {}

    def find(self, key: GroupKey) -> Size | None:
        """Return the size of a group, None if it is not known yet."""
        known = self._sizes.get(key)
        return None if known is None else known[0]

    async def run(self, list_keys: Callable[[], Collection[GroupKey]]) -> None:
        """Read the sizes of the groups that wait, until cancelled."""
        while True:
            await self.update(list_keys())
            await asyncio.sleep(_ROUND_SECONDS)

    async def update(self, waiting: Collection[GroupKey]) -> None:
        """Read the sizes that are not known, or no longer fresh."""
        keys, now_us = {key for key in waiting if key.source not in _ON_PODS}, self._clock.now_us()
        self._sizes = {key: known for key, known in self._sizes.items() if key in keys}
        due = [key for key in keys if self._is_due(key, now_us)]
        slots = asyncio.Semaphore(_CONCURRENT_MAX)
        await asyncio.gather(*(self._read(key, slots) for key in due))

    def _is_due(self, key: GroupKey, now_us: int) -> bool:
        known = self._sizes.get(key)
        return known is None or now_us - known[1] >= (_PROBLEM_US if known[0].problem else _FRESH_US)

    async def _read(self, key: GroupKey, slots: asyncio.Semaphore) -> None:
        async with slots:
            size = await self._objects.read_size(key.source, key.namespace, key.name, key.owner)
        self._sizes[key] = size, self._clock.now_us()
