"""`ports.PodLedger` on Redis, and what else is asked of single Pods after their admission."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.keys import PlanKeys
from webhook.adapters.redis_store.plans import PlanCache
from webhook.core.quota import Booking, CounterPlan, Seen, Sighting, UnseenPod

POD_STRINGS = (1,)
"""Which of a Pod's own keys hold a string."""

_BEGIN = "0"


class PodQuestions(ABC):
    """Operations that may wait, and that a store carries out for whoever follows Pods."""

    def __init__(self, plans: PlanCache) -> None:
        self._plans = plans

    @abstractmethod
    async def _ask(
        self, plan: CounterPlan, request: Sequence[Any], keys: tuple[str, ...] = (), strings: tuple[int, ...] = ()
    ) -> Any:
        """Carry out one operation of the script, with these keys of its own, of which some hold strings."""

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        charged = await self._charged(plan, uid)
        if charged is None:
            await self._strike(plan, uid)
            return False
        then, scope = charged
        there = then.ring_of(scope), then.pod(uid), then.home, then.breaker, then.live_of(scope)
        (given_back,) = await self._ask(plan, ("refund",), there, (1, 3))
        return bool(given_back)

    async def _charged(self, plan: CounterPlan, uid: str) -> tuple[PlanKeys, str] | None:
        """Return the keys and the scope that a Pod was charged under, None where that is not known.

        Only the record says so, and a script must be told its keys beforehand.
        """
        charged = await self._ask(plan, ("record",), (self._plans.of(plan).keys.pod(uid),), (0,))
        if not charged:
            return None
        service, scope, fleet = charged
        return self._plans.keys(plan, service, fleet=fleet), scope

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        keys = self._plans.of(plan).keys
        booked = await asyncio.gather(*(self._book(plan, keys, booking) for booking in bookings))
        return sum(booked)

    async def _book(self, plan: CounterPlan, keys: PlanKeys, booking: Booking) -> bool:
        scope = plan.scope_of(booking.namespace)
        request = codec.packed_booking(booking, scope)
        (booked,) = await self._ask(plan, request, own_keys(plan, keys, scope, booking.uid), POD_STRINGS)
        return bool(booked)

    async def observe(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        keys = self._plans.of(plan).keys
        return await asyncio.gather(*(self._see(plan, keys, seen) for seen in sightings))

    async def _see(self, plan: CounterPlan, keys: PlanKeys, seen: Sighting) -> Seen:
        scope = plan.scope_of(seen.namespace)
        request = codec.packed_sighting(seen, scope)
        return Seen(*await self._ask(plan, request, own_keys(plan, keys, scope, seen.uid), POD_STRINGS))

    async def overdue(self, plan: CounterPlan, age_us: int, most: int) -> Sequence[UnseenPod]:
        waiting = await self._ask(plan, ("overdue", age_us, most))
        keys = self._plans.of(plan).keys
        # Only records say where they were to be, and a script must be told its keys beforehand.
        places = await asyncio.gather(*(self._ask(plan, ("place",), (keys.pod(uid),), (0,)) for uid, _ in waiting))
        found = []
        for (uid, waited_us), (place, service) in zip(waiting, places, strict=True):
            namespace, _, name = place.partition("/")
            found.append(UnseenPod(uid, namespace, name, waited_us, service))
        return found

    async def stop_waiting(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        await asyncio.gather(*(self._let_be(plan, uid) for uid in uids))

    async def _let_be(self, plan: CounterPlan, uid: str) -> None:
        charged = await self._charged(plan, uid)
        if charged is None:
            await self._strike(plan, uid)
        else:
            then, scope = charged
            await self._strike(plan, uid, then.live_of(scope))

    async def _strike(self, plan: CounterPlan, uid: str, *live: str) -> None:
        """Wait for a Pod no longer, and take it off the live where it is told in which they are."""
        await self._ask(
            plan, ("stop_waiting",) if live else ("stop_waiting", 0), (self._plans.of(plan).keys.pod(uid), *live)
        )

    async def scopes(self, plan: CounterPlan) -> Sequence[str]:
        keys = self._plans.of(plan).keys
        known = await self._ask(plan, ("lived",)) if plan.per_namespace else [""]
        counts = await self._ask(plan, ("standing",), tuple(keys.live_of(scope) for scope in known))
        return sorted(scope for scope, count in zip(known, counts, strict=True) if count)

    async def live(self, plan: CounterPlan, scope: str, after: str = "") -> tuple[Sequence[str], str]:
        key = self._plans.of(plan).keys.live_of(scope)
        uids, cursor = await self._ask(plan, ("page", after or _BEGIN), (key,))
        return uids, "" if cursor == _BEGIN else cursor

    async def mark_complete(self, plan: CounterPlan, scopes: Sequence[str]) -> None:
        keys = self._plans.of(plan).keys
        await self._ask(plan, ("mark_complete",), tuple(keys.live_of(scope) for scope in scopes if scope))

    async def reset(self, plan: CounterPlan, at_us: int, seconds: int | None = None) -> bool:
        keys, scopes = self._plans.of(plan).keys, [""]
        if plan.per_namespace:
            (scopes,) = await self._ask(plan, ("scopes",))
        done = [await self._ask(plan, ("reset", at_us, seconds or False), (keys.ring_of(scope),)) for scope in scopes]
        return any(any_held for (any_held,) in done)


def own_keys(plan: CounterPlan, keys: PlanKeys, scope: str, uid: str) -> tuple[str, ...]:
    """Return the keys of one Pod: ring, record, live Pods (where nothing limits them, the record stands in)."""
    pod = keys.pod(uid)
    return keys.ring_of(scope), pod, keys.live_of(scope) if plan.standing else pod
