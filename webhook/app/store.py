"""Where counters live: in this process, or in a Redis that replicas share; which of them, the settings say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from webhook.adapters.memory_store import MemoryStore
from webhook.app.cluster import Loop
from webhook.app.telemetry import Telemetry
from webhook.core.reporting.status import ReplicaAssignment
from webhook.ports import BreakerLedger, Clock, CounterStore, PodLedger
from webhook.settings import MEMORY, Settings
from webhook.store import StoreFallback
from webhook.store.breaker_ticker import LATE_US

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import ServerLeases

_REDIS = "redis"


class Ledger(CounterStore, PodLedger, BreakerLedger, Protocol):
    """All that a store does, for who leads: nothing stands between."""


@dataclass(frozen=True, slots=True)
class StoreBackend:
    """The counters. `kind` is for people; `loops` run beside all calls, and `close` comes after the last."""

    kind: str
    counters: CounterStore
    close: Callable[[], Awaitable[None]]
    ledger: Ledger
    loops: tuple[Loop, ...] = ()


def open_store(
    settings: Settings, telemetry: Telemetry, clock: Clock, servers: "ServerLeases | None" = None
) -> StoreBackend:
    """Return the store that the settings name; asks nothing of it yet, so that a Redis may come later.

    `servers` tells how many share it, where the settings do not.
    """
    if settings.store == MEMORY:
        memory = MemoryStore(clock, late_us=LATE_US)
        return StoreBackend(MEMORY, memory, _nothing, memory)
    from webhook.adapters import redis_store  # noqa: PLC0415  its library takes long to load: only where it is wanted

    redis = redis_store.RedisStore(
        redis_store.open_transport(settings.store, settings.store_files),
        settings.cluster,
        clock,
        telemetry.store_reports(),
        deadline_seconds=settings.store_deadline_seconds,
        late_us=LATE_US,
        announcement_reports=telemetry.announcement_reports(),
    )
    reports = telemetry.fallback_reports()
    replicas = ReplicaAssignment(
        settings.replicas or 1, settings.ordinal, "default" if settings.replicas is None else "settings"
    )
    guard = StoreFallback(redis, clock, reports, replicas=replicas.count, ordinal=replicas.ordinal, late_us=LATE_US)
    telemetry.shared_by(replicas)
    redis.on_loss, redis.on_missed, redis.settled.owes = guard.lost, guard.missed, guard.owes

    def counted(count: int, ordinal: int) -> None:
        guard.set_replicas(count, ordinal)
        telemetry.shared_by(ReplicaAssignment(count, ordinal, "leases"))

    if servers is not None:
        servers.on_count = counted

    async def close() -> None:
        await guard.close()
        await redis.close()

    return StoreBackend(_REDIS, guard, close, redis, (redis.follow,))


async def _nothing() -> None:
    """Do nothing: there is no connection."""
