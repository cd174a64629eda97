"""`ports.CounterStore` on Redis: every operation is one in a call of the script, whose results are told as values."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw
from redis.exceptions import RedisError, ResponseError

from webhook.adapters.redis_store import troubles, wire
from webhook.adapters.redis_store.batch import Batch, Operation, Probe
from webhook.adapters.redis_store.keys import PlanKeys, all_of
from webhook.adapters.redis_store.link import Link
from webhook.core.breaker import BreakerView, State, Transition
from webhook.core.ledger import scope_of
from webhook.core.quota import Acquire, Booking, CounterPlan, Holder, Look, Receipt
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, Outcome, WatchReports

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is worked out once of a plan."""

    plan: CounterPlan
    keys: PlanKeys
    packed: Raw
    longest_us: int


class RedisStore:
    """Counters of one cluster. Time is Redis' own, but for a replay, whose clock only it knows (`time_us`).

    `on_loss` is told when acknowledged writes may be lost: another process answers, or a counter began anew.
    """

    def __init__(
        self,
        link: Link,
        cluster: str,
        clock: Clock,
        reports: WatchReports,
        *,
        deadline_seconds: float,
        time_us: Callable[[], int] | None = None,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self._link = link
        self._cluster = cluster
        self._clock = clock
        self._reports = reports
        self._deadline_seconds = deadline_seconds
        self._time_us = time_us
        self.on_loss = on_loss
        self._lanes: dict[str, Batch] = {}
        self._planned: dict[tuple[str, str], _Planned] = {}
        self._views: dict[tuple[str, str], BreakerView] = {}
        self._births: dict[str, tuple[int, int]] = {}
        """By home: when its counters were born, and until when what we know of counts."""
        self._run_ids: dict[str, str] = {}
        self._ahead_us = 0
        """How far Redis' clock is before ours."""

    async def acquire(self, request: Acquire) -> Receipt:
        plan = request.plan
        keys, scope = self._keys(plan), scope_of(plan, request.namespace)
        own = keys.ring_of(scope), keys.pod(request.uid)
        asked = Operation(plan, own, wire.packed_acquire(request, scope), _POD_STRINGS)
        result = await self._lane(plan).ask(asked)
        receipt = wire.receipt(plan, result)
        self._learn(plan, receipt.breaker, receipt.at_us)
        if plan.limits:
            self._born(plan, keys.home, result[-1], receipt)
        return receipt

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        keys = self._keys(plan)
        # Only the record says where it was charged, and a script must be told its keys beforehand.
        charged = await self._ask(plan, ("record",), (keys.pod(uid),), (0,))
        if not charged:
            return False
        service, scope, fleet = charged
        then = PlanKeys.of(self._cluster, plan, service, fleet=fleet)
        there = then.ring_of(scope), keys.pod(uid), then.home, then.breaker
        (given_back,) = await self._ask(plan, ("refund",), there, (1, 3))
        return bool(given_back)

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        keys = self._keys(plan)
        booked = await asyncio.gather(*(self._book(plan, keys, booking) for booking in bookings))
        return sum(booked)

    async def _book(self, plan: CounterPlan, keys: PlanKeys, booking: Booking) -> bool:
        scope = scope_of(plan, booking.namespace)
        request = wire.packed_booking(booking, scope)
        (booked,) = await self._ask(plan, request, (keys.ring_of(scope), keys.pod(booking.uid)), _POD_STRINGS)
        return bool(booked)

    async def outcome(self, plan: CounterPlan, outcome: Outcome) -> Sequence[Transition]:
        if plan.breaker is None:
            return ()
        moves, view, now_us = await self._ask(plan, wire.packed_outcome(outcome))
        self._learn(plan, wire.breaker_view(view), now_us)
        return wire.transitions(plan, moves)

    async def look(self, plan: CounterPlan, namespace: str = "") -> Look:
        scopes, keys = [""], self._keys(plan)
        if plan.per_namespace:
            (counting,) = await self._ask(plan, ("scopes",))
            scopes = sorted({*counting, *([namespace] if namespace else [])})
        rings = tuple([keys.ring_of(scope) for scope in scopes])
        now_us, figures, pool, view = await self._ask(plan, ("look",), rings)
        breaker = wire.breaker_view(view)
        self._learn(plan, breaker, now_us)
        own = {scope: wire.uses(plan, Holder.SERVICE, found) for scope, found in zip(scopes, figures, strict=True)}
        return Look(now_us, own if plan.windows else {}, breaker, wire.uses(plan, Holder.POOL, pool))

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        planned = {_key(plan) for plan in plans}
        for gone in self._planned.keys() - planned:
            del self._planned[gone]
            self._views.pop(gone, None)
        homes = {self._keys(plan).home for plan in plans}
        self._births = {home: known for home, known in self._births.items() if home in homes}
        ticked = await asyncio.gather(*(self._tick(plan) for plan in plans), return_exceptions=True)
        with suppress(StoreUnavailableError):  # the ticks have told of it, and the next second asks again
            await self._identify()
        moves = [move for result in ticked if not isinstance(result, BaseException) for move in result]
        faults = [result for result in ticked if isinstance(result, BaseException)]
        if faults and not moves:
            raise faults[0]
        return moves  # on a Cluster, those of the services whose node is there

    async def _tick(self, plan: CounterPlan) -> Sequence[Transition]:
        moves, view, now_us = await self._ask(plan, ("tick",))
        self._learn(plan, wire.breaker_view(view), now_us)
        return wire.transitions(plan, moves)

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return a breaker that is known to be OPEN until a moment that has not come; of others only Redis knows."""
        view = self._views.get(_key(plan))
        if plan.breaker is None or view is None or view.state is not State.OPEN:
            return None
        return view if view.open_until_us > self.now_us() else None

    def now_us(self) -> int:
        """Return the store's time, as near as it is known here."""
        return self._time_us() if self._time_us else self._clock.now_us() + self._ahead_us

    async def ping(self) -> None:
        """Make sure that somebody is there; StoreUnavailableError says why not."""
        await _ours(self._link.ping())

    async def close(self) -> None:
        for lane in self._lanes.values():
            await lane.close()
        await self._link.close()

    async def forget(self) -> None:
        """Delete all keys of this cluster: for a replay, which leaves nothing behind."""
        await _ours(self._link.forget(all_of(self._cluster)))

    async def _identify(self) -> None:
        """Notice that another process answers than before: what the former one acknowledged last may be lost."""
        run_ids = await _ours(self._link.run_ids())
        # On a Cluster the next primary has another address: who was not there before is a stranger, too.
        strangers = [lane for lane, run_id in run_ids.items() if self._run_ids.get(lane) != run_id]
        is_first, self._run_ids = not self._run_ids, dict(run_ids)
        if strangers and not is_first:
            self.on_loss()

    def _born(self, plan: CounterPlan, home: str, born_us: int, receipt: Receipt) -> None:
        """Notice that counters began anew while something of ours should count in them: they were flushed, say."""
        known_us, until_us = self._births.get(home, (born_us, 0))
        if born_us != known_us and receipt.at_us < until_us:
            self._births.clear()
            until_us = 0
            self.on_loss()
        if receipt.charged and born_us:  # else nothing of it is limited, and nothing was counted
            self._births[home] = born_us, max(until_us, receipt.at_us + self._plan(plan).longest_us)

    def _learn(self, plan: CounterPlan, view: BreakerView | None, now_us: int) -> None:
        if view is not None:
            self._views[_key(plan)] = view
        if self._time_us is None:
            self._ahead_us = now_us - self._clock.now_us()

    def _keys(self, plan: CounterPlan) -> PlanKeys:
        return self._plan(plan).keys

    def _plan(self, plan: CounterPlan) -> _Planned:
        """Return what was worked out of the plan; to compare plans would cost more than to work it out."""
        known = self._planned.get(_key(plan))
        if known is None or known.plan is not plan:
            longest_us = max((window.seconds for _, window, _ in plan.limits), default=0) * 1_000_000
            keys = PlanKeys.of(self._cluster, plan, plan.service, fleet=plan.fleet)
            known = self._planned[_key(plan)] = _Planned(plan, keys, wire.packed_plan(plan), longest_us)
        return known

    def _lane(self, plan: CounterPlan) -> Batch:
        name = self._link.lane(plan.tag)
        lane = self._lanes.get(name)
        if lane is None:
            lane = Batch(self._send, self._probe_of(plan.tag), self._deadline_seconds, self._reports)
            self._lanes[name] = lane
        return lane

    def _probe_of(self, tag: str) -> Probe:
        """Return what finds out whether calls with a tag would succeed: it runs the script, and writes."""
        key = f"podgate:{{{tag}}}:v1:{self._cluster}:probe"
        argument = _encode((0, [], [], [("probe", 0, 1)]))

        async def probe() -> None:
            (result,) = _decode(await self._link.run([key], argument))
            if isinstance(result, str):
                raise ResponseError(result)

        return probe

    async def _ask(
        self, plan: CounterPlan, request: Sequence[Any], keys: tuple[str, ...] = (), strings: tuple[int, ...] = ()
    ) -> Any:
        return await self._lane(plan).ask_patiently(Operation(plan, keys, request, strings))

    async def _send(self, operations: Sequence[Operation]) -> Sequence[Any]:
        """Carry operations out: in one call, or on a Cluster in one for each tag, at the same time."""
        if not self._link.one_tag_a_call:
            return await self._call(operations)
        by_tag: dict[str, list[int]] = {}
        for index, operation in enumerate(operations):
            by_tag.setdefault(operation.plan.tag, []).append(index)
        calls = [self._call([operations[index] for index in indices]) for indices in by_tag.values()]
        results: list[Any] = [None] * len(operations)
        for indices, answers in zip(by_tag.values(), await asyncio.gather(*calls), strict=True):
            for index, answer in zip(indices, answers, strict=True):
                results[index] = answer
        return results

    async def _call(self, operations: Sequence[Operation]) -> Sequence[Any]:
        keys: dict[str, int] = {}
        numbers: dict[int, int] = {}
        plans: list[Any] = []
        strings: dict[int, None] = {}
        packed = []
        for operation in operations:
            number = numbers.get(id(operation.plan))
            if number is None:
                number = numbers[id(operation.plan)] = len(plans) + 1
                plans.append(self._told(operation.plan, keys, strings))
            kind, *asked = operation.request
            own = [keys.setdefault(key, len(keys) + 1) for key in operation.keys]
            for position in operation.strings:
                strings[own[position]] = None
            packed.append((kind, number, *own, *asked))
        now_us = self._time_us() if self._time_us else False
        argument = _encode((now_us, plans, list(strings), packed))
        results: Sequence[Any] = _decode(await self._link.run(list(keys), argument))
        return results

    def _told(self, plan: CounterPlan, keys: dict[str, int], strings: dict[int, None]) -> tuple[Any, ...]:
        """Return a plan as a call has it; its keys are added to the call's."""
        planned = self._plan(plan)
        named = planned.keys.home, planned.keys.ring, planned.keys.breaker
        home, index, breaker = [keys.setdefault(key, len(keys) + 1) for key in named]
        strings[breaker] = None
        return planned.packed, home, index, breaker, len(planned.keys.pods) + 1


async def _ours(call: Awaitable[Any]) -> Any:
    """Await a call of the link; its errors become ours."""
    try:
        return await call
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(troubles.described(error)) from error


_POD_STRINGS = (1,)


def _key(plan: CounterPlan) -> tuple[str, str]:
    # By tag too: a service that moves to another pool starts anew there.
    return plan.tag, plan.service
