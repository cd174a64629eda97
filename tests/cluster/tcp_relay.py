"""Relay of one TCP connection to another, including end of stream and failure."""

import asyncio
import contextlib
import socket
import struct

_CHUNK_BYTES = 1 << 16
_PROBE_SECONDS = 20


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
    """Relay a connection to HOST:PORT until both directions end; raise OSError if one fails."""
    host, _, port = address.rpartition(":")
    server_reader, server_writer = await asyncio.open_connection(host, int(port))
    try:
        await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))
    except BaseException:
        reset(server_writer)
        raise
    server_writer.close()
    writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward data and the end of one direction; the other direction stays open."""
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection with RST: data in flight are lost, as in a network failure."""
    with contextlib.suppress(OSError):  # it is closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def probe_ready(url: str) -> bool:
    """Whether a server's readiness endpoint (http) returns 200, as the kubelet's probe."""
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
