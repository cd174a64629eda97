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


def write_wrong_sums(server: RedisServer) -> None:
    with server.client() as client:
        for key in client.scan_iter("podgate:*"):
            if client.type(key) == b"hash" and any(field.startswith(b"u:") for field in client.hkeys(key)):
                _, over, count = msgspec.msgpack.decode(client.hget(key, "h"))
                client.hset(key, "h", msgspec.msgpack.encode(({"pods": -5, "requests.cpu": 7}, over, count)))


@pytest.mark.parametrize("pods", [3, MANY], ids=["one-page", "many-pages"])
async def test_a_list_of_live_pods_corrects_their_sums(
    store: RedisStore, own_redis_server: RedisServer, pods: int
) -> None:
    for plan in (OWN, POOLED):
        await asyncio.gather(*(observe(store, plan, f"{plan.tag}-{number}", CPU) for number in range(pods)))
    write_wrong_sums(own_redis_server)
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [-5, 7]
    await asyncio.gather(*(list_live_uids(store, OWN) for _ in range(2)), observe(store, OWN, "new", CPU))
    listed, of_pool = await list_live_uids(store, OWN), await list_pool_pods(store, POOLED)
    assert (len(listed), len(of_pool)) == (pods + 1, pods)
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [pods + 1, (pods + 1) * 100]
    assert [use.used for use in (await store.snapshot(POOLED)).pool] == [pods, pods * 100]
    await observe(store, OWN, "new", CPU, lives=False)
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [pods, pods * 100]


async def test_sums_of_pods_that_change_while_they_are_listed_stay_right(store: RedisStore) -> None:
    changing = [observe(store, OWN, f"new-{number}", CPU) for number in range(MANY)]
    await asyncio.gather(*(observe(store, OWN, f"old-{number}", CPU) for number in range(MANY)))
    changing += [observe(store, OWN, f"old-{number}", CPU, lives=False) for number in range(MANY)]
    await asyncio.gather(*changing, *(list_live_uids(store, OWN) for _ in range(20)))
    assert [use.used for use in (await store.snapshot(OWN)).uses[""]] == [MANY, MANY * 100]


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
