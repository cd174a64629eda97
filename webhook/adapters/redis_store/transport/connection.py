"""SharedConnection: one connection to one server, pipelined by all calls; an error closes it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, NoScriptError, OutOfMemoryError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError

from webhook.adapters.redis_store.transport.connect import Dial, dropped_unless_done

# Longer than any deadline of an admission: after a timeout the answer is still read. Short enough that a server that
# vanished without closing the connection is soon replaced.
_ANSWER_SECONDS = 5.0
_GREET_SECONDS = 2.0
# Errors of a healthy server: the connection is kept. After any other error the next call reconnects, to the current
# primary, with the current password.
_IN_STEP = (NoScriptError, AskError, TryAgainError, OutOfMemoryError)

Greet = Callable[[AbstractConnection], Awaitable[None]]
"""Queries a new connection before it takes calls."""

Command = tuple[str | bytes | int, ...]


class SharedConnection:
    """Calls to one server on one connection, pipelined in order.

    Connects at the first call, and again after each failure, which fails all running calls.
    """

    def __init__(self, dial: Dial, greet: Greet | None = None) -> None:
        self._dial = dial
        self._greet = greet
        self._connection: AbstractConnection | None = None
        self._dialling: asyncio.Task[AbstractConnection] | None = None
        self._last: asyncio.Future[None] | None = None
        """Done when the newest call has its answer."""

    async def ask(self, *commands: Command) -> Any:
        """Send commands together and return the raw answer to the last of them.

        RedisError for errors of the server and failed connections; TimeoutError, OSError.
        """
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._asked(await self._connected(), commands)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {_ANSWER_SECONDS:g} s") from None

    async def drop(self) -> None:
        """Disconnect now: running calls fail, and the next one reconnects."""
        await self._hang_up(self._connection)

    async def close(self) -> None:
        """Disconnect when the running calls have ended."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])
        await self._hang_up(self._connection)

    async def _connected(self) -> AbstractConnection:
        if self._is_idle() and self._connection is not None and await self._connection.can_read():
            await self._hang_up(self._connection)  # without a running call, only the end of the stream can be read
        if self._connection is not None:
            return self._connection
        if self._dialling is None:
            self._dialling = asyncio.create_task(self._greeted(), name="redis-dial")
            self._dialling.add_done_callback(self._dialled)
        return await asyncio.shield(self._dialling)  # shared: a cancelled call must not cancel it

    async def _greeted(self) -> AbstractConnection:
        connection = await self._dial()
        if self._greet is not None:
            async with asyncio.timeout(_GREET_SECONDS), dropped_unless_done(connection):
                await self._greet(connection)
        return connection

    def _dialled(self, task: "asyncio.Task[AbstractConnection]") -> None:
        self._dialling = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    def _is_idle(self) -> bool:
        return self._last is None or self._last.done()

    async def _asked(self, connection: AbstractConnection, commands: Sequence[Command]) -> Any:
        """Write at once; read after all calls before this one have read."""
        if not connection.is_connected:
            raise RedisConnectionError("the connection was lost")
        before, mine = self._last, asyncio.get_running_loop().create_future()
        self._last = mine
        in_step = False
        try:
            # On the connection itself: redis-py's client would cost twice as much as the call.
            await connection.send_packed_command(_packed(commands))
            if before is not None and not before.done():
                await asyncio.shield(before)
            for _ in commands[1:]:
                await connection.read_response()
            try:
                answer = await connection.read_response()
            except _IN_STEP:
                in_step = True
                raise
            in_step = True
            return answer
        finally:
            mine.set_result(None)
            if not in_step:
                await self._hang_up(connection)

    async def _hang_up(self, connection: AbstractConnection | None) -> None:
        if connection is self._connection:
            self._connection = None
        if connection is not None:
            await connection.disconnect(nowait=True)


def _packed(commands: Iterable[Command]) -> bytes:
    return b"".join([pack_command(command) for command in commands])  # type: ignore[arg-type]  # typed as if a command had one part
