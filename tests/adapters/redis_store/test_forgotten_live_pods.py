"""Live Pods that counted for their service as a whole, forgotten page by page once its namespaces count apart."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import ask, read_usage
from tests.contract.live_pods import list_live_uids, observe
from tests.core.plans import plan_of, standing
from tests.core.reviewing import NOW_US
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.quota import DeniedBy
from webhook.errors import StoreUnavailableError
from webhook.ports import StoreReports

pytest_plugins = ("tests.adapters.redis_store.patient_store", "tests.redis_servers.fixtures")

MANY = 1200
"""More than one page."""
AS_ONE = replace(plan_of(standing=standing(pods=MANY + 1)), fleet=True)
APART = replace(AS_ONE, per_namespace=True)


@pytest.fixture
async def other_cluster(own_redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    quiet = StoreReports(lambda *_: None, lambda *_: None, lambda *_: None)
    made = RedisStore(
        open_transport(own_redis_server.url), "other", VirtualClock(NOW_US), quiet, deadline_seconds=60, late_us=0
    )
    yield made
    await made.close()


def fail_after_first_page(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    send, pages = store._pods._ask, 0

    async def send_once(operation: Any) -> Any:
        nonlocal pages
        pages += operation.name == "forget_whole"
        if pages > 1:
            raise StoreUnavailableError("away")
        return await send(operation)

    monkeypatch.setattr(store._pods, "_ask", send_once)


async def test_sums_are_right_though_redis_was_away_before_the_last_page(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(observe(store, AS_ONE, f"uid-{number}") for number in range(MANY)))
    with monkeypatch.context() as outage:
        fail_after_first_page(store, outage)
        with pytest.raises(StoreUnavailableError):
            await store.mark_complete(APART, [])
    left = await list_live_uids(store, AS_ONE)
    assert 0 < len(left) < MANY
    assert await read_usage(store, AS_ONE) == {"": [len(left)]}
    await store.mark_complete(APART, [])
    assert (await read_usage(store, AS_ONE), await list_live_uids(store, AS_ONE)) == ({"": [0]}, set())


async def test_live_pods_of_clusters_that_still_count_as_one_stay(store: RedisStore, other_cluster: RedisStore) -> None:
    for of_cluster, name in ((store, "here"), (other_cluster, "there")):
        await of_cluster.mark_complete(AS_ONE, [""])
        await observe(of_cluster, AS_ONE, name, {"pods": MANY // 2 + 1})
    await store.mark_complete(APART, [])
    assert await read_usage(other_cluster, AS_ONE) == {"": [MANY // 2 + 1]}
    assert await list_live_uids(other_cluster, AS_ONE) == {"there"}
    denied = await ask(other_cluster, AS_ONE, "more", {"pods": MANY // 2 + 1})
    assert denied.refused is DeniedBy.QUOTA
