"""ScriptCaller: one call of the script for many operations; on a Cluster, one call per tag, concurrently."""

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from redis.exceptions import ResponseError, TryAgainError

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.breaker_cache import BreakerCache
from webhook.adapters.redis_store.error_classes import MOVING
from webhook.adapters.redis_store.keys import probe_key
from webhook.adapters.redis_store.loss_detector import SettledMark
from webhook.adapters.redis_store.operations import ACQUIRE, QUEUE, SLOTS, ScriptOperation
from webhook.adapters.redis_store.plans import PreparedPlan
from webhook.adapters.redis_store.store_clock import StoreClock
from webhook.adapters.redis_store.transport.protocol import Transport

_Group = dict[int, ScriptOperation]
"""Operations of one tag, by their positions in a batch."""

_decode = msgspec.msgpack.Decoder().decode


class ScriptCaller:
    """Encodes operations, runs them on the transport, and decodes the answers.

    `late_us`: how long breakers wait for outcomes of an interval that has ended.
    """

    def __init__(
        self,
        transport: Transport,
        cluster: str,
        clock: StoreClock,
        breakers: BreakerCache,
        settled: SettledMark,
        late_us: int,
    ) -> None:
        self._transport = transport
        self._cluster = cluster
        self._clock = clock
        self._breakers = breakers
        self._settled = settled
        self._late_us = late_us
        self._asked = 0
        """Services in running calls of all nodes of a Cluster, as `_count_services` counts them."""

    def run(self, operations: Sequence[ScriptOperation]) -> Awaitable[Sequence[Any]]:
        """Return the results in the order of the operations; a result that is a string is that operation's error."""
        return self._call_by_tag(operations) if self._transport.one_tag_a_call else self._call(operations)

    async def _call_by_tag(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        by_tag: dict[str, _Group] = {}
        for index, operation in enumerate(operations):
            by_tag.setdefault(operation.planned.plan.tag, {})[index] = operation
        waiting, results = deque(by_tag.values()), dict[int, Any]()
        while waiting:
            for answers in await asyncio.gather(*map(self._call_of_tag, self._take_calls(waiting))):
                results.update(answers)
        return [results[index] for index in range(len(operations))]

    async def probe(self, tag: str) -> None:
        """Return if calls with this tag would succeed, raise otherwise: the probe runs the script, and writes."""
        probe = 0, "probe", 0, 1  # no operation follows, and no plan; its key is the first one
        argument = codec.encode_values((*self._make_header(0, len(probe)), *probe))
        (result,) = _decode(await self._transport.run([probe_key(self._cluster, tag)], argument))
        if isinstance(result, str):
            raise ResponseError(result)

    def _take_calls(self, waiting: deque[_Group]) -> Sequence[_Group]:
        """Remove and return calls to run at once: at least one; all if breakerGuard allows no breaker to open.

        A call does not know which breakers others open meanwhile. Each node takes half of the places that are left:
        as fewer are left, the calls of all nodes end sooner.
        """
        taken: list[_Group] = []
        may_open = self._breakers.count_room()
        places = max(0, may_open - self._asked) // 2 if may_open else math.inf
        while waiting and (not taken or _count_services(waiting[0]) <= places):
            taken.append(waiting.popleft())
            places -= _count_services(taken[-1])
        self._asked += sum(map(_count_services, taken))
        return taken

    async def _call_of_tag(self, group: _Group) -> Mapping[int, Any]:
        """Return the results by their positions; count the breakers that the call has opened."""
        try:
            results = await self._call_unless_moving([*group.values()])
            for operation, result in zip(group.values(), results, strict=True):
                plan = operation.planned.plan
                moves = () if isinstance(result, str) else codec.find_moves(operation.name, result)
                if any(transition.new.is_tripped for transition in codec.decode_transitions(plan, moves)):
                    self._breakers.mark_open(plan.key)
        finally:
            self._asked -= _count_services(group)
        return dict(zip(group, results, strict=True))

    async def _call_unless_moving(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        """Call; while the slot of their tag is moved to another node, only these operations fail."""
        try:
            return await self._call(operations)
        except TryAgainError as error:
            return [f"{MOVING} {error}"] * len(operations)

    async def _call(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        keys = defaultdict[str, int](count(1).__next__)
        number_of = keys.__getitem__
        numbers: dict[PreparedPlan, int] = {}
        plans: list[Any] = []
        asked: list[Any] = [0]
        size_at = 0  # index at which the number of values of the next operation goes
        for operation in operations:
            planned = operation.planned
            number = numbers.get(planned)
            if number is None:
                number = numbers[planned] = len(numbers) + 1
                plans += self._make_plan(planned, number_of)
            begin = len(asked)
            asked += (0, operation.name, number, *map(number_of, operation.keys), *operation.arguments)
            asked[size_at] = len(asked) - begin
            size_at = begin
        values = [*self._make_header(len(numbers), asked[0]), *plans, *asked[1:]]
        results: Sequence[Any] = _decode(await self._transport.run(list(keys), codec.encode_values(values)))
        return results

    def _make_header(self, plans: int, size: int) -> tuple[Any, ...]:
        """Return the values before the plans, HEADER; `size` is the number of values of the first operation."""
        return self._clock.get_replay_time(), self._late_us, self._breakers.count_open(), plans, size

    def _make_plan(self, planned: PreparedPlan, number_of: Callable[[str], int]) -> tuple[Any, ...]:
        """Return a plan as the script reads it; `number_of` returns the number of a key in the call."""
        is_counted, settled = self._breakers.is_counted(planned.plan.key), self._settled.make_mark(planned)
        return planned.head, *map(number_of, planned.key_names), is_counted, settled, planned.details  # PLAN_IN_CALL


def _count_services(group: _Group) -> int:
    """Return the number of services whose breakers may trip because time has passed.

    Acquires are left out, so that they need not wait for each other: they seldom evaluate an interval first.
    """
    named = (operation for operation in group.values() if operation.name not in {ACQUIRE, QUEUE, SLOTS})
    return len({operation.planned.plan.service for operation in named})
