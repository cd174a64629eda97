"""Composition of the counter store: in this process, or in a Redis that replicas share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from webhook.adapters.memory_queue_index import MemoryQueueIndex
from webhook.adapters.memory_rollout_counts import MemoryRolloutCounts
from webhook.adapters.memory_slots import MemorySlots
from webhook.adapters.memory_store import MemoryStore
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.core.quota import Acquire
from webhook.core.reporting.status import ReplicaAssignment
from webhook.core.reporting.status_parts import StorePlace, StoreServers
from webhook.fallback import StoreFallback
from webhook.fallback.breaker_ticker import LATE_US
from webhook.ports import (
    BreakerLedger,
    Clock,
    CounterStore,
    GroupCharges,
    PodLedger,
    QueueIndex,
    RolloutCounts,
    SharedDecisions,
    SlotOwners,
    SlotStore,
)
from webhook.ports.store_url import StoreUrl
from webhook.settings import MEMORY, Settings
from webhook.slots import SlotChooser, SlotReports

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import ServerLeases
    from webhook.adapters.redis_store import RedisStore

_REDIS = "redis"
_NOWHERE = StorePlace()


class Ledger(CounterStore, GroupCharges, PodLedger, BreakerLedger, Protocol):
    """All operations of a store, without the fallback: for the controller."""


async def _read_no_servers() -> StoreServers:
    """Return no server: the counters are in this process."""
    return StoreServers()


@dataclass(frozen=True, slots=True)
class StoreBackend:
    """The counters. `kind` is for display; `loops` run until shutdown, and `close` is the last call."""

    kind: str
    counters: CounterStore
    close: Callable[[], Awaitable[None]]
    ledger: Ledger
    queue: QueueIndex
    counts: RolloutCounts
    """Counts of decisions by policy, of all replicas."""
    slots: SlotStore
    spare_slots: SlotStore | None = None
    """Slots of this server alone, for as long as the store does not answer."""
    loops: tuple[Loop, ...] = ()
    book_later: Callable[[Acquire], None] = lambda _: None
    """Receives each Pod that is admitted uncounted; a store in this process always answers."""
    servers: Callable[[], Awaitable[StoreServers]] = _read_no_servers
    follow_losses: Callable[[Callable[[], None]], None] = lambda _: None
    """Adds a receiver of losses: what the store has acknowledged may be gone."""
    decisions: SharedDecisions | None = None
    """Decision records of all replicas; None if each has only its own."""
    place: StorePlace = _NOWHERE


def open_store(
    settings: Settings, telemetry: Telemetry, clock: Clock, servers: "ServerLeases | None" = None
) -> StoreBackend:
    """Return the configured store. It is not connected yet: Redis may become available later.

    `servers` counts the servers that share it, unless the settings give their number.
    """
    if settings.store == MEMORY:
        return _open_memory_store(settings, clock)
    from webhook.adapters import redis_store  # noqa: PLC0415  its library takes long to load

    transport = redis_store.open_transport(settings.store, settings.store_files)
    shared = settings.shared_decisions
    decisions = redis_store.RedisDecisions(transport, settings.cluster, shared) if shared else None
    redis = redis_store.RedisStore(
        transport,
        settings.cluster,
        clock,
        telemetry.build_store_reports(),
        deadline_seconds=settings.store_deadline_seconds,
        late_us=LATE_US,
        announcement_reports=telemetry.build_announcement_reports(),
    )
    counts = redis_store.RedisRolloutCounts(transport, settings.cluster, redis.now_us)
    fallback = _open_fallback(redis, settings, telemetry, clock, servers)
    receivers = [fallback.on_loss]

    def on_loss() -> None:
        for receive in receivers:
            receive()

    async def close() -> None:
        if decisions is not None:
            await decisions.close()
        await counts.close()
        await fallback.close()
        await redis.close()

    redis.on_loss = on_loss
    return StoreBackend(
        *(_REDIS, fallback, close, redis, redis.queue, counts, redis.slots),
        spare_slots=MemorySlots(clock),
        loops=(redis.follow,),
        book_later=fallback.book_later,
        servers=redis.servers,
        follow_losses=receivers.append,
        decisions=decisions,
        place=find_store_place(settings.store, settings.cluster),
    )


def _open_fallback(
    redis: "RedisStore", settings: Settings, telemetry: Telemetry, clock: Clock, servers: "ServerLeases | None"
) -> StoreFallback:
    """Return what stands before a Redis, and tell it how many servers share it."""
    reports = telemetry.build_fallback_reports()
    replicas = ReplicaAssignment(
        settings.replicas or 1, settings.ordinal, "default" if settings.replicas is None else "settings"
    )
    fallback = StoreFallback(redis, clock, reports, replicas=replicas.count, ordinal=replicas.ordinal, late_us=LATE_US)
    telemetry.set_replicas(replicas)
    redis.on_missed, redis.settled.owes = fallback.on_missed, fallback.owes

    def on_count(count: int, ordinal: int) -> None:
        fallback.set_replicas(count, ordinal)
        telemetry.set_replicas(ReplicaAssignment(count, ordinal, "leases"))

    if servers is not None:
        servers.on_count = on_count
    return fallback


def _open_memory_store(settings: Settings, clock: Clock) -> StoreBackend:
    memory, place = MemoryStore(clock, late_us=LATE_US), StorePlace(settings.cluster)
    index, counts = MemoryQueueIndex(clock), MemoryRolloutCounts(clock)
    return StoreBackend(
        MEMORY, memory, _close_nothing, memory, index, counts, MemorySlots(clock), MemorySlots(clock), place=place
    )


def build_slot_chooser(store: StoreBackend, telemetry: Telemetry, owners: SlotOwners | None) -> SlotChooser:
    slots = telemetry.metrics.slots
    reports = SlotReports(slots.count_claim, slots.count_list)
    chooser = SlotChooser(store.slots, store.counters, owners, spare=store.spare_slots, reports=reports)
    store.follow_losses(chooser.on_loss)
    return chooser


def find_store_place(store: str, cluster: str) -> StorePlace:
    """Return where the counters of a valid Redis URL are."""
    return StorePlace(cluster, StoreUrl.parse(store).database)


async def _close_nothing() -> None:
    """Do nothing: there is no connection."""
