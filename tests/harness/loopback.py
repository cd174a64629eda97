"""A listener on loopback with a small handler behind it, on real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.timeouts import HANG_SECONDS
from webhook.server.connection_table import ConnectionLimits, ConnectionTable
from webhook.server.http1 import HttpProtocols
from webhook.server.http_messages import Handler, HttpRequest, HttpResponse
from webhook.server.listener import Listener


@dataclass
class Loopback:
    """The listener as a test sees it."""

    listener: Listener
    connections: ConnectionTable
    refused: list[tuple[str, str]] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    """What `record_request` returned for each request."""

    @property
    def port(self) -> int:
        return self.listener.addresses[0][1]

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.refused]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for an action of the server without an event, such as noticing a disconnect."""
        async with asyncio.timeout(HANG_SECONDS):
            while not condition():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)


@asynccontextmanager
async def loopback(
    handler: Handler, context: Callable[[], ssl.SSLContext] | None, limits: ConnectionLimits | None = None
) -> AsyncIterator[Loopback]:
    seen: list[Loopback] = []

    async def handle(request: HttpRequest) -> HttpResponse:
        seen[0].kept.append(connections.record_request(request.transport))
        if "X-Earn" in request.headers:
            connections.mark_trusted(request.transport)
        return await handler(request)

    refused: list[tuple[str, str]] = []
    server = HttpProtocols(handle, 3600, lambda reason, detail: refused.append((reason, detail)))
    connections = ConnectionTable(limits or ConnectionLimits(), context)
    listener = Listener(server, connections, lambda reason, detail: refused.append((reason, detail)))
    seen.append(Loopback(listener, connections, refused))
    await listener.start("127.0.0.1", 0)
    try:
        yield seen[0]
    finally:
        await listener.close()
        connections.abort()
        await server.end(0)
        async with asyncio.timeout(HANG_SECONDS):
            await connections.wait_empty()


async def post(port: int, context: ssl.SSLContext | None, *headers: tuple[str, str]) -> tuple[int, str]:
    """Make one request, never repeated, on a connection of its own; return status and body."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        session.post(
            f"{'https' if context else 'http'}://127.0.0.1:{port}/", headers=list(headers), ssl=context or False
        ) as response,
    ):
        return response.status, await response.text()
