"""Fixtures of the histories that are tried on each store: a clock that they set, and a stage."""

from collections.abc import Callable, Iterator

import pytest

from tests.contract.exact_operations import HandClock
from tests.contract.store_session import STORES, Stage, open_stage
from tests.redis_servers import RedisServer


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=STORES)
def stage(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> Iterator[Stage]:
    with open_stage(request.param, clock, shared_redis) as on:
        yield on
