"""A store on a Redis of the test's own, in virtual time, which waits long for each answer."""

from collections.abc import AsyncIterator

import pytest

from tests.core.reviewing import NOW_US
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.ports import StoreReports


@pytest.fixture
async def store(own_redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    quiet = StoreReports(lambda *_: None, lambda *_: None, lambda *_: None)
    made = RedisStore(
        open_transport(own_redis_server.url), "test", VirtualClock(NOW_US), quiet, deadline_seconds=60, late_us=0
    )
    yield made
    await made.close()
