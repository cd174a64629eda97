"""ScriptCaller: one call of the script for many operations; on a Cluster, one call per tag, concurrently."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.breakers.cache import BreakerCache
from webhook.adapters.redis_store.keys import probe_key
from webhook.adapters.redis_store.operations import ScriptOperation
from webhook.adapters.redis_store.plans import PreparedPlan
from webhook.adapters.redis_store.settled_mark import SettledMark
from webhook.adapters.redis_store.store_clock import StoreClock
from webhook.adapters.redis_store.transport.protocol import Transport

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

    async def run(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        """Return the results in the order of the operations; a result that is a string is that operation's error."""
        if not self._transport.one_tag_a_call:
            return await self._call(operations)
        by_tag: dict[str, list[int]] = {}
        for index, operation in enumerate(operations):
            by_tag.setdefault(operation.planned.plan.tag, []).append(index)
        calls = [self._call([operations[index] for index in indices]) for indices in by_tag.values()]
        results: list[Any] = [None] * len(operations)
        for indices, answers in zip(by_tag.values(), await asyncio.gather(*calls), strict=True):
            for index, answer in zip(indices, answers, strict=True):
                results[index] = answer
        return results

    async def probe(self, tag: str) -> None:
        """Return if calls with this tag would succeed, raise otherwise: the probe runs the script, and writes."""
        header = self._header(plans=0, size=4)
        argument = codec.stream((*header, 0, "probe", 0, 1))
        (result,) = _decode(await self._transport.run([probe_key(self._cluster, tag)], argument))
        if isinstance(result, str):
            raise ResponseError(result)

    async def _call(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        keys: dict[str, int] = {}
        numbers: dict[int, int] = {}
        plans: list[Any] = []
        asked: list[tuple[Any, ...]] = []
        for operation in operations:
            planned = operation.planned
            number = numbers.get(id(planned))
            if number is None:
                number = numbers[id(planned)] = len(numbers) + 1
                plans += self._plan(planned, keys)
            own = [keys.setdefault(key, len(keys) + 1) for key in operation.keys]
            name, *arguments = operation.request
            asked.append((name, number, *own, *arguments))
        values = [*self._header(len(numbers), 1 + len(asked[0])), *plans]
        for following, one in zip((*asked[1:], ()), asked, strict=True):
            values += (1 + len(following) if following else 0, *one)
        results: Sequence[Any] = _decode(await self._transport.run(list(keys), codec.stream(values)))
        return results

    def _header(self, plans: int, size: int) -> tuple[Any, ...]:
        """Return the values before the plans; `size` is the number of values of the first operation."""
        return self._clock.given_us(), self._late_us, self._breakers.opened(), plans, size

    def _plan(self, planned: PreparedPlan, keys: dict[str, int]) -> tuple[Any, ...]:
        """Return a plan as the script reads it; add its keys to those of the call."""
        own = planned.keys
        named = own.home, own.ring, own.breaker, own.waits, own.live
        numbers = [keys.setdefault(key, len(keys) + 1) for key in named]
        is_counted, settled = self._breakers.counts(planned.plan.key), self._settled.of(planned)
        uid_at = len(own.pods) + 1
        return planned.packed, *numbers, uid_at, is_counted, settled, planned.details_bytes, planned.details
