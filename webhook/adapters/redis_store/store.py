"""`ports.CounterStore` on Redis: every operation is one in a call of the script, whose results are told as values."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from redis.asyncio import Redis
from redis.exceptions import RedisError

from webhook.adapters.redis_store import script, wire
from webhook.adapters.redis_store.batch import Batch, Operation
from webhook.adapters.redis_store.keys import Keys
from webhook.core.breaker import BreakerView, State, Transition
from webhook.core.quota import Acquire, CounterPlan, Look, Receipt
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, Outcome, WatchReports

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class RedisStore:
    """Counters of one cluster. Time is Redis' own, but for a replay, whose clock only it knows (`time_us`)."""

    def __init__(
        self,
        client: Redis,
        cluster: str,
        clock: Clock,
        reports: WatchReports,
        *,
        deadline_seconds: float,
        time_us: Callable[[], int] | None = None,
    ) -> None:
        self._client = client
        self._keys = Keys(cluster)
        self._clock = clock
        self._reports = reports
        self._time_us = time_us
        self._batch = Batch(self._send, deadline_seconds, self._tell)
        self._packed: dict[tuple[str, str], tuple[CounterPlan, Raw]] = {}
        self._views: dict[tuple[str, str], BreakerView] = {}
        self._ahead_us = 0
        """How far Redis' clock is before ours."""
        self._trouble = ""

    async def acquire(self, request: Acquire) -> Receipt:
        plan = request.plan
        scope = request.namespace if plan.per_namespace else ""
        keys = self._keys
        ring = keys.ring(plan)
        named = (ring, keys.ring(plan, scope) if scope else ring, keys.breaker(plan), keys.pod(plan, request.uid))
        asked = Operation(plan, named, wire.packed_acquire(request, scope))
        receipt = wire.receipt(plan, self._checked(await self._batch.ask(asked)))
        self._learn(plan, receipt.breaker, receipt.at_us)
        return receipt

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        keys = self._keys
        # Only the record says where it was charged, and a script must be told its keys beforehand.
        record = await self._own(self._client.get(keys.pod(plan, uid)))
        scope = _decode(record)[2] if record else ""
        named = (keys.ring(plan), keys.ring(plan, scope), keys.breaker(plan), keys.pod(plan, uid))
        (given_back,) = await self._ask(plan, named, ["refund", uid])
        return bool(given_back)

    async def outcome(self, plan: CounterPlan, outcome: Outcome) -> Sequence[Transition]:
        if plan.breaker is None:
            return ()
        named = (self._keys.ring(plan), self._keys.breaker(plan))
        moves, view, now_us = await self._ask(plan, named, wire.packed_outcome(outcome))
        self._learn(plan, wire.breaker_view(view), now_us)
        return wire.transitions(plan, moves)

    async def look(self, plan: CounterPlan, namespace: str = "") -> Look:
        scopes = [""]
        if plan.per_namespace:
            (counting,) = await self._ask(plan, (self._keys.ring(plan),), ["scopes"])
            scopes = sorted({*counting, *([namespace] if namespace else [])})
        rings = (self._keys.ring(plan, scope) for scope in scopes)
        named = (self._keys.ring(plan), self._keys.breaker(plan), *rings)
        now_us, judged, view = await self._ask(plan, named, ["look"])
        breaker = wire.breaker_view(view)
        self._learn(plan, breaker, now_us)
        uses = {scope: wire.uses(plan, figures) for scope, figures in zip(scopes, judged, strict=True)}
        return Look(now_us, uses if plan.windows else {}, breaker)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        planned = {_key(plan) for plan in plans}
        for gone in self._packed.keys() - planned:
            del self._packed[gone]
            self._views.pop(gone, None)
        ticked = await asyncio.gather(*(self._tick(plan) for plan in plans), return_exceptions=True)
        for result in ticked:
            if isinstance(result, BaseException):
                raise result
        return [move for moves in ticked if not isinstance(moves, BaseException) for move in moves]

    async def _tick(self, plan: CounterPlan) -> Sequence[Transition]:
        named = (self._keys.ring(plan), self._keys.breaker(plan))
        moves, view, now_us = await self._ask(plan, named, ["tick"])
        self._learn(plan, wire.breaker_view(view), now_us)
        return wire.transitions(plan, moves)

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return a breaker that is known to be OPEN until a moment that has not come; of others only Redis knows."""
        view = self._views.get(_key(plan))
        if plan.breaker is None or view is None or view.state is not State.OPEN:
            return None
        return view if view.open_until_us > self._now_us() else None

    async def ping(self) -> None:
        """Make sure that somebody is there; StoreUnavailableError says why not."""
        await self._own(self._client.ping())

    async def close(self) -> None:
        await self._batch.close()
        await self._client.aclose()

    async def forget(self) -> None:
        """Delete all keys of this cluster: for a replay, which leaves nothing behind."""
        keys = [key async for key in self._client.scan_iter(match=self._keys.all_of_cluster(), count=1000)]
        if keys:
            await self._client.unlink(*keys)

    def _now_us(self) -> int:
        return self._time_us() if self._time_us else self._clock.now_us() + self._ahead_us

    def _learn(self, plan: CounterPlan, view: BreakerView | None, now_us: int) -> None:
        if view is not None:
            self._views[_key(plan)] = view
        if self._time_us is None:
            self._ahead_us = now_us - self._clock.now_us()

    async def _ask(self, plan: CounterPlan, keys: tuple[str, ...], request: Sequence[Any]) -> Any:
        return self._checked(await self._batch.ask_patiently(Operation(plan, keys, request)))

    def _checked(self, result: Any) -> Any:
        if isinstance(result, str):  # the words of an error
            self._tell(result)
            raise StoreUnavailableError(result)
        return result

    async def _send(self, operations: Sequence[Operation]) -> Sequence[Any]:
        plans = {id(operation.plan): operation.plan for operation in operations}
        numbers = {plan: number for number, plan in enumerate(plans, 1)}
        keys: dict[str, int] = {}
        packed = [
            (
                numbers[id(operation.plan)],
                [keys.setdefault(key, len(keys) + 1) for key in operation.keys],
                operation.request,
            )
            for operation in operations
        ]
        now_us = self._time_us() if self._time_us else False
        argument = _encode([now_us, [self._plan(plan) for plan in plans.values()], packed])
        answer = await self._own(script.run(self._client.connection_pool, list(keys), argument))
        results: Sequence[Any] = _decode(answer)
        return results

    def _plan(self, plan: CounterPlan) -> Raw:
        """Return the packed plan, worked out once; to compare plans would cost more than to pack one."""
        known = self._packed.get(_key(plan))
        if known is None or known[0] is not plan:
            known = self._packed[_key(plan)] = plan, wire.packed_plan(plan)
        return known[1]

    async def _own(self, call: Any) -> Any:
        """Await a call of the client; its errors become ours, told once until one succeeds."""
        try:
            result = await call
        except (RedisError, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            self._tell(reason)
            raise StoreUnavailableError(reason) from error
        if self._trouble:
            self._reports.on_over(self._trouble)
            self._trouble = ""
        self._reports.on_contact()
        return result

    def _tell(self, reason: str) -> None:
        if reason != self._trouble:
            if self._trouble:
                self._reports.on_over(self._trouble)
            self._trouble = reason
            self._reports.on_trouble(reason)


def _key(plan: CounterPlan) -> tuple[str, str]:
    return plan.tag, plan.service
