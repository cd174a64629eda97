"""Raw bytes on a connection: requests that no HTTP client sends, and the responses."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.harness.server_process import Serving, pod
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import Ask, build_admission_review, prepare_for_mutate
from webhook.core.admission.decision import Half

ASK = Ask(pod(), "free", "uid-1")
BODY = json.dumps(build_admission_review(ASK, prepare_for_mutate(ASK), Half.MUTATE)).encode()


@dataclass
class Line:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self) -> bytes:
        """Return the next answer whole, as its Content-Length says."""
        async with asyncio.timeout(HANG_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 100 "):
                return head
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            return head + await self.reader.readexactly(int(fields[b"Content-Length"]))

    async def rest(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        received = b""
        async with asyncio.timeout(HANG_SECONDS):
            try:
                while part := await self.reader.read(65536):
                    received += part
            except (ConnectionError, ssl.SSLError):
                pass
        return received

    async def is_cut(self) -> bool:
        return await self.rest() == b""


@asynccontextmanager
async def line(server: Serving, *, plain: bool = False) -> AsyncIterator[Line]:
    host, port = (server.plain if plain else server.admission).rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=None if plain else server.context)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


def head(server: Serving, *more: str, start: str = "POST /mutate HTTP/1.1", token: str | None = None) -> bytes:
    """Return a good request's head, its first line or its headers changed; an empty token is none."""
    bearer = server.files.signer.token() if token is None else token
    lines = [start, "Host: podgate", "Content-Type: application/json"]
    lines += [f"Authorization: Bearer {bearer}"] if bearer else []
    return "".join(f"{line}\r\n" for line in (*lines, *more)).encode() + b"\r\n"


def format_length(body: bytes = BODY) -> str:
    return f"Content-Length: {len(body)}"


def encode_chunks(body: bytes = BODY) -> bytes:
    half = len(body) // 2
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:])) + b"0\r\n\r\n"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def eventually(condition: Callable[[], Awaitable[bool]], within_seconds: float = HANG_SECONDS) -> None:
    """Wait for a condition in another process: there is no event."""
    async with asyncio.timeout(within_seconds):
        while not await condition():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.05)
