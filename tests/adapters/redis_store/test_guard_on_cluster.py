"""breakerGuard on a Cluster: calls of one batch, one for each service, open no more breakers than it allows."""

import asyncio

from msgspec.structs import replace

from tests.adapters.redis_store.ticker import SERVICES, open_store
from tests.contract.counter_store import BREAKER, SECOND_US, HandClock
from tests.contract.store_plans import START_US
from tests.redis_servers import RedisCluster
from webhook.core.breaker import Transition
from webhook.core.breaker.outcome_types import Outcomes

pytest_plugins = ("tests.redis_servers.fixtures",)

OPEN_MAX = 7
FAILED = 30


async def test_services_of_a_node_that_fail_at_once_pass_no_guard(redis_cluster: RedisCluster) -> None:
    first = redis_cluster.owner(SERVICES[0].tag)  # the calls of different nodes know less of each other
    policy = [plan for plan in SERVICES if redis_cluster.owner(plan.tag) is first][:FAILED]
    assert len(policy) == FAILED
    policy = [replace(plan, breaker=replace(BREAKER, open_max=OPEN_MAX)) for plan in policy]
    clock = HandClock()
    clock.us = START_US

    async with open_store(redis_cluster.url, clock) as store:

        async def fail_all() -> list[Transition]:
            answers = await asyncio.gather(*(store.record_outcomes(plan, [Outcomes(0, 50, 0)]) for plan in policy))
            return [transition for answer in answers for transition in answer]

        await store.tick(policy)
        for _ in range(3):
            assert await fail_all() == []
            clock.us += SECOND_US
        clock.us += SECOND_US
        trips = await fail_all()

    assert [trip.service for trip in trips if trip.is_change] == [plan.service for plan in policy[:OPEN_MAX]]
    assert sum(trip.is_held_back for trip in trips) == FAILED - OPEN_MAX
