"""What the store asks of Redis, however its servers stand; and that of one server, or the primary of a group."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import InvalidResponse, ResponseError

from webhook.adapters.redis_store.transport.connect import Dial
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.script import Script

_KEYS_A_SCAN = 1000

Connected = Callable[[str, str], None]
"""Hears, before a connection takes calls, which process is at its other end: the lane, and the name of the process."""


class Transport(Protocol):
    """A Redis. Every method raises RedisError, OSError or TimeoutError, whose words hold no password.

    Nothing is tried twice: after an error the next call looks the servers up again, and connects anew.
    """

    on_connected: Connected | None

    @property
    def one_tag_a_call(self) -> bool:
        """Whether all keys of one call must have the same tag."""

    def lane(self, tag: str) -> str:
        """Return where calls with this tag go. Calls of one lane wait for each other; lanes change with the servers."""

    async def run(self, keys: Sequence[str], argument: bytes) -> Any:
        """Run the script once, whole, and return its raw answer."""

    async def run_ids(self) -> Mapping[str, str]:
        """Return what each process that can be asked calls itself, by lane. Another name is another process.

        It may lack what the one before it had acknowledged.
        """

    async def ping(self) -> None:
        """Make sure that all of them answer."""

    async def forget(self, pattern: str) -> None:
        """Delete all keys that fit a glob-style pattern."""

    async def dial(self) -> AbstractConnection:
        """Return one more connection, for what is published by whoever takes calls now; who asks for it hangs up."""

    async def close(self) -> None:
        """Disconnect when the calls under way have ended."""


class ServerTransport:
    """One server at a time: `dial` knows which."""

    one_tag_a_call = False

    def __init__(self, dial: Dial, script: Script, dial_apart: Dial | None = None) -> None:
        self.on_connected: Connected | None = None
        self._line = SharedConnection(dial, self._greet)
        self._script = script
        self._dial_apart = dial_apart or dial

    def lane(self, _: str) -> str:
        return ""

    async def run(self, keys: Sequence[str], argument: bytes) -> Any:
        return await self._script.run(self._line, keys, argument)

    async def run_ids(self) -> Mapping[str, str]:
        return {"": await run_id(self._line)}

    async def ping(self) -> None:
        await self._line.ask(("PING",))

    async def forget(self, pattern: str) -> None:
        await forget(self._line, pattern)

    async def dial(self) -> AbstractConnection:
        return await self._dial_apart()

    async def close(self) -> None:
        await self._line.close()

    async def _greet(self, connection: AbstractConnection) -> None:
        await greet(connection, "", self.on_connected)


async def greet(connection: AbstractConnection, lane: str, on_connected: Connected | None) -> None:
    """Tell which process a new connection has reached; nothing where nobody wants to know, or it does not say."""
    if on_connected is None:
        return
    await connection.send_command("INFO", "server")
    with suppress(ResponseError):
        info = await connection.read_response()
        with suppress(InvalidResponse):
            on_connected(lane, told(info, "run_id"))


async def run_id(line: SharedConnection) -> str:
    """Return the name that a server's process has given itself at its start."""
    return told(await line.ask(("INFO", "server")), "run_id")


def told(info: bytes, name: str) -> str:
    """Return one entry of an answer to INFO."""
    for entry in info.decode(errors="replace").splitlines():
        key, _, value = entry.partition(":")
        if key == name:
            return value
    raise InvalidResponse(f"INFO does not say {name}")


async def forget(line: SharedConnection, pattern: str) -> None:
    """Delete a server's keys; one command each, for those of a Cluster have different slots."""
    cursor = b"0"
    while True:
        cursor, keys = await line.ask(("SCAN", cursor, "MATCH", pattern, "COUNT", _KEYS_A_SCAN))
        if keys:
            await line.ask(*(("UNLINK", key) for key in keys))
        if cursor == b"0":
            return
