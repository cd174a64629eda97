"""TLS termination in front of a server, because the wheels' servers are built without it."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.redis_servers.server import RedisServer

_CHUNK_BYTES = 1 << 16
_HANDSHAKE = b"\x16"
"""What every TLS connection begins with, and no Redis command."""


@asynccontextmanager
async def behind_tls(server: RedisServer, context: ssl.SSLContext) -> AsyncIterator[str]:
    """Yield the rediss:// URL of `server`; `context` is what the server side speaks TLS with."""
    listening = socket.create_server(("127.0.0.1", 0))
    async with gate(listening, server, context):
        yield f"rediss://127.0.0.1:{listening.getsockname()[1]}/0"


@asynccontextmanager
async def gate(
    listening: socket.socket, server: RedisServer, context: ssl.SSLContext, *, plain: bool = False
) -> AsyncIterator[None]:
    """Pass on what comes by TLS to a socket, which is closed in the end; with `plain` also what comes without.

    Sentinels and the nodes of a Cluster tell everybody one address, and among themselves they speak without TLS here.
    """
    listening.setblocking(False)  # noqa: FBT003  the standard library's
    passing: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        while True:
            accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
            task = asyncio.create_task(_serve(accepted, server, context, plain=plain))
            passing.add(task)
            task.add_done_callback(passing.discard)

    accepting = asyncio.create_task(accept())
    try:
        yield
    finally:
        for task in (ending := [accepting, *passing]):
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        listening.close()


async def _serve(accepted: socket.socket, server: RedisServer, context: ssl.SSLContext, *, plain: bool) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    used = context if not plain or await _first_byte(accepted) == _HANDSHAKE else None
    try:
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=used)
    except OSError:
        accepted.close()  # whoever breaks off has no more to hear
        return
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    try:
        with suppress(OSError):
            await _pass(reader, writer, server.port)
    finally:
        transport.abort()


async def _first_byte(accepted: socket.socket) -> bytes:
    """Return what a connection begins with, and leave it there."""
    accepted.setblocking(False)  # noqa: FBT003  the standard library's
    while True:
        try:
            return accepted.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            await asyncio.sleep(0.001)


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
