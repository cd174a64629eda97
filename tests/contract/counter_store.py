"""Helpers of the `counter_store` tests that other tests use, too."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.redis_servers import RedisServer, names
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.breaker import BreakerPlan, ErrorRatePlan, LatencyPlan, QuotaEventPlan, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import Acquire, CounterPlan, Receipt
from webhook.ports import CounterStore, StoreReports

SECOND_US = 1_000_000


ONE = {"pods": 1}


class HandClock:
    """A clock that only tests advance. It starts at a bucket's edge of every window in use."""

    def __init__(self) -> None:
        self.us = 3_600_000 * SECOND_US

    def now_us(self) -> int:
        return self.us

    def sleep(self, seconds: float) -> None:
        self.us += round(seconds * SECOND_US)


MEMORY = "memory"


DEADLINE_SECONDS = 30.0  # nothing here is about time


BREAKER = BreakerPlan(
    has_outcomes=True,
    error_rate=ErrorRatePlan(percent=95, interval_us=SECOND_US, consecutive=3, minimum=10),
    latency=LatencyPlan(mean_us=2 * SECOND_US, interval_us=SECOND_US, consecutive=5, minimum=1),
    quota=QuotaEventPlan(count=3, within_us=60 * SECOND_US, by_controller=True),
    open_for_us=180 * SECOND_US,
    probes=3,
    probe_timeout_us=300 * SECOND_US,
)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=(MEMORY, *names()))
async def store(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> AsyncIterator[CounterStore]:
    if request.param == MEMORY:
        yield MemoryStore(clock)
        return
    troubles: list[str] = []
    redis = RedisStore(
        open_transport(shared_redis(request.param).url),
        "test",
        clock,
        StoreReports(int, lambda failure: troubles.append(str(failure)), str),
        deadline_seconds=DEADLINE_SECONDS,
        time_us=clock.now_us,
    )
    yield redis
    await redis.close()
    assert troubles == []


async def ask(store: CounterStore, plan: CounterPlan, uid: str, cost: dict[str, int] = ONE, **more: Any) -> Receipt:
    request: dict[str, Any] = {"namespace": "payments", "event_source": f"controller:{uid}", **more}
    return await store.acquire(Acquire(plan, uid=uid, cost=cost, **request))


async def read_usage(store: CounterStore, plan: CounterPlan) -> dict[str, list[int]]:
    snapshot = await store.snapshot(plan)
    return {namespace: [use.used for use in uses] for namespace, uses in snapshot.uses.items()}


async def read_state(store: CounterStore, plan: CounterPlan) -> State:
    view = (await store.snapshot(plan)).breaker
    assert view is not None
    return view.state


async def trip(store: CounterStore, clock: HandClock, plan: CounterPlan) -> None:
    for _ in range(3):
        for _ in range(10):
            await store.record_outcomes(plan, [Outcomes.from_single(ok=False, latency_us=0)])
        clock.sleep(1)
