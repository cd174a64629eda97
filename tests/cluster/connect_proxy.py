"""HTTP CONNECT proxy on a socket, instead of the network of Pods: every address leads to one server on loopback."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.background_loop import BackgroundLoop
from tests.cluster.tcp_relay import relay, reset


@contextmanager
def connect_proxy(socket: Path, server: str) -> Iterator[set[str]]:
    """Relay connections to the HOST:PORT of a server; yield the addresses that were asked for."""
    asked: set[str] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            method, address, _ = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)
            assert method == "CONNECT"
            asked.add(address)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await relay(reader, writer, server)
            return
        reset(writer)

    async def close(listener: asyncio.Server) -> None:
        listener.close()

    loop = BackgroundLoop("connect-proxy")
    listener = loop.run(asyncio.start_unix_server(accept, socket))
    try:
        yield asked
    finally:
        loop.run(close(listener))
        loop.close()
