"""The two listeners and their life: start when all is loaded, drain before going, lose no call."""

import asyncio
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from webhook.edge import AdmissionEdge
from webhook.listener import Limits, Listener
from webhook.ports import Observer
from webhook.settings import Address
from webhook.tls import TlsFiles

# A token is at most 8 KiB, and the line that carries it has a name too.
_HEADER_LINE_MAX_BYTES = 16 * 1024
_PLAIN_LIMITS = Limits(connections_max=64)
_PLAIN_GRACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may last."""

    keep_alive_seconds: float
    drain_seconds: float
    grace_seconds: float


class Server:
    """Admission over mutual TLS on one port; health, metrics and status on another, plain."""

    def __init__(
        self,
        edge: AdmissionEdge,
        plain: web.Application,
        tls: TlsFiles,
        observer: Observer,
        limits: Limits,
        patience: Patience,
    ) -> None:
        self.draining = False
        self._edge = edge
        self._patience = patience
        self._hurry = asyncio.Event()
        self._admission_runner = web.AppRunner(
            edge.application(self._retires),
            access_log=None,
            keepalive_timeout=patience.keep_alive_seconds,
            shutdown_timeout=patience.grace_seconds,
            max_field_size=_HEADER_LINE_MAX_BYTES,
            auto_decompress=False,
            lingering_time=1.0,
        )
        plain.middlewares.append(self._seen_on_plain)
        self._plain_runner = web.AppRunner(plain, access_log=None, shutdown_timeout=_PLAIN_GRACE_SECONDS)
        self.admission = Listener(
            self._protocol_of(self._admission_runner),
            context=lambda: tls.context,
            limits=limits,
            on_refused=observer.refused,
        )
        self.plain = Listener(
            self._protocol_of(self._plain_runner), context=None, limits=_PLAIN_LIMITS, on_refused=observer.refused
        )

    async def start(self, admission: Address, plain: Address) -> None:
        """Listen. UserError where an address cannot be had."""
        await self._admission_runner.setup()
        await self._plain_runner.setup()
        await self.plain.start(plain.host, plain.port)
        await self.admission.start(admission.host, admission.port)

    async def stop(self) -> None:
        """Go without losing a call.

        Not ready, but still accepting: callers hear `Connection: close` and go elsewhere. When the last has gone, or
        patience has, nothing new is accepted and what runs is finished.
        """
        self.draining = True
        await self._until_quiet(self._patience.drain_seconds)
        await self.admission.close()
        await self._admission_runner.cleanup()
        self.admission.abort()
        await self.plain.close()
        await self._plain_runner.cleanup()
        self.plain.abort()

    def hurry(self) -> None:
        """End the drain now: someone asked a second time."""
        self._hurry.set()

    async def _until_quiet(self, seconds: float) -> None:
        waits = [asyncio.create_task(self.admission.wait_idle()), asyncio.create_task(self._hurry.wait())]
        _, pending = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()

    def _retires(self, transport: asyncio.BaseTransport | None) -> bool:
        is_young = self.admission.seen(transport)
        return self.draining or not is_young

    @web.middleware
    async def _seen_on_plain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.plain.seen(request.transport)
        return await handler(request)

    @staticmethod
    def _protocol_of(runner: web.AppRunner) -> "_Protocols":
        return _Protocols(runner)


class _Protocols:
    """Makes a protocol for each connection; the runner has its server only once it is set up."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    def __call__(self) -> asyncio.Protocol:
        if self._runner.server is None:
            raise RuntimeError("the runner is not set up")
        return self._runner.server()
