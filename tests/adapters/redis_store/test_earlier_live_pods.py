"""Live Pods that an earlier release has written: a list of them, as for a drift repair, corrects wrong sums."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from tests.contract.live_pods import list_live_uids, observe
from tests.contract.store_plans import live
from tests.contract.store_steps import list_pool_pods
from tests.core.plans import plan_of, standing
from tests.redis_servers import RedisServer
from webhook.adapters.redis_store import RedisStore
from webhook.core.quota import PoolPlan

pytest_plugins = ("tests.adapters.redis_store.patient_store", "tests.redis_servers.fixtures")

CPU = {"pods": 1, "requests.cpu": 100}
OWN = plan_of(standing=standing(pods=9, cpu=900))
POOLED = plan_of(tag="prod", pool=PoolPlan("prod", (), live(pods=9, cpu=900)))
MANY = 1200
"""More than one page."""


def write_wrong_heads(server: RedisServer) -> None:
    with server.client() as client:
        for key in client.scan_iter("podgate:*"):
            if client.type(key) == b"hash" and any(field.startswith(b"u:") for field in client.hkeys(key)):
                _, over, *_ = msgspec.msgpack.decode(client.hget(key, "h"))
                client.hset(key, "h", msgspec.msgpack.encode(({"pods": -5, "requests.cpu": 7}, over, 0)))


@pytest.mark.parametrize("pods", [3, MANY], ids=["one-page", "many-pages"])
async def test_a_list_of_live_pods_corrects_their_sums_and_number(
    store: RedisStore, own_redis_server: RedisServer, pods: int
) -> None:
    for plan in (OWN, POOLED):
        await asyncio.gather(*(observe(store, plan, f"{plan.tag}-{number}", CPU) for number in range(pods)))
    write_wrong_heads(own_redis_server)
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [-5, 7]
    await asyncio.gather(*(list_live_uids(store, OWN) for _ in range(2)), observe(store, OWN, "new", CPU))
    listed, of_pool = await list_live_uids(store, OWN), await list_pool_pods(store, POOLED)
    assert (len(listed), len(of_pool)) == (pods + 1, pods)
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [pods + 1, (pods + 1) * 100]
    assert [use.used for use in (await store.snapshot(POOLED)).pool] == [pods, pods * 100]
    assert await store.list_scopes(OWN) == [""]
    await observe(store, OWN, "new", CPU, lives=False)
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [pods, pods * 100]


async def test_sums_of_pods_that_change_while_they_are_listed_stay_right(store: RedisStore) -> None:
    changing = [observe(store, OWN, f"new-{number}", CPU) for number in range(MANY)]
    await asyncio.gather(*(observe(store, OWN, f"old-{number}", CPU) for number in range(MANY)))
    changing += [observe(store, OWN, f"old-{number}", CPU, lives=False) for number in range(MANY)]
    await asyncio.gather(*changing, *(list_live_uids(store, OWN) for _ in range(20)))
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [MANY, MANY * 100]


async def test_sums_stay_right_when_pods_replace_equal_ones_between_two_pages(store: RedisStore) -> None:
    live = {f"uid-{number}": 100 * (1 + number % 2) for number in range(MANY)}
    await asyncio.gather(*(observe(store, OWN, uid, {"pods": 1, "requests.cpu": cpu}) for uid, cpu in live.items()))
    for number in range(20):
        _, after = await store.list_live(OWN, "")
        for cpu in (100, 200):
            gone = next(uid for uid, held in live.items() if held == cpu)
            live[f"new-{cpu}-{number}"] = live.pop(gone)
            await observe(store, OWN, gone, CPU, lives=False)
            await observe(store, OWN, f"new-{cpu}-{number}", {"pods": 1, "requests.cpu": cpu})
        while after:
            _, after = await store.list_live(OWN, "", after)
        assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [MANY, sum(live.values())]


async def test_change_by_an_earlier_server_between_two_pages_is_no_error(
    store: RedisStore, own_redis_server: RedisServer
) -> None:
    await asyncio.gather(*(observe(store, OWN, f"uid-{number}", CPU) for number in range(MANY)))
    _, after = await store.list_live(OWN, "")
    with own_redis_server.client() as client:
        (key,) = (key for key in client.scan_iter("podgate:*:live:*") if client.hexists(key, "h"))
        sums, over, count, _ = msgspec.msgpack.decode(client.hget(key, "h"))
        sums = {resource: amount - CPU[resource] for resource, amount in sums.items()}
        client.hset(key, "h", msgspec.msgpack.encode((sums, over, count - 1)))
        client.hdel(key, next(field for field in client.hkeys(key) if field.startswith(b"u:")))
    await list_live_uids(store, OWN)
    await observe(store, OWN, "new", CPU)
    while after:
        _, after = await store.list_live(OWN, "", after)
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [MANY, MANY * 100]


async def test_lists_write_nothing_where_no_pod_lives(store: RedisStore, own_redis_server: RedisServer) -> None:
    assert await list_live_uids(store, OWN) == set()
    assert await list_pool_pods(store, POOLED) == {}
    with own_redis_server.client() as client:
        assert not [*client.scan_iter("podgate:*live*")]


async def test_mark_of_an_earlier_controller_is_for_whatever_counts_apart(
    store: RedisStore, own_redis_server: RedisServer
) -> None:
    plans = OWN, replace(OWN, per_namespace=True)
    await store.mark_complete(OWN, [""])
    assert [(await store.snapshot(plan)).is_standing_known for plan in plans] == [True, False]
    with own_redis_server.client() as client:
        (key,) = client.scan_iter("podgate:*:live:*")
        (mark,) = (field for field in client.hkeys(key) if field.startswith(b"c:"))
        client.hset(key, mark, int(client.hget(key, mark)) + 1)
    assert [(await store.snapshot(plan)).is_standing_known for plan in plans] == [True, True]
