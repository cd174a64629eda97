"""Status of the Redis servers, for operators: version, eviction policy and latency."""

import asyncio
import time
from collections.abc import Mapping

from redis.exceptions import InvalidResponse, RedisError

from webhook.adapters.redis_store.error_classes import described
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.server import info_entry
from webhook.core.reporting.store_status import StoreServer, StoreServers

_SECONDS = 1.0


async def server_status(transport: Transport) -> StoreServers:
    """Ask each server once; the error if one does not answer, or INFO is not permitted."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_SECONDS):
            infos = await transport.infos()
        latency_us = int((time.perf_counter() - started) * 1_000_000)
        return StoreServers(_servers(infos, latency_us))
    except (RedisError, OSError, TimeoutError) as error:
        return StoreServers(error=described(error))


def _servers(infos: Mapping[str, bytes], latency_us: int) -> tuple[StoreServer, ...]:
    return tuple(
        StoreServer(
            lane,
            _entry(info, "redis_version"),
            _entry(info, "maxmemory_policy"),
            latency_us,
            _entry(info, "run_id"),
        )
        for lane, info in sorted(infos.items())
    )


def _entry(info: bytes, name: str) -> str:
    try:
        return info_entry(info, name)
    except InvalidResponse:
        return ""
