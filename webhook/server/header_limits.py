"""Stricter limits around aiohttp's HTTP parser: total header size, a request target, no transfer coding but chunked.

aiohttp limits only the length and number of header lines, and keeps each line twice.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import HttpVersion11
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import _ErrInfo

_HEADER_MAX_BYTES = 64 * 1024
"""A token takes at most 8 KiB, and a forwarded certificate 12 KiB."""
_PIECE_BYTES = 16 * 1024
"""An event loop may deliver 256 KiB at once; header bytes in the same piece as the end of a body are not counted."""

_Found = tuple[Sequence[tuple[Any, Any]], bool, bytes]
"""Result of aiohttp's parser: requests with their bodies, whether the protocol was upgraded, and the rest."""


class HeaderTooLargeError(BadHttpMessage):
    """A header is larger than the limit."""


class NoTargetError(BadHttpMessage):
    """A CONNECT request has no target: aiohttp would fail on it, with a stack trace in the log."""


class TransferCodingError(BadHttpMessage):
    """A body has another transfer coding than plain `chunked`: aiohttp would pass it on undecoded."""


class BoundedHeaders:
    """Wraps a connection's parser. Data that yields neither a request nor part of a body is header or trailer data.

    If there is too much of it, an error is returned in place of a request, aiohttp answers with 400, and nothing more
    is parsed. The error is not raised: aiohttp's stack frames would keep the request in memory.
    """

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._body: Any = EMPTY_PAYLOAD
        self._header_bytes = 0
        self.message_consumed = parser.message_consumed
        self.pause_reading = parser.pause_reading
        self.set_upgraded = parser.set_upgraded

    def feed_data(self, data: bytes) -> _Found:
        if len(data) <= _PIECE_BYTES:
            return self._feed(data)
        requests: list[tuple[Any, Any]] = []
        for end in range(_PIECE_BYTES, len(data) + _PIECE_BYTES, _PIECE_BYTES):
            if self._header_bytes > _HEADER_MAX_BYTES:
                break
            more, is_upgraded, rest = self._feed(data[end - _PIECE_BYTES : end])
            requests += more
            if is_upgraded:
                return requests, True, rest + data[end:]
        return requests, False, b""

    def _feed(self, data: bytes) -> _Found:
        if self._header_bytes > _HEADER_MAX_BYTES:
            return (), False, b""
        arrived_bytes = self._body.total_bytes
        found: _Found = self._parser.feed_data(data)
        requests = found[0]
        if requests:
            for number, (request, _) in enumerate(requests):
                if (refused := _refused(request)) is not None:  # nothing after it is parsed
                    return (*requests[:number], refused), False, b""
            self._body = requests[-1][1]
        if requests or self._body.total_bytes > arrived_bytes:
            self._header_bytes = 0
            return found
        self._header_bytes += len(data)
        if self._header_bytes <= _HEADER_MAX_BYTES:
            return found
        return (_instead(HeaderTooLargeError("")),), False, b""


def _refused(request: Any) -> tuple[Any, Any] | None:
    """Return an error in place of a request that is not accepted; None for any other."""
    if request.url is None:
        return _instead(NoTargetError(""))
    if "Transfer-Encoding" not in request.headers:
        return None
    codings = ",".join(request.headers.getall("Transfer-Encoding")).lower().split(",")
    *others, last = [coding.strip(" \t") for coding in codings]
    if (others, last) == ([], "chunked") and request.version >= HttpVersion11:
        return None
    # RFC 9112, 6.1: without one final `chunked`, or in HTTP/1.0, the length of the body is undefined.
    is_framed = last == "chunked" and "chunked" not in others and request.version >= HttpVersion11
    status = HTTPStatus.NOT_IMPLEMENTED if is_framed else HTTPStatus.BAD_REQUEST
    return _instead(TransferCodingError(""), status)


def _instead(error: BadHttpMessage, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> tuple[Any, Any]:
    """Return a parser result that makes aiohttp respond with an error."""
    return _ErrInfo(status, error, ""), EMPTY_PAYLOAD
