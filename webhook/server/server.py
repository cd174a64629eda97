"""Admission server, health server and decision server, and their graceful shutdown."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from webhook.ports import Observer
from webhook.server.call_endpoint import CallEndpoint
from webhook.server.connection_table import ConnectionGuard, ConnectionLimits, ConnectionTable
from webhook.server.http1 import HttpProtocols
from webhook.server.http_messages import Handler, HttpRequest, HttpResponse
from webhook.server.listener import Listener

# Connections of the plain port are never trusted: idle clients must not block the kubelet's probes, or the container
# would be restarted.
_PLAIN_LIMITS = ConnectionLimits(connections_max=64)
_PLAIN_KEEP_ALIVE_SECONDS = 75.0
_LAST_RESPONSES_SECONDS = 1.0
"""For responses that are being written when the grace period ends."""


@dataclass(frozen=True, slots=True)
class ServerTimeouts:
    """Timeouts of idle connections and of the shutdown.

    `accept_seconds`: the least time for which a drain accepts connections, even if none is open.
    """

    keep_alive_seconds: float
    drain_seconds: float
    grace_seconds: float
    accept_seconds: float = 0.0


class PlainServer:
    """A handler over plain HTTP."""

    def __init__(self, handler: Handler, observer: Observer) -> None:
        self._handler = handler
        self._connections = ConnectionTable(_PLAIN_LIMITS, context=None)
        self._protocols = HttpProtocols(self._handle, _PLAIN_KEEP_ALIVE_SECONDS, observer.on_refused)
        self.listener = Listener(self._protocols, self._connections, observer.on_refused)

    async def stop(self) -> None:
        """Stop accepting, and give responses that are being written a moment."""
        await _end(self.listener, self._protocols, self._connections)

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        self._connections.record_request(request.transport)
        return await self._handler(request)


class Server:
    """Admission over TLS on one port; over plain HTTP health, metrics and status on another, decisions on a third."""

    def __init__(
        self,
        endpoint: CallEndpoint,
        guard: ConnectionGuard,
        plain: Handler,
        decisions: Handler,
        observer: Observer,
        timeouts: ServerTimeouts,
    ) -> None:
        self._endpoint = endpoint
        self._guard = guard
        self._timeouts = timeouts
        self._health, self._decisions = PlainServer(plain, observer), PlainServer(decisions, observer)
        self.plain, self.decisions = self._health.listener, self._decisions.listener
        self._protocols = HttpProtocols(endpoint.answer, timeouts.keep_alive_seconds, observer.on_refused)
        self.admission = Listener(self._protocols, guard.connections, observer.on_refused)

    async def stop(self, hurry: asyncio.Event) -> None:
        """Shut down without losing a call.

        First drain: unready, but still accepting; each response has `Connection: close`, so that clients reconnect
        elsewhere. When no connection is left after `accept_seconds`, the drain time is over or `hurry` is set, stop
        accepting and finish the calls that are running or still arriving.
        """
        self._guard.drain()
        await self._drain(hurry)
        await self.admission.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._endpoint.wait_idle(), self._timeouts.grace_seconds)
        await _end(self.admission, self._protocols, self._guard.connections)
        await asyncio.gather(self._health.stop(), self._decisions.stop())

    async def _drain(self, hurry: asyncio.Event) -> None:
        waits = [asyncio.create_task(self._wait_unused()), asyncio.create_task(hurry.wait())]
        _, pending = await asyncio.wait(
            waits, timeout=self._timeouts.drain_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()

    async def _wait_unused(self) -> None:
        await asyncio.sleep(self._timeouts.accept_seconds)
        await self._guard.connections.wait_empty()


async def _end(listener: Listener, protocols: HttpProtocols, connections: ConnectionTable) -> None:
    await listener.close()
    await protocols.end(_LAST_RESPONSES_SECONDS)
    with suppress(TimeoutError):
        await asyncio.wait_for(connections.wait_empty(), _LAST_RESPONSES_SECONDS)
    connections.abort()
