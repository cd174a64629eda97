"""What aiohttp's parser lets through and we do not: too large a header, no target, a body in a coding but chunked.

aiohttp bounds a line of a header and their number, and keeps each line twice.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import HttpVersion11
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import _ErrInfo

_HEADER_MAX_BYTES = 64 * 1024
"""A token is at most 8 KiB, and what a proxy forwards of a certificate 12 KiB."""
_PIECE_BYTES = 16 * 1024
"""A loop may hand over 256 KiB at once: of what is in one piece with the end of a body we do not know how much."""

_Found = tuple[Sequence[tuple[Any, Any]], bool, bytes]
"""As aiohttp's parsers return it: requests with their bodies, whether the protocol is another one now, what is left."""


class HeaderTooLargeError(BadHttpMessage):
    """A header is larger than the bound of one."""


class NoTargetError(BadHttpMessage):
    """A CONNECT says nowhere to: aiohttp would trip over it, with a stack in the log."""


class TransferCodingError(BadHttpMessage):
    """A body is sent in another transfer coding than plain `chunked`: aiohttp would hand it over as it came."""


class BoundedHeaders:
    """Stands before a connection's parser. What brings no request, nor any of a body, is of a header or a trailer.

    Where that adds up to too much, an error comes in place of a request, for aiohttp to answer with a 400, and nothing
    more is parsed. It is never raised: aiohttp's frames would hold what was sent until they are swept.
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
                if (refused := _refused(request)) is not None:  # whatever follows it is no request
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
    """Return what stands for a request that is none for us; None for any other."""
    if request.url is None:
        return _instead(NoTargetError(""))
    if "Transfer-Encoding" not in request.headers:
        return None
    codings = ",".join(request.headers.getall("Transfer-Encoding")).lower().split(",")
    *others, last = [coding.strip(" \t") for coding in codings]
    if (others, last) == ([], "chunked") and request.version >= HttpVersion11:
        return None
    # RFC 9112, 6.1: the length of what does not end in one `chunked`, or is HTTP/1.0, nobody can tell.
    is_framed = last == "chunked" and "chunked" not in others and request.version >= HttpVersion11
    status = HTTPStatus.NOT_IMPLEMENTED if is_framed else HTTPStatus.BAD_REQUEST
    return _instead(TransferCodingError(""), status)


def _instead(error: BadHttpMessage, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> tuple[Any, Any]:
    """Return what aiohttp answers with an error."""
    return _ErrInfo(status, error, ""), EMPTY_PAYLOAD
