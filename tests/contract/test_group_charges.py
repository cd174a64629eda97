"""Charges of groups: all members or none, on each store."""

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import BREAKER, HandClock, ask, clock, store
from tests.core.plans import plan_of, standing, window
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.redis_store import RedisStore
from webhook.core.breaker import State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import AcquireGroup, Cost, CounterPlan, DeniedBy, GroupMember, Holder, PoolPlan, Receipt

pytest_plugins = ("tests.redis_servers.fixtures",)
__all__ = ["clock", "store"]

Store = MemoryStore | RedisStore
ROOM_FOR_FIVE = plan_of(window(60, pods=5, cpu=1000))


async def ask_group(store: Store, plan: CounterPlan, uids: str, **cost: int) -> Receipt:
    asked: Cost = {"pods": 1, **{name.replace("cpu", "requests.cpu"): amount for name, amount in cost.items()}}
    members = tuple(GroupMember(uid, f"{uid}-pod", asked, f"controller:{uid}") for uid in uids)
    return await store.acquire_group(AcquireGroup(plan, "payments", members))


async def read_used(store: Store, plan: CounterPlan) -> list[int]:
    return [use.used for use in (await store.snapshot(plan)).uses[""]]


async def test_a_group_that_fits_is_charged_whole(store: Store) -> None:
    receipt = await ask_group(store, ROOM_FOR_FIVE, "abcde", cpu=200)

    assert receipt.charged
    assert receipt.used == (5, 1000)
    assert await read_used(store, ROOM_FOR_FIVE) == [5, 1000]


@pytest.mark.parametrize(("uids", "cpu"), [("abcdef", 1), ("abc", 400)])
async def test_of_a_group_that_does_not_fit_nothing_is_charged(store: Store, uids: str, cpu: int) -> None:
    receipt = await ask_group(store, ROOM_FOR_FIVE, uids, cpu=cpu)

    assert receipt.refused is DeniedBy.QUOTA
    assert receipt.over[0].asked == (6 if cpu == 1 else 1200)
    assert receipt.free_at_us is None  # larger than the whole limit
    assert await read_used(store, ROOM_FOR_FIVE) == [0, 0]
    assert not (await ask(store, ROOM_FOR_FIVE, "a")).repeated


async def test_a_group_waits_until_a_window_has_room_for_all(store: Store, clock: HandClock) -> None:
    await ask(store, ROOM_FOR_FIVE, "x")
    clock.sleep(30)
    refused = await ask_group(store, ROOM_FOR_FIVE, "abcde")
    assert refused.refused is DeniedBy.QUOTA
    assert refused.free_at_us is not None
    clock.us = refused.free_at_us - 1
    assert (await ask_group(store, ROOM_FOR_FIVE, "abcde")).refused

    clock.us = refused.free_at_us
    assert (await ask_group(store, ROOM_FOR_FIVE, "abcde")).charged


@pytest.mark.parametrize("uids", ["abc", "abcde", "cde"])
async def test_a_group_of_which_some_are_charged_is_not_charged_in_part(store: Store, uids: str) -> None:
    """Their charges may be older than a window: only after a refund of all is the sum what the limit sees."""
    await ask_group(store, ROOM_FOR_FIVE, "abc")

    repeated = await ask_group(store, ROOM_FOR_FIVE, uids)

    assert (repeated.repeated, repeated.charged) == (True, False)
    assert await read_used(store, ROOM_FOR_FIVE) == [3, 0]
    assert (await ask(store, ROOM_FOR_FIVE, "b")).repeated
    assert (await ask(store, ROOM_FOR_FIVE, "d")).charged


async def test_a_member_is_refunded_by_itself(store: Store) -> None:
    await ask_group(store, ROOM_FOR_FIVE, "abcde", cpu=100)

    assert await store.refund(ROOM_FOR_FIVE, "c")
    assert not await store.refund(ROOM_FOR_FIVE, "c")

    assert await read_used(store, ROOM_FOR_FIVE) == [4, 400]
    for uid in "abde":
        await store.refund(ROOM_FOR_FIVE, uid)
    again = await ask_group(store, ROOM_FOR_FIVE, "abcde", cpu=100)  # refunded members are charged anew
    assert again.charged
    assert await read_used(store, ROOM_FOR_FIVE) == [5, 500]


async def test_a_refused_group_is_no_quota_event(store: Store) -> None:
    plan = replace(ROOM_FOR_FIVE, breaker=BREAKER)
    for _ in range(4):
        assert (await ask_group(store, plan, "abcdef")).refused is DeniedBy.QUOTA

    view = (await store.snapshot(plan)).breaker
    assert view is not None
    assert view.state is State.CLOSED


async def test_a_probing_breaker_takes_a_group_as_one_probe(store: Store, clock: HandClock) -> None:
    plan = replace(plan_of(window(64, pods=50)), breaker=replace(BREAKER, probes=1))
    for _ in range(3):
        await store.record_outcomes(plan, [Outcomes(0, 20, 0)])
        clock.sleep(1)
    assert (await ask_group(store, plan, "abc")).refused is DeniedBy.BREAKER
    clock.sleep(181)

    probing = await ask_group(store, plan, "abc")
    assert probing.charged
    assert probing.breaker is not None
    assert (probing.breaker.state, probing.breaker.probes_leased) == (State.HALF_OPEN, 1)
    assert (await ask_group(store, plan, "de")).refused is DeniedBy.BREAKER
    assert (await read_used(store, plan))[0] == 3


async def test_the_pool_and_the_live_pods_limit_a_group(store: Store) -> None:
    pool = PoolPlan("shared", (window(60, pods=4),))
    pooled = plan_of(service="web", tag="shared", pool=pool)
    over = await ask_group(store, pooled, "abcde")
    assert [use.of for use in over.over] == [Holder.POOL]
    assert (await ask_group(store, pooled, "abcd")).charged

    live = plan_of(service="live", tag="live", standing=standing(0, pods=3))
    await store.mark_complete(live, await store.list_scopes(live))
    assert [use.of for use in (await ask_group(store, live, "abcd")).over] == [Holder.STANDING]
    assert (await ask_group(store, live, "abc")).charged
    assert (await ask_group(store, live, "d")).refused is DeniedBy.QUOTA
