"""Listener of a console: aiohttp's, whose answers to malformed requests have the headers of all others."""

import asyncio
import logging
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web

from webhook.console.access import SECURITY_HEADERS

CONNECTIONS_MAX = 256
_IDLE_SECONDS = 75.0
_STOP_SECONDS = 1.0
_LOGGER = logging.getLogger("podgate.console.requests")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False  # an address or a header that it quotes may have a token


class _RequestHandler(web.RequestHandler):
    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        others = self._manager.connections if self._manager is not None else ()
        if len(others) > CONNECTIONS_MAX:
            cast("asyncio.Transport", transport).abort()  # uvloop's transports are of no common class

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  the signature of aiohttp
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,  # noqa: ARG002  as above
        message: str | None = None,  # noqa: ARG002  it quotes the request
    ) -> web.Response:
        """Return an answer that says nothing of the request."""
        answer = web.Response(status=status, text=HTTPStatus(status).phrase, headers=SECURITY_HEADERS)
        answer.force_close()
        return answer


class ConsoleListener:
    """Serves an application at one address."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(application, access_log=None, logger=_LOGGER, shutdown_timeout=_STOP_SECONDS)
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen, and return the addresses. OSError: the port is taken."""
        await self._runner.setup()
        manager, loop = self._runner.server, asyncio.get_running_loop()
        if manager is None:
            raise LookupError("a runner that is set up must have a server")

        def build_handler() -> _RequestHandler:
            options: dict[str, Any] = {"access_log": None, "logger": _LOGGER, "keepalive_timeout": _IDLE_SECONDS}
            return _RequestHandler(manager, loop=loop, **options)

        self._listening = await loop.create_server(build_handler, host, port)
        return [socket.getsockname()[:2] for socket in self._listening.sockets]

    async def stop(self) -> None:
        """Close the port, then all connections."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()
