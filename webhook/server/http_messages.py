"""HTTP request and response of the server's handlers: only what they read and write."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import HttpVersion, HttpVersion11
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD
from msgspec import Struct
from multidict import CIMultiDict, CIMultiDictProxy

from webhook.authentication.peer_recheck import Peer
from webhook.core.plain_text import escape_json

Headers = CIMultiDictProxy[str]
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
_TRACEPARENT = "traceparent"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_KEEP, _CLOSE = b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"
NO_CONTENT = EMPTY_PAYLOAD


class BrokenBodyError(Exception):
    """A body that is not framed as its header says."""


class Body(Protocol):
    """The body of a request: aiohttp's StreamReader, or NO_CONTENT."""

    def is_eof(self) -> bool:
        """Whether the whole body has arrived."""
        ...

    def read_nowait(self) -> bytes:
        """Return what has arrived and was not read."""
        ...

    async def readany(self) -> bytes:
        """Wait for more, and return it; empty at the end. BrokenBodyError, ConnectionError: there will be no more."""
        ...

    def set_exception(self, exc: Exception) -> None:
        """Let readers of an incomplete body fail."""
        ...


class RequestHead(Struct, gc=False):
    """The header of a request. A connection keeps it for later requests with the same header."""

    method: str
    path: str
    """Decoded, without the query."""
    query: str
    """As it was sent."""
    headers: Headers
    """All headers but traceparent."""
    version: HttpVersion
    keep_alive: bool
    """Whether the client may send another request on this connection."""
    known: Any = None
    """The handler's result for this header: most requests of a connection have the same header."""

    @classmethod
    def from_message(cls, message: RawRequestMessage) -> tuple["RequestHead", str | None]:
        """Return the header of a parsed message, and its traceparent, which differs from request to request."""
        keep_alive = not message.should_close and message.version >= HttpVersion11
        url, headers = message.url, message.headers
        traceparent = headers.get(_TRACEPARENT)
        if traceparent is not None:
            others = CIMultiDict(headers)
            others.popall(_TRACEPARENT)
            headers = CIMultiDictProxy(others)
        head = cls(message.method, url.path, url.raw_query_string, headers, message.version, keep_alive)
        return head, traceparent

    @property
    def is_repeatable(self) -> bool:
        """Whether a later request may have the same header but for its Content-Length and traceparent."""
        return "Transfer-Encoding" not in self.headers


class RequestConnection(BaseProtocol):
    """The connection of a request, with aiohttp's flow control."""

    __slots__ = ("peer",)

    def __init__(self, loop: asyncio.AbstractEventLoop, parser: Any = None) -> None:
        super().__init__(loop, parser)
        self.peer: Peer | None = None
        """The client; None over plain HTTP."""


class HttpRequest(Struct):
    """One request whose header is complete.

    The garbage collector must see it: its connection holds those that wait, and errors of a body hold their frames.
    """

    connection: RequestConnection
    head: RequestHead
    traceparent: str | None
    content_length: int | None
    """Size of the body in bytes; None if it is chunked."""
    body: bytes | None
    """The whole body, if it arrived together with the header."""
    content: Body
    """The body otherwise, which may still be arriving."""
    client_id: str | None = None
    """The caller, once it is authenticated."""

    @property
    def method(self) -> str:
        return self.head.method

    @property
    def path(self) -> str:
        return self.head.path

    @property
    def query(self) -> str:
        return self.head.query

    @property
    def headers(self) -> Headers:
        return self.head.headers

    @property
    def transport(self) -> asyncio.Transport | None:
        """None once the connection is lost."""
        return self.connection.transport

    @property
    def peer(self) -> Peer | None:
        """The client of the connection; None over plain HTTP."""
        return self.connection.peer

    def send_continue(self) -> None:
        """Ask a client that waits for it to send its body."""
        if self.transport is not None:
            self.transport.write(_CONTINUE)


class HttpResponse(Struct, frozen=True, gc=False):
    """A whole response. `closes`: the connection is closed after it."""

    status: int
    body: bytes
    content_type: str = TEXT
    closes: bool = False
    allow: str = ""
    """Value of the Allow header of a 405."""


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


def build_json_response(body: bytes) -> HttpResponse:
    """Return a document, encoded as JSON, as the response: people read it with curl, and tenants write names in it."""
    return HttpResponse(HTTPStatus.OK, escape_json(body.decode()).encode(), JSON)


def build_closing_response(status: HTTPStatus, text: str = "", *, allow: str = "") -> HttpResponse:
    """Return an error response that closes its connection: an unread body must not be parsed as the next request."""
    return HttpResponse(status, f"{text or status.phrase.lower()}\n".encode(), closes=True, allow=allow)


def encode_response(response: HttpResponse, version: str = "HTTP/1.1") -> bytes:
    """Return header and body in one piece."""
    head, body = (
        _format_head(version, response.status, response.content_type, response.allow, int(time.time())),
        response.body,
    )
    return b"%b%d%b%b" % (head, len(body), _CLOSE if response.closes else _KEEP, body)


@lru_cache(maxsize=16)
def _format_head(version: str, status: int, content_type: str, allow: str, second: int) -> bytes:
    """Return a header up to the value of Content-Length; it is the same for one second."""
    phrase, allowed = HTTPStatus(status).phrase, f"Allow: {allow}\r\n" if allow else ""
    head = f"{version} {status} {phrase}\r\nContent-Type: {content_type}\r\nDate: {formatdate(second, usegmt=True)}\r\n"
    return f"{head}{allowed}Content-Length: ".encode("latin-1")
