"""The two listeners and their end: drain before going, lose no call."""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web

from webhook.authentication.peer_recheck import PeerRecheck
from webhook.ports import Observer
from webhook.server.admission import AdmissionEndpoint
from webhook.server.http1 import Handler, HttpLimits, HttpProtocols
from webhook.server.listener import ConnectionLimits, Listener
from webhook.tls.context import TlsFiles

# Nobody earns a place on the plain port: who holds on to it must not keep out the kubelet's probe, which would end us.
_PLAIN_LIMITS = ConnectionLimits(connections_max=64)
_PLAIN_BOUNDS = HttpLimits(keep_alive_seconds=75.0, body_max_bytes=1024)
_LAST_WORDS_SECONDS = 1.0
"""For an answer that is on its way when the time is up."""


@dataclass(frozen=True, slots=True)
class ServerTimeouts:
    """How long things may last."""

    keep_alive_seconds: float
    drain_seconds: float
    grace_seconds: float


class PlainServer:
    """Health, metrics and status, plain."""

    def __init__(self, handler: Handler, observer: Observer) -> None:
        self._handler = handler
        self._protocols = HttpProtocols(self._handle, _PLAIN_BOUNDS, observer.refused)
        self.listener = Listener(self._protocols, context=None, limits=_PLAIN_LIMITS, on_refused=observer.refused)

    async def stop(self) -> None:
        """Accept nothing new, and give answers that are on their way a moment."""
        await _end(self.listener, self._protocols)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.listener.seen(request.transport)
        return await self._handler(request)


class Server:
    """Admission over mutual TLS on one port; health, metrics and status on another, plain."""

    def __init__(
        self,
        edge: AdmissionEndpoint,
        plain: Handler,
        tls: TlsFiles,
        observer: Observer,
        limits: ConnectionLimits,
        patience: ServerTimeouts,
    ) -> None:
        self.draining = False
        self._edge = edge
        self._peers = PeerRecheck(lambda: tls.value.trust)
        self._plain = PlainServer(plain, observer)
        self.plain = self._plain.listener
        self._patience = patience
        self._admission_protocols = HttpProtocols(
            edge.handler(self), HttpLimits(patience.keep_alive_seconds, edge.body_max_bytes), observer.refused
        )
        self.admission = Listener(
            self._admission_protocols, context=lambda: tls.context, limits=limits, on_refused=observer.refused
        )

    async def stop(self, hurry: asyncio.Event) -> None:
        """Go without losing a call.

        Not ready, but still accepting: callers hear `Connection: close` and go elsewhere. When the last has gone, or
        patience has, or someone asks to `hurry`, nothing new is accepted; what runs or still arrives is finished.
        """
        self.draining = True
        await self._until_quiet(hurry)
        await self.admission.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._edge.wait_idle(), self._patience.grace_seconds)
        await _end(self.admission, self._admission_protocols)
        await self._plain.stop()

    async def _until_quiet(self, hurry: asyncio.Event) -> None:
        waits = [asyncio.create_task(self.admission.wait_idle()), asyncio.create_task(hurry.wait())]
        _, pending = await asyncio.wait(
            waits, timeout=self._patience.drain_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()

    # What the edge asks of its connections.

    def retires(self, transport: asyncio.BaseTransport | None) -> bool:
        is_young = self.admission.seen(transport)
        return self.draining or not is_young

    def check(self, tls: ssl.SSLObject) -> None:
        self._peers.check(tls)

    def earn(self, transport: asyncio.BaseTransport | None) -> None:
        self.admission.earn(transport)


async def _end(listener: Listener, protocols: HttpProtocols) -> None:
    await listener.close()
    await protocols.end(_LAST_WORDS_SECONDS)
    with suppress(TimeoutError):
        await asyncio.wait_for(listener.wait_idle(), _LAST_WORDS_SECONDS)
    listener.abort()
