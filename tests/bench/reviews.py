"""Reviews in this process, over a store in memory or in Redis: without HTTP, TLS and observers."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvloop

from tests.bench.opcode_counts import count_opcodes
from tests.bench.traffic import renew
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import SystemClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_slots import MemorySlots
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.admission.decision import Half
from webhook.core.document import Purpose, load
from webhook.interceptor import Answer, Interceptor
from webhook.observers import Observers
from webhook.ports import Caller, StoreReports
from webhook.slots import SlotChooser

AT_ONCE = 16
"""Reviews of one turn: what they ask of Redis shares a call."""
_CALLER = Caller("apiserver", "bench", "issuer", "subject", "CN=kube-apiserver")


class Reviews:
    """An interceptor over one store. `namespaces` exist, without labels."""

    def __init__(self, policy: str, namespaces: Sequence[str], redis: RedisServer | None) -> None:
        clock = SystemClock()
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        if redis is None:
            store: Any = MemoryStore(clock)
            slots: Any = MemorySlots(clock)
        else:
            store = RedisStore(
                open_transport(redis.url), "default", clock, StoreReports(str, str, str), deadline_seconds=10
            )
            slots = store.slots
        self._store = None if redis is None else store
        loaded = load(policy.encode(), Purpose.LINT).policy
        self.policy_hash = loaded.hash
        self._interceptor = Interceptor(
            FixedPolicy(loaded, clock),
            store,
            FixedNamespaces({name: {} for name in namespaces}),
            Observers(),
            pod_slots=SlotChooser(slots, store),
        )

    def review(self, half: Half, bodies: Sequence[bytes]) -> Answer:
        """Review these, AT_ONCE at once, and return the last answer."""
        return self._loop.run_until_complete(self._review(half, bodies))

    def count_opcodes(self, half: Half, texts: Sequence[str], count: int) -> int:
        """Return the opcodes of one of `count` reviews of new Pods, which alternate between the texts."""
        bodies = [renew(texts[number % len(texts)]) for number in range(count)]
        opcodes, _ = count_opcodes(lambda: self.review(half, bodies))
        return round(opcodes / count)

    async def _review(self, half: Half, bodies: Sequence[bytes]) -> Answer:
        for first in range(0, len(bodies), AT_ONCE):
            calls = (self._interceptor.review(half, body, _CALLER) for body in bodies[first : first + AT_ONCE])
            answers = await asyncio.gather(*calls)
        return answers[-1]

    def close(self) -> None:
        if self._store is not None:
            self._loop.run_until_complete(self._store.close())
        self._loop.close()


@contextmanager
def open_reviews(policy: str, namespaces: Sequence[str], redis: RedisServer | None) -> Iterator[Reviews]:
    reviews = Reviews(policy, namespaces, redis)
    try:
        yield reviews
    finally:
        reviews.close()
