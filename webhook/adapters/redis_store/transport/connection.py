"""One connection to one server, shared by all calls; whatever does not end in good order ends the connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, NoScriptError, OutOfMemoryError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError

from webhook.adapters.redis_store.transport.connect import Dial, dropped_unless_done

# Longer than any deadline of an admission: who waits no longer leaves, the answer is read all the same. And short
# enough that a server that vanished without a word is soon looked for elsewhere.
_ANSWER_SECONDS = 5.0
_GREET_SECONDS = 2.0
# Said by a server in its senses: the same connection serves the next call. After any other error it is made anew, so
# that it goes to whoever is the primary now, with the password of now.
_IN_STEP = (NoScriptError, AskError, TryAgainError, OutOfMemoryError)

Greet = Callable[[AbstractConnection], Awaitable[None]]
"""Finds out on a new connection what must be known before it takes calls."""

Command = tuple[str | bytes | int, ...]


class SharedConnection:
    """Calls to one server, all on one connection, in order; nobody waits for another's answer before asking.

    Connects when it is first asked, and after each failure, which is one for all calls under way.
    """

    def __init__(self, dial: Dial, greet: Greet | None = None) -> None:
        self._dial = dial
        self._greet = greet
        self._connection: AbstractConnection | None = None
        self._dialling: asyncio.Task[AbstractConnection] | None = None
        self._last: asyncio.Future[None] | None = None
        """Done when the last one who asked has its answer."""

    async def ask(self, *commands: Command) -> Any:
        """Send commands together and return the raw answer to the last of them.

        RedisError for whatever the server objects to and for connections that fail; TimeoutError, OSError.
        """
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._asked(await self._connected(), commands)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {_ANSWER_SECONDS:g} s") from None

    async def drop(self) -> None:
        """Disconnect now: calls under way fail, and the next one connects anew."""
        await self._hang_up(self._connection)

    async def close(self) -> None:
        """Disconnect when the calls under way have ended."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])
        await self._hang_up(self._connection)

    async def _connected(self) -> AbstractConnection:
        if self._is_idle() and self._connection is not None and await self._connection.can_read():
            await self._hang_up(self._connection)  # nobody has asked: what can be read is the end
        if self._connection is not None:
            return self._connection
        if self._dialling is None:
            self._dialling = asyncio.create_task(self._greeted(), name="redis-dial")
            self._dialling.add_done_callback(self._dialled)
        return await asyncio.shield(self._dialling)  # who leaves does not end it: others wait for it, too

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
        """Write at once, and read when all have read who asked before."""
        if not connection.is_connected:
            raise RedisConnectionError("the connection was lost")
        before, mine = self._last, asyncio.get_running_loop().create_future()
        self._last = mine
        in_step = False
        try:
            # The connection is asked itself: the client's way there costs twice as much as the call.
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
