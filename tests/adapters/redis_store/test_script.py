"""Text of the Lua script: its constants, and modules that only some calls define."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import BREAKER, HandClock
from tests.contract.store_plans import live
from tests.core.plans import plan_of, standing, window
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.adapters.redis_store.transport.script import TEXT, Script
from webhook.core.quota import Acquire, DeniedBy, PoolPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import SlotClaim, StoreReports
from webhook.ports.store_url import StoreFiles

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = plan_of(window(60, pods=2), breaker=BREAKER)
MODULES = ("refusals", "waits", "live", "guarantees", "pools", "breaker", "operations", "queue", "slots")


def remove_modules(*modules: str) -> str:
    """Return the script; the definition of these modules fails."""
    text = TEXT
    for name in modules:
        head = f"{name} = function()\n"
        assert text.count(head) == 1, name
        text = text.replace(head, f"{head}do error('{name} is defined') end\n")
    return text


@asynccontextmanager
async def open_store_with(server: RedisServer, text: str, clock: HandClock | None = None) -> AsyncIterator[RedisStore]:
    transport = open_transport(server.url, StoreFiles(), Script(text))
    reports, time_us = StoreReports(int, str, str), clock.now_us if clock else None
    store = RedisStore(transport, "test", clock or SystemClock(), reports, deadline_seconds=30, time_us=time_us)
    try:
        yield store
    finally:
        await store.close()


def acquire(uid: str) -> Acquire:
    return Acquire(PLAN, "payments", uid, {"pods": 1}, "controller:a")


async def test_acquire_with_a_closed_breaker_defines_no_module(redis_server: RedisServer) -> None:
    async with open_store_with(redis_server, remove_modules(*MODULES)) as store:
        for uid in ("a", "b"):
            receipt = await store.acquire(acquire(uid))
            assert receipt.refused is None
            assert receipt.breaker is not None


async def test_repeated_acquire_defines_only_the_waits(redis_server: RedisServer) -> None:
    async with open_store_with(redis_server, remove_modules(*[name for name in MODULES if name != "waits"])) as store:
        await store.acquire(acquire("a"))
        assert (await store.acquire(acquire("a"))).repeated


async def test_registration_of_a_waiting_pod_defines_only_the_queue(redis_server: RedisServer) -> None:
    async with open_store_with(redis_server, remove_modules(*[name for name in MODULES if name != "queue"])) as store:
        assert not await store.queue.register(PLAN, "a")
        await store.queue.restore(PLAN, {"a": 1})
        assert await store.queue.register(PLAN, "a")


async def test_a_claim_of_a_slot_defines_only_the_slots(redis_server: RedisServer) -> None:
    async with open_store_with(redis_server, remove_modules(*[name for name in MODULES if name != "slots"])) as store:
        await store.slots.learn(PLAN, "rs", 1, [], 0, is_new=True)
        assert await store.slots.claim(PLAN, "rs", "a", is_dry_run=False) == SlotClaim(1, 1)


async def test_refusal_by_a_limit_defines_only_refusals(redis_server: RedisServer) -> None:
    async with open_store_with(redis_server, remove_modules("live", "breaker", "operations")) as store:
        refused = [(await store.acquire(acquire(uid))).refused for uid in "abcd"]
    assert refused == [None, None, DeniedBy.QUOTA, DeniedBy.QUOTA]


async def _tick(store: RedisStore) -> None:
    await store.tick([PLAN])


async def _acquire_where_live_pods_are_limited(store: RedisStore) -> None:
    await store.acquire(Acquire(replace(PLAN, standing=standing(pods=9)), "payments", "a", {"pods": 1}, "x"))


async def _acquire_where_the_live_pods_of_a_pool_are_limited(store: RedisStore) -> None:
    plan = replace(PLAN, tag="prod", pool=PoolPlan("prod", (), live(pods=9)))
    await store.acquire(Acquire(plan, "payments", "a", {"pods": 1}, "x"))


async def test_limits_on_own_live_pods_define_nothing_of_a_pool(redis_server: RedisServer) -> None:
    async with open_store_with(redis_server, remove_modules("pools", "guarantees")) as store:
        await _acquire_where_live_pods_are_limited(store)


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("operations", _tick),
        ("breaker", _tick),
        ("live", _acquire_where_live_pods_are_limited),
        ("pools", _acquire_where_the_live_pods_of_a_pool_are_limited),
    ],
)
async def test_other_calls_define_their_modules(
    redis_server: RedisServer, module: str, call: Callable[[RedisStore], Awaitable[None]]
) -> None:
    async with open_store_with(redis_server, remove_modules(module)) as store:
        with pytest.raises(StoreUnavailableError, match=f"{module} is defined"):
            await call(store)


async def test_marks_of_unseen_pods_expire(redis_server: RedisServer) -> None:
    clock, key = HandClock(), "podgate:{payment-api}:v1:test:pending:payment-api"
    roomy = plan_of(window(60, pods=9))
    async with open_store_with(redis_server, TEXT, clock) as store:

        async def acquire_and_read_marks(uid: str, after_seconds: float) -> bytes:
            """Return the marks after the acquire of another Pod."""
            clock.sleep(after_seconds)
            await store.acquire(Acquire(roomy, "payments", uid, {"pods": 1}, "controller:a"))
            with redis_server.client() as client:
                assert client.pttl(key) > 3_600_000
                return b"".join(client.zrange(key, 0, -1))

        assert [
            await acquire_and_read_marks("a", 0),
            await acquire_and_read_marks("b", 0.5),
            await acquire_and_read_marks("c", 4199.6),
        ] == [b"a", b"ab", b"bc"]
        assert [await acquire_and_read_marks("d", 0.5), await acquire_and_read_marks("e", 0.5)] == [b"bcd", b"cde"], (
            "removed once a second"
        )
        await store.stop_waiting(roomy, [*"cde"])
        assert await acquire_and_read_marks("f", 0) == b"f", "the key was deleted and created within the second"


def test_script_contains_values_instead_of_names_of_constants() -> None:
    code = re.sub(r"--[^\n]*", "", TEXT)
    names = set(re.findall(r"(?<![.\w'])[A-Z][A-Z_]+(?!\w)", re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "''", code)))
    tables = {"BREAKER", "RULES", "SHUT", "NOTHING", "KEYS", "ARGV"}
    of_breakers = set(re.findall(r"([A-Z_]+) =", code[code.index("local BREAKER") :].splitlines()[0]))
    assert names - tables - of_breakers == set()
