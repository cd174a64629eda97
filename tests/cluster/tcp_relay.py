"""One TCP connection relayed to another, including end of stream and failure."""

import asyncio
import contextlib
import socket
import struct

_CHUNK_BYTES = 1 << 16
_PROBE_SECONDS = 20


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
    """Pass a connection through to HOST:PORT until both sides have said all; OSError where one breaks off."""
    host, _, port = address.rpartition(":")
    there, onward = await asyncio.open_connection(host, int(port))
    try:
        await asyncio.gather(_pump(reader, onward), _pump(there, writer))
    except BaseException:
        reset(onward)
        raise
    onward.close()
    writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand on what comes, and its end: the other direction may have more to say."""
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST: what was on its way is lost, as in a network failure."""
    with contextlib.suppress(OSError):  # it has ended by itself meanwhile
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def wants_connections(url: str) -> bool:
    """Ask a server's readiness endpoint (http), as the kubelet does."""
    authority, _, path = url.removeprefix("http://").partition("/")
    host, _, port = authority.rpartition(":")
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(f"GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False
