"""Stricter limits around aiohttp's HTTP parser: total header size, a request target, no transfer coding but chunked.

aiohttp limits only the length and number of header lines, and keeps each line twice.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from aiohttp import HttpVersion11
from aiohttp.streams import EMPTY_PAYLOAD

_HEADER_BYTES_MAX = 64 * 1024
"""A token takes at most 8 KiB, and a forwarded certificate 12 KiB."""
_PIECE_BYTES = 16 * 1024
"""An event loop may deliver 256 KiB at once."""
_END = b"\r\n\r\n"
_LINE_BYTES = 4
"""Bytes of a header line beside its name and value."""
_REQUEST_LINE_BYTES = 14
"""Bytes of a request line beside its method and target, and of the empty line at the end."""

_Found = tuple[Sequence[tuple[Any, Any]], bool, bytes]
"""Result of aiohttp's parser: requests with their bodies, whether the protocol was upgraded, and the rest."""


class MalformedRequest(NamedTuple):
    """Takes the place of a request that is refused before any handler sees it, and ends its connection."""

    detail: str
    status: HTTPStatus = HTTPStatus.BAD_REQUEST


class BoundedHeaders:
    """Wraps a connection's parser. Data that yields neither a request nor part of a body is header or trailer data.

    If there is too much of it, a MalformedRequest is returned in place of a request, and nothing more is parsed. A
    header counts in full, whether it arrives at once, in pieces, or in the same piece as the end of another request.
    """

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._body: Any = EMPTY_PAYLOAD
        self._length: int | None = None
        """Content-Length of the request with that body."""
        self._header_bytes = 0
        self.message_consumed = parser.message_consumed
        self.pause_reading = parser.pause_reading
        self.set_upgraded = parser.set_upgraded

    def feed_data(self, data: bytes) -> _Found:
        if len(data) <= _PIECE_BYTES:
            return self._feed(data)
        requests: list[tuple[Any, Any]] = []
        for end in range(_PIECE_BYTES, len(data) + _PIECE_BYTES, _PIECE_BYTES):
            if self._header_bytes > _HEADER_BYTES_MAX:
                break
            more, is_upgraded, rest = self._feed(data[end - _PIECE_BYTES : end])
            requests += more
            if is_upgraded:
                return requests, True, rest + data[end:]
        return requests, False, b""

    def _feed(self, data: bytes) -> _Found:
        """Parse data; cut them where a header becomes too large, so that one that ends before is accepted."""
        room = _HEADER_BYTES_MAX - self._header_bytes
        if len(data) <= room:
            return self._feed_part(data)
        if room > 0:
            requests, is_upgraded, rest = self._feed_part(data[:room])
            if self._header_bytes < _HEADER_BYTES_MAX:
                if is_upgraded:
                    return requests, True, rest + data[room:]
                more, is_upgraded, rest = self._feed(data[room:])
                return (*requests, *more), is_upgraded, rest
        if room < 0:
            return (), False, b""
        self._header_bytes = _HEADER_BYTES_MAX + 1
        return ((MalformedRequest("HeaderTooLargeError"), EMPTY_PAYLOAD),), False, b""

    def _feed_part(self, data: bytes) -> _Found:
        arrived_bytes = self._body.total_bytes
        found: _Found = self._parser.feed_data(data)
        requests = found[0]
        if requests:
            for number, (request, _) in enumerate(requests):
                if (refusal := _find_refusal(request)) is not None:  # nothing after it is parsed
                    return (*requests[:number], refusal), False, b""
            request, self._body = requests[-1]
            self._length = _read_length(request)
            self._header_bytes = _count_begun_bytes(data, self._length or 0) if self._body.is_eof() else 0
        elif (part_bytes := self._body.total_bytes - arrived_bytes) > 0:
            if not self._body.is_eof():
                self._header_bytes = 0
            elif self._length is None:
                self._header_bytes = _count_begun_bytes(data, 0)
            else:
                self._header_bytes = len(data) - part_bytes
        else:
            self._header_bytes += len(data)
        return found


def _read_length(request: Any) -> int | None:
    length = request.headers.get("Content-Length")
    return None if length is None else int(length)


def _count_begun_bytes(data: bytes, length: int) -> int:
    """Return how much of the next header `data` ends with, after a message with a body of `length`; never too much."""
    end = data.rfind(_END)
    return 0 if end < 0 else max(0, len(data) - end - len(_END) - length)


def _count_header_bytes(request: Any) -> int:
    """Return the size of a header, without padding of its values."""
    lines = sum(len(name) + len(value) + _LINE_BYTES for name, value in request.raw_headers)
    return len(request.method) + len(request.path) + _REQUEST_LINE_BYTES + lines


def _find_refusal(request: Any) -> tuple[MalformedRequest, Any] | None:
    """Return the MalformedRequest that replaces a request; None if the request is accepted."""
    if request.url is None:  # a CONNECT request
        return MalformedRequest("NoTargetError"), EMPTY_PAYLOAD
    if _count_header_bytes(request) > _HEADER_BYTES_MAX:
        return MalformedRequest("HeaderTooLargeError"), EMPTY_PAYLOAD
    if "Transfer-Encoding" not in request.headers:
        return None
    codings = ",".join(request.headers.getall("Transfer-Encoding")).lower().split(",")
    *others, last = [coding.strip(" \t") for coding in codings]
    if (others, last) == ([], "chunked") and request.version >= HttpVersion11:
        return None  # with any other coding, aiohttp would pass the body on undecoded
    # RFC 9112, 6.1: without one final `chunked`, or in HTTP/1.0, the length of the body is undefined.
    is_framed = last == "chunked" and "chunked" not in others and request.version >= HttpVersion11
    status = HTTPStatus.NOT_IMPLEMENTED if is_framed else HTTPStatus.BAD_REQUEST
    return MalformedRequest("TransferCodingError", status), EMPTY_PAYLOAD
