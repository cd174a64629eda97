"""Breakers of variants on real Redis: replicas share them, by announcements and ticks, and restore a lost one."""

import asyncio

from tests.adapters.redis_store.replicas import Replica, run_subscribed_replica, wait_until_subscribed
from tests.core.breakers import VARIANT
from tests.core.plans import plan_of
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.core.breaker import BreakerView, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import CounterPlan

pytest_plugins = ("tests.redis_servers.fixtures",)

SPOT = plan_of(service="web/spot", tag="web", breaker=VARIANT)
WEB = plan_of(service="web", tag="web")
PLANS = (WEB, SPOT)


async def open_variant(replica: Replica) -> BreakerView:
    """Report a Pod without a node, and tick until its second is over; no test takes as long as `openFor`."""
    await replica.store.record_outcomes(SPOT, [Outcomes.from_single(ok=False, latency_us=0, uid="claim")])
    async with asyncio.timeout(HANG_SECONDS):
        while not await replica.store.tick(PLANS):  # noqa: ASYNC110  time alone opens it
            await asyncio.sleep(0.1)
    return await read_view(replica)


async def read_view(replica: Replica, plan: CounterPlan = SPOT) -> BreakerView:
    view = (await replica.store.snapshot(plan)).breaker
    assert view is not None
    return view


async def test_another_replica_hears_that_a_variant_opened(redis_server: RedisServer) -> None:
    async with run_subscribed_replica(redis_server.url) as one, run_subscribed_replica(redis_server.url) as other:
        await wait_until_subscribed(redis_server, count=2)
        view = await open_variant(one)
        assert (view.state, view.reason) == (State.OPEN, "unschedulable: no node for 300s, 1 Pod")
        async with asyncio.timeout(HANG_SECONDS):
            while other.store.find_known_breaker(SPOT) is None:  # noqa: ASYNC110  another connection sets no event
                await asyncio.sleep(0.01)
        assert other.store.find_known_breaker(SPOT) == view
        assert other.store.find_known_breaker(WEB) is None


async def test_a_replica_without_announcements_learns_it_by_a_tick(redis_server: RedisServer) -> None:
    async with run_subscribed_replica(redis_server.url) as one, run_subscribed_replica(redis_server.url) as other:
        await other.store.tick(PLANS)
        view = await open_variant(one)
        await other.store.tick(PLANS)
        assert other.store.find_last_breaker(SPOT) == view
        await other.store.tick((WEB,))
        assert other.store.find_last_breaker(SPOT) is None, "a variant that left the policy is forgotten"


async def test_an_emptied_redis_receives_it_again(redis_server: RedisServer) -> None:
    async with run_subscribed_replica(redis_server.url) as one:
        before = await open_variant(one)
        redis_server.cli("FLUSHALL")
        assert (await read_view(one)).state is State.CLOSED
        await one.store.tick(PLANS)
        assert await read_view(one) == before
