"""Status of the Redis servers, for operators: versions, memory policies, and how they save."""

import asyncio
import time
from collections.abc import Mapping

from redis.exceptions import InvalidResponse, RedisError, ResponseError

from webhook.adapters.redis_store.error_classes import described
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.server import find_info_entry
from webhook.core.reporting.status_parts import StoreServer, StoreServers

_SECONDS = 1.0


async def server_status(transport: Transport) -> StoreServers:
    """Ask each server once; return the error if a server does not answer, or INFO is not permitted."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_SECONDS):
            infos = await transport.infos()
        latency_us = int((time.perf_counter() - started) * 1_000_000)
        async with asyncio.timeout(_SECONDS):
            saves = {lane: await _save(transport, lane) for lane, info in infos.items() if _append_only(info) is False}
        return StoreServers(_servers(infos, latency_us, saves))
    except (RedisError, OSError, TimeoutError) as error:
        return StoreServers(error=str(described(error)))


def _servers(infos: Mapping[str, bytes], latency_us: int, saves: Mapping[str, str | None]) -> tuple[StoreServer, ...]:
    return tuple(
        StoreServer(
            lane,
            _entry(info, "redis_version"),
            _entry(info, "maxmemory_policy"),
            latency_us,
            _entry(info, "run_id"),
            _append_only(info),
            saves.get(lane),
        )
        for lane, info in sorted(infos.items())
    )


async def _save(transport: Transport, lane: str) -> str | None:
    """Return when a server saves snapshots; None if that is unknown: CONFIG may be renamed, or not permitted.

    Asked on a connection of its own, because an error ends the running calls of a connection.
    """
    stream = await transport.dial_lane(lane)
    try:
        answer = await stream.ask(("CONFIG", "GET", "save"))
    except ResponseError:
        return None
    finally:
        stream.close()
    return answer[1].decode(errors="replace") if len(answer) > 1 else None


def _append_only(info: bytes) -> bool | None:
    return {"0": False, "1": True}.get(_entry(info, "aof_enabled"))


def _entry(info: bytes, name: str) -> str:
    try:
        return find_info_entry(info, name)
    except InvalidResponse:
        return ""
