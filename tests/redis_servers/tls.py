"""TLS in front of a server: no wheel's server was built with it, so that it is ended here and the rest passed on."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.redis_servers.server import RedisServer

_CHUNK_BYTES = 1 << 16


@asynccontextmanager
async def behind_tls(server: RedisServer, context: ssl.SSLContext) -> AsyncIterator[str]:
    """Yield the rediss:// URL of `server`; `context` is what the server side speaks TLS with."""
    passing: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        passing.add(task)
        try:
            await _pass(reader, writer, server.port)
        except (OSError, asyncio.CancelledError):
            pass  # whoever breaks off, or ends all this, has no more to hear
        finally:
            passing.discard(task)
            writer.transport.abort()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield f"rediss://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0"
    finally:
        listener.close()
        for task in (ending := list(passing)):
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Pass a connection on until either side ends it: TLS cannot end one direction alone."""
    there, onward = await asyncio.open_connection("127.0.0.1", port)
    pumps = [asyncio.create_task(_pump(reader, onward)), asyncio.create_task(_pump(there, writer))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        onward.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
