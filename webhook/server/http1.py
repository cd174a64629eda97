"""HTTP/1.1 for both ports: aiohttp's protocol, with errors and logs that reveal neither the software nor requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from webhook.server.header_limits import BoundedHeaders

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
OnRefused = Callable[[str, str], None]

# A token is at most 8 KiB; its header line has a name as well.
_HEADER_LINE_MAX_BYTES = 16 * 1024
_HEADERS_MAX = 64
_OF_BAD_REQUESTS = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED)
_LINGERING_SECONDS = 1.0
"""Time to read and discard the rest of a body, so that its sender receives the response."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one HTTP connection."""

    keep_alive_seconds: float
    body_max_bytes: int


class HttpProtocols:
    """Factory of a Listener's protocols. `on_refused` is called for malformed HTTP and for internal errors."""

    def __init__(self, handler: Handler, bounds: HttpLimits, on_refused: OnRefused) -> None:
        self._loop = asyncio.get_running_loop()
        self._bounds = bounds
        self._on_refused = on_refused
        self._connections = web.Server(handler, request_factory=self._request)

    def __call__(self) -> asyncio.Protocol:
        return _Discreet(
            self._connections,
            self._on_refused,
            loop=self._loop,
            keepalive_timeout=self._bounds.keep_alive_seconds,
            access_log=None,
            max_field_size=_HEADER_LINE_MAX_BYTES,
            max_headers=_HEADERS_MAX,
            lingering_time=_LINGERING_SECONDS,
            auto_decompress=False,
        )

    async def end(self, seconds: float) -> None:
        """End every connection: idle ones at once, the others after their response, or after `seconds`."""
        await self._connections.shutdown(seconds)

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        size = self._bounds.body_max_bytes
        return _Request(message, payload, protocol, writer, task, self._loop, client_max_size=size)


class _Request(web.BaseRequest):
    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.pop("Server", None)


class _Discreet(web.RequestHandler):
    """Hides errors: aiohttp would quote a malformed request in its response, and log it with address and stack."""

    __slots__ = ("_on_refused",)

    def __init__(self, connections: web.Server, on_refused: OnRefused, **options: Any) -> None:
        super().__init__(connections, **options)
        self._parser = BoundedHeaders(self._parser)  # type: ignore[assignment]  # it has the methods that are used
        self._on_refused = on_refused

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  it quotes the request
    ) -> web.StreamResponse:
        is_theirs = status in _OF_BAD_REQUESTS
        self._on_refused("bad_request" if is_theirs else "internal_error", type(exc).__name__)
        if exc is not None:
            exc.__traceback__ = None  # it refers to aiohttp's frames, and they to the request: it would stay in memory
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun: there is no place for another")
        return closing_response(HTTPStatus(status))

    def log_exception(self, *_: Any, exc_info: BaseException | None = None, **__: Any) -> None:
        self._on_refused("internal_error", f"{type(exc_info).__name__} in a connection")


class JsonResponse(web.StreamResponse):
    """A 200 with a JSON body, rendered and written in one piece: aiohttp's general Response takes 10 us."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._json = body
        self._is_last = False

    @property
    def keep_alive(self) -> bool:
        return not self._is_last

    def force_close(self) -> None:
        self._is_last = True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        self._is_last = self._is_last or not request.keep_alive or request.version < HttpVersion11
        ending = "\r\nConnection: close\r\n\r\n" if self._is_last else "\r\n\r\n"
        head = f"{_ok_since(int(time.time()))}{len(self._json)}{ending}"
        await request.writer.write_eof(head.encode() + self._json)
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `prepare` has written the whole response."""


@lru_cache(maxsize=1)
def _ok_since(second: int) -> str:
    """Return the header of a response up to the value of Content-Length; it is the same for one second."""
    date = formatdate(second, usegmt=True)
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: {date}\r\nContent-Length: "


def closing_response(status: HTTPStatus, text: str = "") -> web.Response:
    """Return an error response that closes its connection: an unread body must not be parsed as the next request."""
    response = web.Response(status=status, text=f"{text or status.phrase.lower()}\n")
    close_after(response)
    return response


def close_after(response: web.StreamResponse) -> None:
    """Close the connection after this response, and announce that with `Connection: close`."""
    response.headers["Connection"] = "close"  # aiohttp's Response does not set it
    response.force_close()
