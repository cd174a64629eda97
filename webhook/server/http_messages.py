"""HTTP request and response of the server's handlers: only what they read and write."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from aiohttp import HttpVersion, HttpVersion11
from aiohttp.http import RawRequestMessage
from msgspec import Struct
from multidict import CIMultiDict, CIMultiDictProxy

from webhook.authentication.certificates.peer_recheck import Peer

Headers = CIMultiDictProxy[str]
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
_TRACEPARENT = "traceparent"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BrokenBodyError(Exception):
    """A body that is not framed as its header says."""


class Body(Protocol):
    """The body of a request: aiohttp's StreamReader, or an ArrivedBody."""

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


class ArrivedBody:
    """A body that arrived together with its header, for one reading."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def is_eof(self) -> bool:
        return True

    def read_nowait(self) -> bytes:
        return self._data

    async def readany(self) -> bytes:
        return b""

    def set_exception(self, exc: Exception) -> None: ...


class RequestHead(Struct, frozen=True):
    """The header of a request."""

    method: str
    path: str
    """Decoded, without the query."""
    query: str
    """As it was sent."""
    headers: Headers
    """Those but for traceparent."""
    version: HttpVersion
    keep_alive: bool
    """Whether the client may send another request on this connection."""
    traceparent: str | None = None

    @classmethod
    def of(cls, message: RawRequestMessage) -> "RequestHead":
        keep_alive = not message.should_close and message.version >= HttpVersion11
        url, headers = message.url, message.headers
        traceparent = headers.get(_TRACEPARENT)
        if traceparent is not None:
            others = CIMultiDict(headers)
            others.popall(_TRACEPARENT)
            headers = CIMultiDictProxy(others)
        return cls(message.method, url.path, url.raw_query_string, headers, message.version, keep_alive, traceparent)

    def with_traceparent(self, traceparent: str) -> "RequestHead":
        """Return the same header with another traceparent."""
        return RequestHead(self.method, self.path, self.query, self.headers, self.version, self.keep_alive, traceparent)

    @property
    def is_repeatable(self) -> bool:
        """Whether a later request may have the same header but for its Content-Length and traceparent."""
        return "Transfer-Encoding" not in self.headers


class HttpRequest:
    """One request whose header is complete; its body may still be arriving as `content`."""

    __slots__ = (
        "client_id",
        "content",
        "content_length",
        "headers",
        "method",
        "path",
        "peer",
        "query",
        "traceparent",
        "transport",
        "version",
    )

    def __init__(
        self,
        head: RequestHead,
        content_length: int | None,
        content: Body,
        transport: asyncio.Transport,
        peer: Peer | None = None,
    ) -> None:
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.headers = head.headers
        self.traceparent = head.traceparent
        self.version = head.version
        self.content_length = content_length
        """Size of the body in bytes; None if it is chunked."""
        self.content = content
        self.transport = transport
        self.peer = peer
        """The client of the connection; None over plain HTTP."""
        self.client_id: str | None = None
        """The caller, once it is authenticated."""

    def send_continue(self) -> None:
        """Ask a client that waits for it to send its body."""
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


def closing_response(status: HTTPStatus, text: str = "", *, allow: str = "") -> HttpResponse:
    """Return an error response that closes its connection: an unread body must not be parsed as the next request."""
    return HttpResponse(status, f"{text or status.phrase.lower()}\n".encode(), closes=True, allow=allow)


def encode(response: HttpResponse, *, closes: bool, with_body: bool = True, version: str = "HTTP/1.1") -> bytes:
    """Return header and body in one piece. `with_body` is false for the answer to a HEAD request."""
    head = _head(version, response.status, response.content_type, int(time.time()))
    allow = f"\r\nAllow: {response.allow}" if response.allow else ""
    end = "\r\nConnection: close\r\n\r\n" if closes else "\r\n\r\n"
    encoded = f"{head}{len(response.body)}{allow}{end}".encode("latin-1")
    return encoded + response.body if with_body else encoded


@lru_cache(maxsize=16)
def _head(version: str, status: int, content_type: str, second: int) -> str:
    """Return a header up to the value of Content-Length; it is the same for one second."""
    date, phrase = formatdate(second, usegmt=True), HTTPStatus(status).phrase
    return f"{version} {status} {phrase}\r\nContent-Type: {content_type}\r\nDate: {date}\r\nContent-Length: "
