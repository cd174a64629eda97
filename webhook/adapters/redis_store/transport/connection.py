"""SharedConnection: one connection to one server, pipelined by all calls; an error closes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import AskError, NoScriptError, OutOfMemoryError, TryAgainError

from webhook.adapters.redis_store.transport.connect import Dial, drop_unless_done
from webhook.adapters.redis_store.transport.stream import Command, RespStream

_GREET_SECONDS = 2.0
# Errors of a healthy server: the connection is kept. After any other error the next call reconnects, to the current
# primary, with the current password.
_OF_HEALTHY_SERVERS = (NoScriptError, AskError, TryAgainError, OutOfMemoryError)

Greet = Callable[[RespStream], Awaitable[None]]
"""Queries a new connection before it takes calls."""


class SharedConnection:
    """Calls to one server on one connection, pipelined in order.

    Connects at the first call, and again after each failure, which fails all running calls.
    """

    def __init__(self, dial: Dial, greet: Greet | None = None) -> None:
        self._dial = dial
        self._greet = greet
        self._stream: RespStream | None = None
        self._dialling: asyncio.Task[RespStream] | None = None

    async def ask(self, *commands: Command) -> Any:
        """Send commands together and return the raw answer to the last of them.

        RedisError for errors of the server and failed connections; TimeoutError, OSError.
        """
        stream = self._stream
        if stream is None or stream.is_closed:
            stream = await self._connect()
        try:
            return await stream.ask(*commands)
        except _OF_HEALTHY_SERVERS:
            raise
        except BaseException:
            self._hang_up(stream)
            raise

    async def drop(self) -> None:
        """Disconnect now: running calls fail, and the next one reconnects."""
        self._hang_up(self._stream)

    async def close(self) -> None:
        """Disconnect when the running calls have ended."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        if self._stream is not None:
            await self._stream.finish()

    async def _connect(self) -> RespStream:
        if self._dialling is None:
            self._dialling = asyncio.create_task(self._dial_and_greet(), name="redis-dial")
            self._dialling.add_done_callback(self._on_dialled)
        return await asyncio.shield(self._dialling)  # shared: a cancelled call must not cancel it

    async def _dial_and_greet(self) -> RespStream:
        stream = await self._dial()
        if self._greet is not None:
            async with asyncio.timeout(_GREET_SECONDS), drop_unless_done(stream):
                await self._greet(stream)
        return stream

    def _on_dialled(self, task: "asyncio.Task[RespStream]") -> None:
        self._dialling = None
        if not task.cancelled() and task.exception() is None:
            self._stream = task.result()

    def _hang_up(self, stream: RespStream | None) -> None:
        if stream is self._stream:
            self._stream = None
        if stream is not None:
            stream.close()
