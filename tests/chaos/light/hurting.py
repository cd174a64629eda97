"""The effects of the faults of the light stage, on a server or on a Redis."""

import asyncio
import signal
import time
from collections.abc import Callable, Mapping

from tests.chaos.light.schedules import DISK_FULL, EMPTY, FLUSH, KILL, MOVED_TAG, PAUSE, SLOT_MOVED
from tests.chaos.light.servers import LightServer
from tests.chaos.light.stores import LightStore
from tests.redis_servers import RedisServer
from tests.redis_servers.waiting import wait_until


async def hurt_server(kind: str, server: LightServer, until: float) -> None:
    assert server.process is not None
    if kind == KILL:
        await server.kill()
        await _sleep_until(until)
        await server.start()
    elif kind == PAUSE:
        server.process.send_signal(signal.SIGSTOP)
        try:
            await _sleep_until(until)
        finally:
            server.process.send_signal(signal.SIGCONT)


async def hurt_redis(kind: str, store: LightStore, part: str, until: float) -> None:
    if kind == SLOT_MOVED:
        await asyncio.to_thread(_move_slot, store)
        return
    begin, heal = _EFFECTS[kind]
    server = store.servers[part]
    await asyncio.to_thread(begin, server)
    try:
        await _sleep_until(until)
    finally:
        await asyncio.to_thread(heal, server)


async def _sleep_until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


def _flush(server: RedisServer) -> None:
    server.cli("FLUSHALL")


def _fill_disk(server: RedisServer) -> None:
    """Let no snapshot be saved, so that Redis refuses writes by MISCONF, as while its disk is full."""
    (server.folder / "dump.rdb").mkdir()
    server.cli("CONFIG", "SET", "save", "3600 1")
    server.cli("BGSAVE")
    wait_until(lambda: server.cli("INFO", "persistence")["rdb_last_bgsave_status"] == "err", "no snapshot is saved")


def _clear_disk(server: RedisServer) -> None:
    server.cli("CONFIG", "SET", "save", "")
    (server.folder / "dump.rdb").rmdir()


def _move_slot(store: LightStore) -> None:
    """Move a slot to another node."""
    assert store.cluster is not None, "slots are of a Cluster"
    owner = store.cluster.owner(MOVED_TAG)
    to = next(node for node in store.servers.values() if node is not owner)
    store.cluster.begin_move(MOVED_TAG, to)
    store.cluster.end_move(MOVED_TAG, to)


def _leave(_: RedisServer) -> None:
    """There is nothing to undo."""


_EFFECTS: Mapping[str, tuple[Callable[[RedisServer], None], Callable[[RedisServer], None]]] = {
    FLUSH: (_flush, _leave),
    PAUSE: (RedisServer.pause, RedisServer.resume),
    EMPTY: (RedisServer.kill, RedisServer.start),
    DISK_FULL: (_fill_disk, _clear_disk),
}
"""What begins and what ends a fault of one Redis."""
