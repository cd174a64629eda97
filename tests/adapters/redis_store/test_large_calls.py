"""Many groups at once, and services with many namespaces: no command gets more values than Lua can pass."""

import asyncio

import pytest

from tests.core.plans import plan_of, standing, window
from tests.core.reviewing import NOW_US
from tests.redis_servers import RedisServer
from webhook.adapters.redis_store import RedisStore
from webhook.core.quota import Acquire, AcquireGroup, GroupMember, Sighting

pytest_plugins = ("tests.adapters.redis_store.patient_store", "tests.redis_servers.fixtures")

GROUPS, MEMBERS = 16, 512
PODS = GROUPS * MEMBERS
PER_NAMESPACE = plan_of(window(60, pods=9), per_namespace=True, standing=standing(pods=9))
KEPT = 3
NAMESPACES = 8200
"""More values than a script can pass to one command."""


@pytest.mark.parametrize("limits_live_pods", [False, True], ids=["window", "standing"])
async def test_groups_of_one_call_are_charged_whole(
    store: RedisStore, own_redis_server: RedisServer, *, limits_live_pods: bool
) -> None:
    plan = plan_of(window(3600, pods=2 * PODS), standing=standing(pods=2 * PODS) if limits_live_pods else None)
    groups = [
        AcquireGroup(
            plan,
            "ml",
            tuple(
                GroupMember(f"uid-{group}-{number}", f"p-{group}-{number}", {"pods": 1}, "user:a")
                for number in range(MEMBERS)
            ),
        )
        for group in range(GROUPS)
    ]
    answers = await asyncio.gather(*map(store.acquire_group, groups))
    assert all(answer.charged and not answer.repeated for answer in answers)
    assert {use.used for use in (await store.snapshot(plan)).uses[""]} == {PODS}
    with own_redis_server.client() as client:
        marks = [client.zcard(key) for key in client.scan_iter("podgate:*") if client.type(key) == b"zset"]
    assert marks == [PODS], "each Pod is waited for until it is seen"


async def charge(store: RedisStore, namespace: str) -> None:
    """Charge a Pod, and see it live."""
    uid = f"uid-{namespace}"
    assert not (await store.acquire(Acquire(PER_NAMESPACE, namespace, uid, {"pods": 1}, "user:a"))).refused
    await store.observe(PER_NAMESPACE, [Sighting(namespace, "p", uid, {"pods": 1}, lives=True, created_at_us=NOW_US)])


async def test_namespaces_of_the_past_are_forgotten(store: RedisStore, own_redis_server: RedisServer) -> None:
    kept = [f"team-{number}" for number in range(KEPT)]
    for namespace in kept:
        await charge(store, namespace)
    with own_redis_server.client() as client:
        (key,) = (key for key in client.scan_iter("podgate:*:live:*") if client.hexists(key, f"l:{kept[0]}"))
        client.hset(key, mapping={f"l:gone-{number}": "" for number in range(NAMESPACES)})
        assert await store.list_scopes(PER_NAMESPACE) == kept
        assert client.hlen(key) == KEPT
    await store.mark_complete(PER_NAMESPACE, kept)
    assert sorted((await store.snapshot(PER_NAMESPACE)).uses) == kept
    await charge(store, "gone-1")
    assert await store.list_scopes(PER_NAMESPACE) == ["gone-1", *kept]


async def test_a_snapshot_of_many_namespaces_is_one_of_all(store: RedisStore, own_redis_server: RedisServer) -> None:
    await charge(store, "a")
    with own_redis_server.client() as client:
        (index,) = (
            key for key in client.scan_iter("podgate:*") if client.type(key) == b"hash" and client.hexists(key, "n:a")
        )
        until = client.hget(index, "n:a")
        client.hset(index, mapping={f"n:z{number}": until for number in range(NAMESPACES)})
        found = await store.snapshot(PER_NAMESPACE)
        assert len(found.uses) == 1 + NAMESPACES
        assert [use.used for use in found.uses["a"]] == [1, 1]
        assert [use.used for use in found.uses["z7"]] == [0, 0]
        client.hset(index, mapping={f"n:z{number}": 0 for number in range(NAMESPACES)})
        while len((await store.snapshot(PER_NAMESPACE)).uses) > 1 or client.hlen(index) > 1 + KEPT:
            assert client.hlen(index) < 1 + NAMESPACES + KEPT
