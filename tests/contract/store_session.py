"""A store on one connection and one event loop for many examples, because connecting is slow."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.redis_servers import RedisServer, names
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.ports import Clock, CounterStore, StoreReports

MEMORY = "memory"
STORES = (MEMORY, *names())
WHOLE = (MEMORY, "redis-8.2")
"""These try half of the examples; the other servers try a sixth. In `make soak` each tries 2,000."""

_EXAMPLES = os.environ.get("PODGATE_TEST_EXAMPLES")
_IS_SHORT = "PODGATE_TEST_SHORT" in os.environ


def count_examples(kind: str, usual: int) -> int:
    """Return how many examples to try on a store of that kind."""
    if _EXAMPLES:
        return int(_EXAMPLES)
    return usual // 2 if kind in WHOLE and not _IS_SHORT else usual // 6


@dataclass
class Stage:
    """Each example takes new names, so that earlier examples do not count."""

    kind: str
    store: CounterStore
    runner: asyncio.Runner
    reports: list[str] = field(default_factory=list)
    """What the store reported besides its answers: troubles and losses."""
    _examples: int = 0

    def name(self) -> str:
        self._examples += 1
        return str(self._examples)


@contextmanager
def open_stage(
    kind: str, clock: Clock, shared_redis: Callable[[str], RedisServer], *, late_us: int = 0
) -> Iterator[Stage]:
    """Yield a stage with a store of that kind, whose time is `clock`."""
    with asyncio.Runner() as runner:
        if kind == MEMORY:
            yield Stage(kind, MemoryStore(clock, late_us=late_us), runner)
            return
        reports: list[str] = []
        redis = RedisStore(
            open_transport(shared_redis(kind).url),
            "staged",
            clock,
            StoreReports(int, lambda failure: reports.append(str(failure)), str),
            deadline_seconds=30,  # nothing here is about time
            late_us=late_us,
            time_us=clock.now_us,
            on_loss=lambda: reports.append("lost"),
        )
        try:
            yield Stage(kind, redis, runner, reports)
        finally:
            runner.run(redis.close())
