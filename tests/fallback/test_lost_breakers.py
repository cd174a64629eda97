"""A Redis that lost a breaker's state receives it again from replicas: on real servers, by order and state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import BREAKER, HandClock
from tests.core.plans import plan_of, window
from tests.fallback.local_breakers import StoreLink
from tests.redis_servers import RedisProgram, RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.breaker import BreakerView, QuotaEventPlan, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import Acquire, DeniedBy
from webhook.errors import StoreUnavailableError
from webhook.fallback import FallbackReports, StoreFallback
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

EVENTS = QuotaEventPlan(count=1, within_us=60_000_000, by_controller=True)
PLAN = plan_of(window(60, pods=0), breaker=replace(BREAKER, quota=EVENTS))
"""One denied Pod opens the breaker. No test takes as long as its `openFor`."""

FAR_US = 4_000_000_000_000_000
_numbers = iter(range(10**9))


@asynccontextmanager
async def open_store(server: RedisServer, clock: HandClock | None = None) -> AsyncIterator[RedisStore]:
    reports, time_us = StoreReports(int, str, str), None if clock is None else clock.now_us
    link = open_transport(server.url)
    store = RedisStore(link, "test", clock or SystemClock(), reports, deadline_seconds=30, time_us=time_us)
    try:
        yield store
    finally:
        await store.close()


async def read_view(store: RedisStore) -> BreakerView:
    view = (await store.snapshot(PLAN)).breaker
    assert view is not None
    return view


async def ask(store: RedisStore, source: str = "controller:failing") -> DeniedBy | None:
    uid = f"uid-{next(_numbers)}"
    return (await store.acquire(Acquire(PLAN, "payments", uid, {"pods": 1}, source))).refused


async def trip(store: RedisStore, times: int = 1) -> BreakerView:
    """Open the breaker; before each further time it is reset."""
    for number in range(times):
        if number:
            await store.apply_override(PLAN, reset_at_us=FAR_US + number)
        assert await ask(store) is DeniedBy.QUOTA
    view = await read_view(store)
    assert (view.state, view.generation) == (State.OPEN, 2 * times - 1)
    return view


async def test_emptied_redis_receives_the_breaker_from_one_replica(redis_server: RedisServer) -> None:
    async with open_store(redis_server) as one, open_store(redis_server) as other:
        before = await trip(one)
        redis_server.cli("FLUSHALL")
        assert (await read_view(other)).state is State.CLOSED, "Redis has lost it"
        known = one.find_known_breaker(PLAN)
        assert known is not None, "this replica has not"
        assert known.state is State.OPEN
        assert await one.tick([PLAN]) == []
        after = await read_view(other)
        assert after == before
        assert await ask(other) is DeniedBy.BREAKER
        assert await ask(other, "controller:another") is DeniedBy.QUOTA, (
            "the failed controller is known: others may probe"
        )


async def test_older_answer_does_not_replace_the_known_view(redis_server: RedisServer) -> None:
    async with open_store(redis_server) as store:
        before = await trip(store)
        redis_server.cli("FLUSHALL")
        for _ in range(2):
            assert (await read_view(store)).state is State.CLOSED
            assert store.find_known_breaker(PLAN) == store.find_last_breaker(PLAN) == before
        await store.tick([PLAN])
        assert await read_view(store) == before


async def test_restart_with_data_keeps_the_breaker_open(redis_program: RedisProgram, tmp_path: Path) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with RedisServer(redis_program, tmp_path / "redis", *options) as server:
        async with open_store(server) as store:
            before = await trip(store, 2)
        server.kill()
        server.start()
        async with open_store(server) as other:
            assert await read_view(other) == before, "from its file, without a replica that knows it"


async def test_restart_without_data_keeps_the_breaker_open(own_redis_server: RedisServer) -> None:
    async with open_store(own_redis_server) as store:
        before = await trip(store, 2)
        await store.tick([PLAN])
        own_redis_server.restart(keep_data=False)
        with suppress(StoreUnavailableError):  # the connection was lost
            await store.tick([PLAN])
        async with asyncio.timeout(HANG_SECONDS):
            while (await read_view(store)).state is State.CLOSED:
                await store.tick([PLAN])
        async with open_store(own_redis_server) as other:
            assert await read_view(other) == before
            assert await ask(other) is DeniedBy.BREAKER


async def test_close_of_an_old_generation_does_not_undo_a_newer_trip(redis_server: RedisServer) -> None:
    async with open_store(redis_server) as one, open_store(redis_server) as other:
        newest = await trip(one, 3)
        for generation in range(newest.generation + 1):
            await other.propose(PLAN, BreakerView(State.CLOSED, generation, 0, reason="3 probes succeeded"))
            await other.propose(PLAN, BreakerView(State.HALF_OPEN, generation, 0, probes_succeeded=2))
            await other.record_outcomes(PLAN, [Outcomes(3, 0, 0, generation=generation)])
        assert await read_view(one) == newest


ROOMY = plan_of(window(3600, pods=100), breaker=BREAKER)


async def trip_by_outcomes(store: RedisStore | StoreFallback, clock: HandClock) -> None:
    """Trip the breaker by outcomes."""
    for _ in range(3):
        await store.record_outcomes(ROOMY, [Outcomes(0, 10, 0)])
        clock.sleep(1)
    with suppress(StoreUnavailableError):
        await store.tick([ROOMY])


async def close_by_probes(store: RedisStore | StoreFallback, clock: HandClock) -> None:
    """Wait until probes are leased, and report their success."""
    clock.us += BREAKER.open_for_us
    for _ in range(BREAKER.probes):
        receipt = await store.acquire(Acquire(ROOMY, "payments", f"uid-{next(_numbers)}", {"pods": 1}, "controller:x"))
        assert receipt.refused is None
    await store.record_outcomes(ROOMY, [Outcomes(BREAKER.probes, 0, 0)])


async def test_isolated_replica_erases_no_trip_of_the_other(redis_server: RedisServer) -> None:
    clock = HandClock()
    async with open_store(redis_server, clock) as one, open_store(redis_server, clock) as other:
        store_link = StoreLink(other)
        reports = FallbackReports(lambda *_: None, lambda *_: None, lambda: None, lambda _: None, lambda: None)
        isolated = StoreFallback(store_link, clock, reports, late_us=0)
        await trip_by_outcomes(one, clock)
        await other.tick([ROOMY])
        assert store_link.find_last_breaker(ROOMY) == one.find_last_breaker(ROOMY)
        store_link.is_cut = True
        await close_by_probes(isolated, clock)
        await trip_by_outcomes(isolated, clock)
        await close_by_probes(isolated, clock)
        await close_by_probes(one, clock)
        await trip_by_outcomes(one, clock)
        mine, theirs = isolated.find_last_breaker(ROOMY), one.find_last_breaker(ROOMY)
        assert mine is not None
        assert theirs is not None
        assert (mine.state, mine.generation, theirs.state, theirs.generation) == (State.CLOSED, 6, State.OPEN, 4)
        store_link.is_cut = False
        await isolated.close()
        after = (await one.snapshot(ROOMY)).breaker
        assert after is not None
        assert (after.state, after.since_us, after.tripped_at_us) == (State.OPEN, theirs.since_us, theirs.tripped_at_us)
        assert after.generation > mine.generation
        assert isolated.find_known_breaker(ROOMY) == after, "this replica knows it without a tick"


async def test_record_of_an_earlier_version_is_read_as_decided_by_the_store(
    redis_server: RedisServer,
) -> None:
    async with open_store(redis_server) as one, open_store(redis_server) as other:
        before = await trip(one)
        (key,) = [name for name in redis_server.cli("KEYS", "*") if b":brk:" in name]
        cut = "redis.call('SET', KEYS[1], cmsgpack.pack({unpack(cmsgpack.unpack(redis.call('GET', KEYS[1])), 1, 17)}))"
        redis_server.cli("EVAL", cut, "1", key)
        assert await read_view(other) == before
        closed = BreakerView(State.CLOSED, 9, FAR_US, reason="alone", tripped_at_us=FAR_US, tripped_by="alone", alone=9)
        await other.propose(PLAN, closed)
        assert (await read_view(other)).state is State.OPEN, "it was isolated before that trip"
        await other.propose(PLAN, replace(closed, generation=20, alone=20 - (await read_view(other)).decided))
        assert (await read_view(other)).state is State.CLOSED


ACCOUNTS = (
    BreakerView(State.CLOSED, 7, 1, reason="closed", tripped_at_us=1, tripped_by="open"),
    BreakerView(State.HALF_OPEN, 7, 1, reason="probing", probes_succeeded=1, tripped_at_us=1, tripped_by="open"),
    BreakerView(State.OPEN, 7, 1, FAR_US, "open", tripped_at_us=1, tripped_by="open"),
    BreakerView(State.OPEN, 6, 1, FAR_US, "earlier", tripped_at_us=1, tripped_by="earlier"),
)


@pytest.mark.parametrize(
    ("accounts", "holds"), [(ACCOUNTS, "open"), (ACCOUNTS[:2], "probing"), (ACCOUNTS[::3], "closed")]
)
async def test_proposals_lead_to_one_state_in_any_order(
    redis_server: RedisServer, accounts: tuple[BreakerView, ...], holds: str
) -> None:
    async with open_store(redis_server) as one, open_store(redis_server) as other:
        for order in permutations(accounts):
            redis_server.cli("FLUSHALL")
            for number, view in enumerate(order):
                await (one, other)[number % 2].propose(PLAN, view)
            assert (await read_view(one)).reason == holds, [view.reason for view in order]
