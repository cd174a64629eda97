"""Where counters live: in this process, or in a Redis that replicas share; which of them, the settings say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from webhook.adapters.memory_store import MemoryStore
from webhook.ports import Clock, CounterStore
from webhook.settings import MEMORY, Settings
from webhook.store_guard import StoreGuard
from webhook.wiring.telemetry import Telemetry

_REDIS = "redis"


@dataclass(frozen=True, slots=True)
class Store:
    """The counters. `kind` is for people; `close` comes after the last call."""

    kind: str
    counters: CounterStore
    close: Callable[[], Awaitable[None]]


def open_store(settings: Settings, telemetry: Telemetry, clock: Clock) -> Store:
    """Return the store that the settings name; asks nothing of it yet, so that a Redis may come later."""
    if settings.store == MEMORY:
        return Store(MEMORY, MemoryStore(clock), _nothing)
    from webhook.adapters import redis_store  # noqa: PLC0415  its library takes long to load: only where it is wanted

    redis = redis_store.RedisStore(
        redis_store.open_link(settings.store, settings.store_files),
        settings.cluster,
        clock,
        telemetry.store_reports(),
        deadline_seconds=settings.store_deadline_seconds,
    )
    reports = telemetry.guard_reports()
    guard = StoreGuard(redis, clock, reports, replicas=settings.replicas, ordinal=settings.ordinal)
    redis.on_loss = guard.lost

    async def close() -> None:
        await guard.close()
        await redis.close()

    return Store(_REDIS, guard, close)


async def _nothing() -> None:
    """Do nothing: there is no connection."""
