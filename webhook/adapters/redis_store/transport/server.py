"""ServerTransport: one Redis server at a time; and the commands that all transports send to a server."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import InvalidResponse, ResponseError

from webhook.adapters.redis_store.transport.connect import Dial
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.protocol import Connected
from webhook.adapters.redis_store.transport.script import Script
from webhook.adapters.redis_store.transport.stream import Command, RespStream

_KEYS_PER_SCAN_MAX = 1000
_INFO = ("INFO",)


class MissingEntryError(InvalidResponse):
    """A reply to INFO lacks an entry."""


class ServerTransport:
    """`dial` connects to the current server."""

    one_tag_a_call = False

    def __init__(self, dial: Dial, script: Script, dial_apart: Dial | None = None) -> None:
        self.on_connected: Connected | None = None
        self._connection = SharedConnection(dial, self._greet)
        self._script = script
        self._dial_apart = dial_apart or dial

    def lane(self, _: str) -> str:
        return ""

    def run(self, keys: Sequence[str], argument: bytes) -> Awaitable[Any]:
        return self._script.run(self._connection, keys, argument)

    async def ask_histories(self) -> Mapping[str, str]:
        return {"": await ask_history(self._connection.ask)}

    async def infos(self) -> Mapping[str, bytes]:
        return {"": await self._connection.ask(_INFO)}

    async def ping(self) -> None:
        await self._connection.ask(("PING",))

    async def forget(self, pattern: str) -> int:
        return await forget(self._connection, pattern)

    async def dial(self, key: str = "") -> RespStream:  # noqa: ARG002  one server has all keys
        return await self._dial_apart()

    async def dial_lane(self, lane: str) -> RespStream:  # noqa: ARG002  there is one
        return await self._dial_apart()

    async def close(self) -> None:
        await self._connection.close()

    async def _greet(self, connection: RespStream) -> None:
        await greet(connection, "", self.on_connected)


async def greet(connection: RespStream, lane: str, on_connected: Connected | None) -> None:
    """Report the history behind a new connection, if there is a callback and the server names its process."""
    if on_connected is None:
        return
    with suppress(ResponseError, MissingEntryError):
        on_connected(lane, await ask_history(connection.ask))


async def ask_history(ask: Callable[[Command], Awaitable[Any]]) -> str:
    """Return the name of the history of a server's data: its run_id, and behind a colon what it was promoted from.

    A primary that is replaced discards what was not replicated; promoted again, it has the same run_id as before.
    """
    process = find_info_entry(await ask(("INFO", "server")), "run_id")
    with suppress(MissingEntryError):  # not every server that speaks the protocol has it
        former = find_info_entry(await ask(("INFO", "replication")), "master_replid2")
        if former.strip("0"):
            return f"{process}:{former}"
    return process


def find_info_entry(info: bytes, name: str) -> str:
    """Return one entry of a reply to INFO."""
    for entry in info.decode(errors="replace").splitlines():
        key, _, value = entry.partition(":")
        if key == name:
            return value
    raise MissingEntryError(f"INFO has no {name}")


async def forget(connection: SharedConnection, pattern: str) -> int:
    """Delete the matching keys of a server, one command each: keys of a Cluster have different slots."""
    cursor, deleted = b"0", 0
    while True:
        cursor, keys = await connection.ask(("SCAN", cursor, "MATCH", pattern, "COUNT", _KEYS_PER_SCAN_MAX))
        if keys:
            await connection.ask(*(("UNLINK", key) for key in keys))
            deleted += len(keys)
        if cursor == b"0":
            return deleted
