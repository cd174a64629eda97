"""HTTP request and response of the server's handlers: only what they read and write."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import HttpVersion, HttpVersion11
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from msgspec import Struct
from multidict import CIMultiDictProxy

from webhook.authentication.certificates.peer_recheck import Peer

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BrokenBodyError(Exception):
    """A body that is not framed as its header says."""


class HttpRequest:
    """One request whose header is complete; its body may still be arriving as `content`."""

    __slots__ = ("_message", "client_id", "content", "headers", "method", "peer", "transport", "version")

    def __init__(
        self, message: RawRequestMessage, content: StreamReader, transport: asyncio.Transport, peer: Peer | None = None
    ) -> None:
        self._message = message
        self.method: str = message.method
        self.headers: CIMultiDictProxy[str] = message.headers
        self.version: HttpVersion = message.version
        self.content = content
        self.transport = transport
        self.peer = peer
        """The client of the connection; None over plain HTTP."""
        self.client_id: str | None = None
        """The caller, once it is authenticated."""

    @property
    def path(self) -> str:
        """The decoded path, without the query."""
        return self._message.url.path

    @property
    def keep_alive(self) -> bool:
        """Whether the client may send another request on this connection."""
        return not self._message.should_close and self.version >= HttpVersion11

    @property
    def content_length(self) -> int | None:
        """Size of the body in bytes; None if it is chunked."""
        length = self.headers.get("Content-Length")
        return None if length is None else int(length)

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
