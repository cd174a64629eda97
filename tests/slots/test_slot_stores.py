"""Slot stores: each claim has a slot of its own, the lowest free one; Redis gives the same slots as memory."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from tests.contract.counter_store import DEADLINE_SECONDS
from tests.core.plans import plan_of
from tests.redis_servers import RedisCluster, RedisServer
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_slots import MemorySlots
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.adapters.redis_store.slots import RedisSlots
from webhook.errors import StoreUnavailableError
from webhook.ports import HeldSlot, SlotClaim, SlotStore, StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = plan_of()
NOW_US = 1_800_000_000_000_000
AGE_US = 1_500_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW_US)


@pytest.fixture
async def redis(redis_server: RedisServer, clock: VirtualClock) -> AsyncIterator[RedisSlots]:
    reports, time_us = StoreReports(str, str, str), clock.now_us
    store = RedisStore(
        open_transport(redis_server.url), "default", clock, reports, deadline_seconds=DEADLINE_SECONDS, time_us=time_us
    )
    yield store.slots
    await store.close()


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest, redis: RedisSlots, clock: VirtualClock) -> SlotStore:
    return MemorySlots(clock) if request.param == "memory" else redis


async def claim(store: SlotStore, name: str, owner: str = "rs", *, is_dry_run: bool = False) -> int:
    return (await store.claim(PLAN, owner, name, is_dry_run=is_dry_run)).slot


async def test_an_unknown_owner_has_no_slot_until_it_is_learned(store: SlotStore) -> None:
    assert await store.claim(PLAN, "rs", "a", is_dry_run=False) == SlotClaim(0)
    await store.learn(PLAN, "rs", 3, None, AGE_US)
    await store.learn(PLAN, "rs", 3, [HeldSlot(2, "b")], AGE_US)
    assert await store.claim(PLAN, "rs", "a", is_dry_run=False) == SlotClaim(0), "it was lost since somebody asked"
    await store.learn(PLAN, "rs", 3, (), AGE_US, is_new=True)
    assert await store.claim(PLAN, "rs", "a", is_dry_run=False) == SlotClaim(1, 3)
    await store.forget(PLAN, "rs")
    assert await claim(store, "a") == 0


async def test_claims_get_the_lowest_free_slots_and_keep_them(store: SlotStore) -> None:
    await store.learn(PLAN, "rs", 3, (), AGE_US, is_new=True)
    await store.learn(PLAN, "other", 3, (), AGE_US, is_new=True)
    assert [await claim(store, name) for name in "abca"] == [1, 2, 3, 1]
    assert await claim(store, "a", "other") == 1
    assert await claim(store, "d", is_dry_run=True) == 4
    assert await claim(store, "e") == 4, "a dry run takes nothing"
    await store.free(PLAN, "rs", [HeldSlot(2, "b"), HeldSlot(1, "another")])
    assert [await claim(store, name) for name in "fg"] == [2, 5]


async def test_a_list_frees_what_no_pod_carries_once_it_is_old_enough(store: SlotStore, clock: VirtualClock) -> None:
    await store.learn(PLAN, "rs", 4, (), AGE_US, is_new=True)
    assert [await claim(store, name) for name in "abc"] == [1, 2, 3]
    clock.set(NOW_US + 2_000_000)
    assert await claim(store, "young") == 4
    await store.learn(PLAN, "rs", 4, [HeldSlot(2, "b"), HeldSlot(7, "h")], AGE_US)
    assert [await claim(store, name) for name in ("b", "young", "h")] == [2, 4, 7]
    assert [await claim(store, name) for name in "xyz"] == [1, 3, 5]


async def test_pods_that_exist_take_back_the_slots_that_were_lost(store: SlotStore) -> None:
    await store.learn(PLAN, "rs", 3, (), AGE_US, is_new=True)
    assert await claim(store, "b") == 1
    await store.confirm(PLAN, "rs", [HeldSlot(1, "a"), HeldSlot(2, "c")])
    assert [await claim(store, name) for name in "bcd"] == [1, 2, 3]


async def test_an_unknown_owner_keeps_the_slots_that_are_confirmed(store: SlotStore, clock: VirtualClock) -> None:
    """It was lost: a list does not show Pods that are still being created."""
    await store.confirm(PLAN, "rs", [HeldSlot(1, "old")])
    clock.set(NOW_US + 2_000_000)
    await store.confirm(PLAN, "rs", [HeldSlot(1, "later"), HeldSlot(2, "a"), HeldSlot(4, "gone"), HeldSlot(5, "e")])
    assert [await claim(store, name) for name in ("a", "b")] == [0, 0], "confirming makes no owner known"
    await store.free(PLAN, "rs", [HeldSlot(4, "gone"), HeldSlot(5, "another")])
    await store.learn(PLAN, "rs", 3, [HeldSlot(3, "c")], AGE_US, is_new=True)
    assert [await claim(store, name) for name in ("a", "c", "e")] == [2, 3, 5]
    assert [await claim(store, name) for name in "xyz"] == [1, 4, 6]


async def test_a_doubted_owner_is_unknown_and_keeps_its_claims(store: SlotStore) -> None:
    await store.doubt(PLAN, "rs")
    await store.learn(PLAN, "rs", 3, (), AGE_US, is_new=True)
    assert [await claim(store, name) for name in "ab"] == [1, 2]
    await store.doubt(PLAN, "rs")
    assert await store.claim(PLAN, "rs", "a", is_dry_run=False) == SlotClaim(0)
    await store.learn(PLAN, "rs", 4, [HeldSlot(3, "c")], AGE_US, is_new=True)
    assert await store.claim(PLAN, "rs", "d", is_dry_run=False) == SlotClaim(4, 4)
    assert [await claim(store, name) for name in "ab"] == [1, 2]


@pytest.mark.parametrize("seed", range(20))
async def test_redis_gives_the_same_slots_as_memory(redis: RedisSlots, clock: VirtualClock, seed: int) -> None:
    generator, stores = random.Random(seed), (MemorySlots(clock), redis)  # noqa: S311  not for secrets
    carried: dict[tuple[str, int], str] = {}
    for number in range(120):
        owner, act = generator.choice(("rs-1", "rs-2")), generator.randrange(8)
        if generator.random() < 0.05:
            await asyncio.gather(*(store.doubt(PLAN, owner) for store in stores))
        held = [HeldSlot(slot, name) for (its, slot), name in carried.items() if its == owner]
        some = [found for found in held if generator.random() < 0.3]
        if act < 2:
            await learn(stores, owner, generator.randint(1, 9), held if act else None)
        elif act < 4:
            await asyncio.gather(*((store.free if act == 3 else store.confirm)(PLAN, owner, some) for store in stores))
            carried = {key: name for key, name in carried.items() if act == 2 or HeldSlot(key[1], name) not in some}
        elif act < 5:
            clock.set(clock.now_us() + generator.choice((0, 1_000_000, 2_000_000)))
        else:
            name, is_dry_run = generator.choice((f"c{number}", f"c{number - 2}")), generator.random() < 0.1
            answers = [await store.claim(PLAN, owner, name, is_dry_run=is_dry_run) for store in stores]
            assert answers[0] == answers[1], number
            if answers[0].slot and not is_dry_run:
                carried[owner, answers[0].slot] = name


@pytest.mark.parametrize("seed", range(20))
async def test_actions_of_one_call_to_redis_take_effect_in_order(
    redis: RedisSlots, clock: VirtualClock, seed: int
) -> None:
    """Claims that follow each other in a call share what they have read; other actions come between them."""
    generator, stores = random.Random(seed), (MemorySlots(clock), redis)  # noqa: S311  not for secrets
    await learn(stores, "rs-1", 4, [])
    for turn in range(12):
        chosen = [_choose_action(generator, f"{turn}-{number}") for number in range(12)]
        found = [
            [await act(store) for act in chosen]
            if store is not redis
            else await asyncio.gather(*(act(store) for act in chosen))
            for store in stores
        ]
        assert found[0] == found[1], turn
        clock.set(clock.now_us() + generator.choice((0, 1_000_000)))


def _choose_action(generator: random.Random, name: str) -> Callable[[SlotStore], Awaitable[object]]:
    owner, kind = generator.choice(("rs-1", "rs-1", "rs-2")), generator.randrange(10)
    held = [HeldSlot(slot, f"{name}-{slot}") for slot in range(1, 9) if generator.random() < 0.4]
    if kind == 0:
        return lambda store: store.learn(PLAN, owner, 9, held if len(name) % 2 else None, AGE_US, is_new=True)
    if kind == 1:
        return lambda store: store.forget(PLAN, owner)
    if kind == 2:
        return lambda store: store.free(PLAN, owner, held)
    if kind == 3:
        return lambda store: store.doubt(PLAN, owner)
    claimed = generator.choice((name, "again", held[0].claim if held else name))
    is_dry_run = generator.random() < 0.2
    return lambda store: store.claim(PLAN, owner, claimed, is_dry_run=is_dry_run)


async def test_claims_of_one_turn_cost_few_commands(redis: RedisSlots, redis_server: RedisServer) -> None:
    await redis.learn(PLAN, "rs", 64, (), AGE_US, is_new=True)

    def count_calls() -> int:
        with redis_server.client() as client:
            return sum(found["calls"] for found in client.info("commandstats").values())

    before = count_calls()
    claims = (redis.claim(PLAN, "rs", f"c{number}", is_dry_run=False) for number in range(64))
    assert [found.slot for found in await asyncio.gather(*claims)] == [*range(1, 65)]
    assert count_calls() - before < 2 * 64 + 20, "a claim reads once and writes once"


async def learn(stores: Sequence[SlotStore], owner: str, replicas: int, held: Sequence[HeldSlot] | None) -> None:
    for store in stores:
        await store.learn(PLAN, owner, replicas, held, AGE_US, is_new=replicas % 2 == 0)


async def test_slots_are_forgotten_a_day_after_the_last_claim(redis: RedisSlots, redis_server: RedisServer) -> None:
    await redis.learn(PLAN, "rs", 3, (), AGE_US, is_new=True)
    await claim(redis, "a")
    seconds = int(redis_server.cli("TTL", "podgate:{payment-api}:v1:default:slots:payment-api:rs"))
    assert 86_000 < seconds <= 86_400


async def test_slots_of_an_unknown_owner_are_forgotten_a_day_later(
    redis: RedisSlots, redis_server: RedisServer
) -> None:
    await redis.confirm(PLAN, "unknown", [HeldSlot(1, "a")])
    seconds = int(redis_server.cli("TTL", "podgate:{payment-api}:v1:default:slots:payment-api:unknown"))
    assert 86_000 < seconds <= 86_400


async def test_claims_go_on_after_a_flush_of_data_and_scripts(redis: RedisSlots, redis_server: RedisServer) -> None:
    await redis.learn(PLAN, "rs", 3, (), AGE_US, is_new=True)
    assert await claim(redis, "a") == 1
    redis_server.cli("FLUSHALL")
    redis_server.cli("SCRIPT", "FLUSH")
    assert await claim(redis, "b") == 0
    await redis.learn(PLAN, "rs", 3, [HeldSlot(1, "a")], AGE_US, is_new=True)
    assert await claim(redis, "b") == 2


async def test_many_slots_are_learned_confirmed_and_freed(store: SlotStore) -> None:
    held = [HeldSlot(number, f"claim-{number}") for number in range(1, 1201)]
    await store.learn(PLAN, "rs", 1200, held[:10], AGE_US, is_new=True)
    await store.confirm(PLAN, "rs", held)
    assert await claim(store, "a") == 1201
    await store.free(PLAN, "rs", held[5:])
    assert await claim(store, "b") == 6
    await store.learn(PLAN, "rs", 1200, held, AGE_US)
    assert await claim(store, "c") == 1202


@pytest.mark.parametrize("text", ["1", "r", "f", "c1", "a b", "two\nlines", "\u00e9", ""])
async def test_any_text_that_a_pod_carries_may_be_a_claim(store: SlotStore, text: str) -> None:
    await store.learn(PLAN, "rs", 3, [HeldSlot(1, text)], AGE_US, is_new=True)
    assert [await claim(store, name) for name in (text, "x")] == [1, 2]
    await store.free(PLAN, "rs", [HeldSlot(1, text)])
    assert await claim(store, "y") == 1


async def test_a_redis_that_does_not_answer_is_an_unavailable_store(
    own_redis_server: RedisServer, clock: VirtualClock
) -> None:
    transport, reports = open_transport(own_redis_server.url), StoreReports(str, str, str)
    store = RedisStore(transport, "default", clock, reports, deadline_seconds=DEADLINE_SECONDS)
    await store.slots.learn(PLAN, "rs", 3, (), AGE_US, is_new=True)
    own_redis_server.stop()
    with pytest.raises(StoreUnavailableError):
        await claim(store.slots, "a")
    await store.close()


async def test_owners_of_any_service_have_their_slots_on_its_node_of_a_cluster(
    redis_cluster: RedisCluster, clock: VirtualClock
) -> None:
    plans = [plan_of(service=f"service-{number}", tag=f"service-{number}") for number in range(20)]
    reports = StoreReports(str, str, str)
    store = RedisStore(open_transport(redis_cluster.url), "default", clock, reports, deadline_seconds=DEADLINE_SECONDS)
    await asyncio.gather(*(store.slots.learn(plan, "rs", 3, (), AGE_US, is_new=True) for plan in plans))
    for name, slot in (("a", 1), ("b", 2), ("a", 1)):
        found = await asyncio.gather(*(store.slots.claim(plan, "rs", name, is_dry_run=False) for plan in plans))
        assert found == [SlotClaim(slot, 3)] * len(plans)
    await store.close()
