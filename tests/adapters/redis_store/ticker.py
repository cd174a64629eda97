"""Helpers of the `ticker` tests that other tests use, too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.contract.counter_store import BREAKER, HandClock
from tests.contract.store_plans import LATE_US
from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.ports import StoreReports

SERVICES = [plan_of(window(60, pods=9), breaker=BREAKER, service=f"s{n}", tag=f"s{n}") for n in range(250)]


@asynccontextmanager
async def open_store(url: str, clock: HandClock | None = None, cluster: str = "test") -> AsyncIterator[RedisStore]:
    reports = StoreReports(int, str, str)
    timed: dict[str, Any] = {"time_us": clock.now_us} if clock else {}
    store = RedisStore(
        open_transport(url), cluster, clock or SystemClock(), reports, deadline_seconds=30, late_us=LATE_US, **timed
    )
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(redis_server: RedisServer, clock: HandClock) -> AsyncIterator[RedisStore]:
    async with open_store(redis_server.url, clock) as opened:
        yield opened
