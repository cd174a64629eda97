"""Links between parts: relays of TCP connections that delay, lose, hold back or cut them, in one direction or both."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.cluster.background_loop import BackgroundLoop
from tests.cluster.tcp_relay import reset

_CHUNK_BYTES = 1 << 16
_CONNECT_SECONDS = 2.0
_ADDRESS = re.compile(rb"(\b127\.0\.0\.1(?:[ :]|\r\n(?::|\$5\r\n)))(\d{5})\b")
"""As Sentinels, CLUSTER SLOTS and MOVED write it."""
RETRANSMISSION_SECONDS = 0.2
"""After which Linux sends a lost segment again, the first time."""

Choose = Callable[[], Sequence[str]]
"""Returns the HOST:PORT to connect to, the best first."""


@dataclass
class Trouble:
    """What a link does to its connections. The answers of a TCP server come the other way than the requests."""

    delay_seconds: float = 0.0
    loss: float = 0.0
    """The share of the pieces that arrive only after a retransmission."""
    holds_requests: bool = False
    holds_answers: bool = False
    refuses: bool = False
    """Resets open connections, and each new one."""


@dataclass(eq=False)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    is_dead: bool = False
    """Neither side learns it: nothing passes any more, and nothing ends."""
    was_reset: asyncio.Event = field(default_factory=asyncio.Event)

    def reset(self) -> None:
        self.was_reset.set()
        for writer in (self.client, self.server):
            if writer is not None:
                reset(writer)


@dataclass(eq=False)
class Link:
    """All connections of one part to another one, over several ports if the other part has several.

    Use it from the thread of the test. `ports` are what `open` returned.
    """

    name: str
    loop: BackgroundLoop
    seed: int = 0
    ports: list[int] = field(default_factory=list)
    trouble: Trouble = field(default_factory=Trouble)
    accepted: int = 0

    def __post_init__(self) -> None:
        self._random = Random(f"{self.seed} {self.name}")  # noqa: S311  a network, not a secret
        self._passes = {False: asyncio.Event(), True: asyncio.Event()}  # by whether it is an answer
        self._open: dict[asyncio.Task[None], _Connection] = {}
        self._servers: list[asyncio.Server] = []
        self._apply()

    # --- from the thread of the test ---

    def open(self, choose: Choose, replaced: Mapping[int, int] | None = None) -> int:
        """Listen on a new port for connections to what `choose` returns; return the port.

        In answers the ports of `replaced` are written as their values, also of those that are added later: a Sentinel
        or a node of a Cluster then names the way through a link.
        """
        port = self.loop.run(self._listen(choose, {} if replaced is None else replaced))
        self.ports.append(port)
        return port

    def disturb(self, trouble: Trouble) -> None:
        self.loop.run(self._set(trouble))

    def heal(self) -> None:
        """Let everything pass again; connections that were half open are reset."""
        self.loop.run(self._set(Trouble()))

    def forget_connections(self) -> None:
        """Leave both ends of all open connections without the other one, and without a word; new ones work."""
        self.loop.run(self._forget())

    def cut(self) -> None:
        """Reset all open connections."""
        self.loop.run(self._cut())

    def close(self) -> None:
        self.loop.run(self._close())

    # --- in the loop ---

    async def _listen(self, choose: Choose, replaced: Mapping[int, int]) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._accept(reader, writer, choose, replaced)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _set(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self._apply()
        for connection in self._open.values():
            if trouble.refuses or connection.is_dead:
                connection.reset()

    def _apply(self) -> None:
        holds = {False: self.trouble.holds_requests, True: self.trouble.holds_answers}
        for is_answer, event in self._passes.items():
            event.clear() if holds[is_answer] else event.set()

    async def _forget(self) -> None:
        for connection in self._open.values():
            connection.is_dead = True

    async def _cut(self) -> None:
        for connection in self._open.values():
            connection.reset()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, choose: Choose, replaced: Mapping[int, int]
    ) -> None:
        self.accepted += 1
        connection, task = _Connection(writer), asyncio.current_task()
        assert task is not None
        self._open[task] = connection
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                await self._relay(connection, reader, choose, replaced)
                return
            connection.reset()
        finally:
            del self._open[task]

    async def _relay(
        self, connection: _Connection, reader: asyncio.StreamReader, choose: Choose, replaced: Mapping[int, int]
    ) -> None:
        if self.trouble.refuses:
            raise ConnectionRefusedError(self.name)
        answers, connection.server = await _connect(choose())
        both = (
            self._pump(connection, reader, connection.server, is_answer=False),
            self._pump(connection, answers, connection.client, is_answer=True, replaced=replaced),
        )
        await asyncio.gather(*both)
        connection.server.close()
        connection.client.close()

    async def _pump(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_answer: bool,
        replaced: Mapping[int, int] | None = None,
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await self._pass(connection, is_answer=is_answer)
            writer.write(replace_ports(chunk, replaced) if replaced else chunk)
            await writer.drain()
        await self._pass(connection, is_answer=is_answer)  # so does the end of a stream
        if writer.can_write_eof():
            writer.write_eof()

    async def _pass(self, connection: _Connection, *, is_answer: bool) -> None:
        """Wait until a piece arrives at the other end."""
        await self._passes[is_answer].wait()
        if connection.is_dead:
            await connection.was_reset.wait()
            raise ConnectionResetError(self.name)
        seconds = self.trouble.delay_seconds
        while self._random.random() < self.trouble.loss:
            seconds += RETRANSMISSION_SECONDS
        if seconds:
            await asyncio.sleep(seconds)
            await self._passes[is_answer].wait()


async def _connect(addresses: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of these addresses that accepts."""
    failure: Exception = ConnectionRefusedError("nothing to connect to")
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await asyncio.open_connection(host, int(port))
        except (OSError, TimeoutError) as error:
            failure = error
    raise failure


def replace_ports(chunk: bytes, replaced: Mapping[int, int]) -> bytes:
    """Replace ports, all of five digits, where they follow the address of loopback."""
    return _ADDRESS.sub(lambda found: found[1] + b"%d" % replaced.get(int(found[2]), int(found[2])), chunk)
