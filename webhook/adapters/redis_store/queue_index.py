"""RedisQueueIndex: `ports.QueueIndex` on Redis, one sorted set per service."""

from collections.abc import Iterator, Mapping, Sequence

from webhook.adapters.redis_store import codec, operations
from webhook.adapters.redis_store.lane_group import Lanes
from webhook.adapters.redis_store.plans import PlanCache
from webhook.adapters.redis_store.transport.records import PageAnswer
from webhook.core.quota import CounterPlan

_PODS_PER_CALL_MAX = 500
"""Redis serves no other client while the script runs, and admissions wait for it."""
_START = "0"
"""The cursor of the first page, and the one after the last."""


class RedisQueueIndex:
    """`register` and `count` are as urgent as admissions, of which they are part."""

    def __init__(self, plans: PlanCache, lanes: Lanes) -> None:
        self._plans = plans
        self._lanes = lanes

    async def register(self, plan: CounterPlan, uid: str) -> bool:
        request = {"uid": uid, "most": plan.waiting_max, "ttl_ms": _compute_ttl_ms(plan)}
        (is_registered,) = await self._lanes.ask(operations.queue(self._plans.prepare(plan), "register", **request))
        return bool(is_registered)

    async def count(self, plan: CounterPlan) -> int:
        (count,) = await self._lanes.ask(operations.queue(self._plans.prepare(plan), "count"))
        return int(count)

    async def restore(self, plan: CounterPlan, times_us: Mapping[str, int]) -> None:
        planned, ask = self._plans.prepare(plan), self._lanes.ask_patiently
        for uids in _split_uids([*times_us]):
            members = codec.encode_list([value for uid in uids for value in (times_us[uid], uid)])
            await ask(operations.queue(planned, "restore", members=members, ttl_ms=_compute_ttl_ms(plan)))

    async def list_waiting(self, plan: CounterPlan) -> Mapping[str, int]:
        planned, found, cursor = self._plans.prepare(plan), dict[str, int](), _START
        while True:
            request = {"cursor": cursor, "count": _PODS_PER_CALL_MAX, "ttl_ms": _compute_ttl_ms(plan)}
            page = PageAnswer(*await self._lanes.ask_patiently(operations.queue(planned, "page", **request)))
            found.update(zip(page.members[::2], page.members[1::2], strict=True))
            cursor = page.cursor
            if cursor == _START:
                return found

    async def find_times_us(self, plan: CounterPlan, uids: Sequence[str]) -> Mapping[str, int]:
        planned, found = self._plans.prepare(plan), dict[str, int]()
        for some in _split_uids(uids):
            times = await self._lanes.ask_patiently(operations.queue(planned, "times", uids=codec.encode_list(some)))
            found.update((uid, at_us) for uid, at_us in zip(some, times, strict=True) if at_us)
        return found

    async def forget(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        planned, ask = self._plans.prepare(plan), self._lanes.ask_patiently
        for some in _split_uids(uids):
            await ask(operations.queue(planned, "forget", uids=codec.encode_list(some)))


def _split_uids(uids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the uids in parts, one part for each call."""
    return (uids[first : first + _PODS_PER_CALL_MAX] for first in range(0, len(uids), _PODS_PER_CALL_MAX))


def _compute_ttl_ms(plan: CounterPlan) -> int:
    return plan.queue_lasts_us // 1000
