"""A call of many groups writes more values than a script can pass to one command."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.core.plans import plan_of, standing, window
from tests.core.reviewing import NOW_US
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.quota import AcquireGroup, GroupMember
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

GROUPS, MEMBERS = 16, 512
PODS = GROUPS * MEMBERS


@pytest.fixture
async def store(own_redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    quiet = StoreReports(lambda *_: None, lambda *_: None, lambda *_: None)
    made = RedisStore(
        open_transport(own_redis_server.url), "test", VirtualClock(NOW_US), quiet, deadline_seconds=60, late_us=0
    )
    yield made
    await made.close()


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
