"""TLS termination in front of a server, because the servers in the wheels are built without TLS."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.redis_servers.server import RedisServer

_CHUNK_BYTES = 1 << 16
_HANDSHAKE = b"\x16"
"""First byte of every TLS connection, and of no Redis command."""


@asynccontextmanager
async def behind_tls(server: RedisServer, context: ssl.SSLContext) -> AsyncIterator[str]:
    """Yield a rediss:// URL of `server`; `context` is of the server side."""
    listening = socket.create_server(("127.0.0.1", 0))
    async with tls_proxy(listening, server, context):
        yield f"rediss://127.0.0.1:{listening.getsockname()[1]}/0"


@asynccontextmanager
async def tls_proxy(
    listening: socket.socket, server: RedisServer, context: ssl.SSLContext, *, plain: bool = False
) -> AsyncIterator[None]:
    """Forward TLS connections from a listening socket to `server`, with `plain` also connections without TLS.

    Sentinels and nodes of a Cluster announce one address to all, and here they connect to each other without TLS.
    """
    listening.setblocking(False)  # noqa: FBT003  the standard library's
    connections: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        while True:
            accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
            task = asyncio.create_task(_serve(accepted, server, context, plain=plain))
            connections.add(task)
            task.add_done_callback(connections.discard)

    accept_task = asyncio.create_task(accept())
    try:
        yield
    finally:
        for task in (tasks := [accept_task, *connections]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listening.close()


async def _serve(accepted: socket.socket, server: RedisServer, context: ssl.SSLContext, *, plain: bool) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    used_context = context if not plain or await _peek_byte(accepted) == _HANDSHAKE else None
    try:
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=used_context)
    except OSError:
        accepted.close()  # the client has disconnected
        return
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    try:
        with suppress(OSError):
            await _forward(reader, writer, server.port)
    finally:
        transport.abort()


async def _peek_byte(accepted: socket.socket) -> bytes:
    """Return the first byte of a connection without consuming it."""
    accepted.setblocking(False)  # noqa: FBT003  the standard library's
    while True:
        try:
            return accepted.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            await asyncio.sleep(0.001)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Forward a connection until either side closes it: TLS cannot close one direction alone."""
    server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
    pumps = [asyncio.create_task(_pump(reader, server_writer)), asyncio.create_task(_pump(server_reader, writer))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server_writer.transport.abort()  # first: the end of the proxy may cancel this task meanwhile
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
