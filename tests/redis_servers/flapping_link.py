"""FlappingLink: a TCP proxy in front of a Redis server that holds requests or answers back, and loses nothing."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16


class FlappingLink:
    """The way of one replica to Redis. `client_ports` are the ports from which Redis sees it."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._requests_pass, self._answers_pass = asyncio.Event(), asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self.client_ports: set[int] = set()
        self.let_pass()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.let_pass()
        self._listener.close()
        for writer in self._open:
            writer.transport.abort()
        await self._listener.wait_closed()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}/0"

    def hold(self, *, requests: bool, answers: bool) -> None:
        if requests:
            self._requests_pass.clear()
        if answers:
            self._answers_pass.clear()

    def let_pass(self) -> None:
        self._requests_pass.set()
        self._answers_pass.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self.client_ports.add(server_writer.get_extra_info("sockname")[1])
        self._open |= {writer, server_writer}
        with suppress(OSError):
            await asyncio.gather(
                _pump(reader, server_writer, self._requests_pass), _pump(server_reader, writer, self._answers_pass)
            )


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        await passes.wait()
        writer.write(chunk)
        await writer.drain()
    writer.transport.abort()
