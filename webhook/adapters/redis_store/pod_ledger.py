"""RedisPodLedger: `ports.PodLedger` on Redis, and the bookings of single Pods."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from webhook.adapters.redis_store import operations
from webhook.adapters.redis_store.lane_group import Lanes
from webhook.adapters.redis_store.operations import ChargedPod
from webhook.adapters.redis_store.plans import PlanCache
from webhook.adapters.redis_store.transport.records import (
    ChargeAnswer,
    LivePageAnswer,
    LivePod,
    PlaceAnswer,
    WaitingEntry,
)
from webhook.core.quota import Booking, Cost, CounterPlan, PoolPod, Seen, Sighting, UnseenPod

_NO_AMOUNTS: Cost = {}
"""Lua packs an empty map as an empty list."""
_START = "0"
"""The cursor of the first page, and the one after the last."""
_SCOPES_PER_CALL_MAX = 32
"""Redis serves nobody else during a call, and a script can pass only some thousand keys on."""


class RedisPodLedger:
    """Its operations are not urgent: they share the calls of admissions."""

    def __init__(self, plans: PlanCache, lanes: Lanes) -> None:
        self._plans = plans
        self._ask = lanes.ask_patiently

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        planned, charged = self._plans.prepare(plan), await self._find_charge(plan, uid)
        if charged is None:
            await self._ask(operations.stop_waiting(planned, uid))
            return False
        (refunded,) = await self._ask(operations.refund(planned, charged.keys, charged.scope, uid))
        return bool(refunded)

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        planned = self._plans.prepare(plan)
        results = await asyncio.gather(*(self._ask(operations.book(planned, booking)) for booking in bookings))
        return sum(bool(booked) for (booked,) in results)

    async def observe(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        planned = self._plans.prepare(plan)
        results = await asyncio.gather(*(self._ask(operations.observe(planned, seen)) for seen in sightings))
        return [Seen(*result) for result in results]

    async def list_overdue(self, plan: CounterPlan, age_us: int, most: int) -> Sequence[UnseenPod]:
        planned = self._plans.prepare(plan)
        waiting = [WaitingEntry(*pod) for pod in await self._ask(operations.list_overdue(planned, age_us, most))]
        places = await asyncio.gather(*(self._ask(operations.find_place(planned, pod.uid)) for pod in waiting))
        found = []
        for pod, answer in zip(waiting, places, strict=True):
            charged = PlaceAnswer(*answer)
            namespace, _, name = charged.place.partition("/")
            found.append(UnseenPod(pod.uid, namespace, name, pod.age_us, charged.service))
        return found

    async def stop_waiting(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        await asyncio.gather(*(self._stop_waiting(plan, uid) for uid in uids))

    async def _stop_waiting(self, plan: CounterPlan, uid: str) -> None:
        charged = await self._find_charge(plan, uid)
        await self._ask(operations.stop_waiting(self._plans.prepare(plan), uid, charged))

    async def list_scopes(self, plan: CounterPlan) -> Sequence[str]:
        planned = self._plans.prepare(plan)
        known = await self._ask(operations.list_live_scopes(planned)) if plan.per_namespace else [""]
        found: list[str] = []
        for some in split_scopes(known):
            counts = await self._ask(operations.count_live(planned, some))
            found += (scope for scope, count in zip(some, counts, strict=True) if count)
        return sorted(found)

    async def list_live(self, plan: CounterPlan, scope: str, after: str = "") -> tuple[Mapping[str, Cost], str]:
        planned = self._plans.prepare(plan)
        page = LivePageAnswer(*await self._ask(operations.list_live(planned, scope, *_decode_place(after))))
        found = (LivePod(*member) for member in page.members)
        return {pod.uid: pod.amounts or _NO_AMOUNTS for pod in found}, _encode_place(page)

    async def mark_complete(self, plan: CounterPlan, scopes: Sequence[str]) -> None:
        planned = self._plans.prepare(plan)
        for some in split_scopes(scopes):
            await self._ask(operations.mark_complete(planned, some))
        if plan.per_namespace:
            (cursor,) = await self._ask(operations.forget_whole(planned, _START))
            while cursor != _START:
                (cursor,) = await self._ask(operations.forget_whole(planned, cursor))

    async def list_pool_live(self, plan: CounterPlan, after: str = "") -> tuple[Sequence[PoolPod], str]:
        planned = self._plans.prepare(plan)
        page = LivePageAnswer(*await self._ask(operations.list_pool_live(planned, *_decode_place(after))))
        pods = [PoolPod(uid, service, amounts or _NO_AMOUNTS) for uid, service, amounts in page.members]
        return pods, _encode_place(page)

    async def mark_pool_complete(self, plan: CounterPlan) -> None:
        if plan.pool_standing is not None:
            await self._ask(operations.mark_pool_complete(self._plans.prepare(plan)))

    async def drop_pool_pods(self, plan: CounterPlan, pods: Sequence[PoolPod]) -> None:
        if plan.pool_standing is not None:
            planned = self._plans.prepare(plan)
            await asyncio.gather(*(self._ask(operations.drop_pool_pod(planned, pod)) for pod in pods))

    async def reset(self, plan: CounterPlan, at_us: int, seconds: int | None = None) -> bool:
        planned, scopes = self._plans.prepare(plan), [""]
        if plan.per_namespace:
            (scopes,) = await self._ask(operations.list_counting_scopes(planned))
        done = [await self._ask(operations.reset_windows(planned, scope, at_us, seconds)) for scope in scopes]
        return any(any_held for (any_held,) in done)

    async def _find_charge(self, plan: CounterPlan, uid: str) -> ChargedPod | None:
        """Return what a Pod was charged to; None if the store has no record of it."""
        answer = await self._ask(operations.find_charge(self._plans.prepare(plan), uid))
        if not answer:
            return None
        charge = ChargeAnswer(*answer)
        keys = self._plans.make_keys(plan, charge.service, fleet=charge.fleet)
        return ChargedPod(charge.service, keys, charge.scope)


def _encode_place(page: LivePageAnswer) -> str:
    """Return where the next page begins, "" after the last one: its cursor, and what was found before it."""
    return "" if page.cursor == _START else msgspec.json.encode((page.cursor, page.found)).decode()


def _decode_place(after: str) -> tuple[str, Any]:
    return msgspec.json.decode(after, type=tuple[str, Any]) if after else (_START, False)


def split_scopes(scopes: Sequence[str]) -> list[Sequence[str]]:
    """Return the scopes of each call: one call at least, also about none."""
    starts = range(0, max(1, len(scopes)), _SCOPES_PER_CALL_MAX)
    return [scopes[start : start + _SCOPES_PER_CALL_MAX] for start in starts]
