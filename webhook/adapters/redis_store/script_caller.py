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
        argument = self._header((), 0) + codec.as_text(codec.stream(("probe", 0, 1)))
        (result,) = _decode(await self._transport.run([probe_key(self._cluster, tag)], argument))
        if isinstance(result, str):
            raise ResponseError(result)

    async def _call(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        keys: dict[str, int] = {}
        numbers: dict[int, int] = {}
        plans: list[bytes] = []
        strings: dict[int, None] = {}
        packed = []
        for planned, request, own_keys, own_strings in operations:
            number = numbers.get(id(planned))
            if number is None:
                number = numbers[id(planned)] = len(plans) + 1
                plans.append(self._packed(planned, keys, strings))
            name, *arguments = request
            own = [keys.setdefault(key, len(keys) + 1) for key in own_keys]
            for position in own_strings:
                strings[own[position]] = None
            packed.append(codec.as_text(codec.stream((name, number, *own, *arguments))))
        header = self._header(list(strings), len(plans))
        results: Sequence[Any] = _decode(await self._transport.run(list(keys), b"".join((header, *plans, *packed))))
        return results

    def _header(self, strings: Sequence[int], plans: int) -> bytes:
        packed_strings = codec.packed_list(strings)
        return codec.stream((self._clock.given_us(), self._late_us, self._breakers.opened(), packed_strings, plans))

    def _packed(self, planned: PreparedPlan, keys: dict[str, int], strings: dict[int, None]) -> bytes:
        """Return a plan as the script reads it; add its keys to those of the call."""
        own = planned.keys
        named = own.home, own.ring, own.breaker, own.waits, own.live
        home, index, breaker, waits, live = [keys.setdefault(key, len(keys) + 1) for key in named]
        strings[breaker] = None
        is_counted, settled = self._breakers.counts(planned.plan.key), self._settled.of(planned)
        values = home, index, breaker, waits, live, len(own.pods) + 1, is_counted, settled
        return planned.packed + codec.stream(values)
