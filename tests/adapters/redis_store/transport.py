"""Helpers of the `transport` tests that other tests use, too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.redis_servers import RedisServer
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.redis_url import open_transport
from webhook.adapters.redis_store.transport.script import Script
from webhook.ports.store_url import StoreFiles

ECHO = Script("redis.call('INCR', KEYS[1]) return ARGV[1]")


KEY = "podgate:{a}:count"


NO_FILES = StoreFiles()


@asynccontextmanager
async def open_link(url: str, files: StoreFiles = NO_FILES, script: Script = ECHO) -> AsyncIterator[Transport]:
    """Yield a link with that script, and close it in any case: an open link would block the end of the loop."""
    link = open_transport(url, files, script)
    try:
        yield link
    finally:
        await link.close()


@pytest.fixture
async def link(redis_server: RedisServer) -> AsyncIterator[Transport]:
    async with open_link(redis_server.url) as opened:
        yield opened
