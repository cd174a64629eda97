"""Request parser of one connection: aiohttp's parser, and a cache of the request headers that it has parsed.

The requests of an API server have the same header, but for the length of the body and the traceparent, which a tenant
can add. Parsing the same bytes again would give the same result, so that only these are read. Why:
docs/design/header-cache.md.
"""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from aiohttp.streams import StreamReader

from webhook.errors import UserError
from webhook.server.header_limits import BoundedHeaders, MalformedRequest
from webhook.server.http_messages import NO_CONTENT, Body, Headers, HttpRequest, RequestConnection, RequestHead

_LENGTH = b"\r\nContent-Length: "
_LENGTH_DIGITS_MAX = 7
_match_length = re.compile(rb"[0-9]{1,%d}" % _LENGTH_DIGITS_MAX).match
_TRACEPARENT = re.compile(rb"\r\ntraceparent: ", re.IGNORECASE)
_find_traceparents = re.compile(rb"\ntraceparent[ \t]*:", re.IGNORECASE).findall
_match_traceparent = re.compile(rb"[0-9A-Za-z-]{55}(?=\r\n)").match
"""A value as long as one of version 00, of characters that every parser takes as they are. It is not validated here."""
_END = b"\r\n\r\n"
_KNOWN_MAX = 4
"""Headers remembered per connection: an API server calls a few paths with one token."""
_HEADER_BYTES_MAX = 8 * 1024
"""Longer headers are not remembered."""

Parsed = HttpRequest | MalformedRequest
Found = tuple[Sequence[Parsed], bool]
"""Requests whose header is complete, and whether the protocol was upgraded."""
_NOTHING: Found = (), False


class _Frame(NamedTuple):
    """A header: what is before, between and after its values of Content-Length and traceparent."""

    before: bytes
    between: bytes
    after: bytes
    """Empty without a traceparent."""


_Framed = tuple[_Frame, int, int]
"""A header, the value of Content-Length, and where the body begins."""


class RequestParser:
    """Takes the place of the parser in aiohttp's BaseProtocol.

    It follows where each request ends, so that it knows when data begins with a header. After anything that it cannot
    follow, such as pipelined requests or a chunked body, the connection is left to the parser for good.
    """

    def __init__(self, connection: RequestConnection, parser: BoundedHeaders, buffer_bytes: int) -> None:
        self._connection = connection
        self._parser = parser
        self._buffer_bytes = buffer_bytes
        self._known: dict[_Frame, RequestHead] = {}
        self._body: StreamReader | None = None
        """The body of a request with a known header, while it is arriving."""
        self._rest_bytes = 0
        """Bytes of the current body still to come; negative once data can no longer be followed."""
        self._begun = b""
        """An incomplete header, which the parser has too."""
        self.message_consumed = parser.message_consumed
        self.set_upgraded = parser.set_upgraded

    def feed_data(self, data: bytes) -> Found:
        """Return the requests whose header `data` completes; HttpProcessingError for malformed ones."""
        if not data:  # reading is resumed
            return self._parse(data)
        if self._body is not None:
            return self._feed_body(self._body, data)
        if self._rest_bytes != 0:
            self._rest_bytes -= len(data)
            return self._parse(data)
        begun, self._begun = self._begun, b""
        found = self._parse(data)
        self._follow(begun + data, found)
        return found

    def pause_reading(self) -> None:
        if self._body is None:  # its own data is only appended to a buffer
            self._parser.pause_reading()

    def recognize(self, data: bytes) -> HttpRequest | None:
        """Return the request if `data` is one, or its begin, with a known header.

        Headers are compared, because framing and hashing one costs more.
        """
        if self._rest_bytes or self._begun:
            return None
        for (before, between, after), head in self._known.items():
            length = _match_length(data, len(before)) if data.startswith(before) else None
            if length is None or not data.startswith(between, length.end()):
                continue
            body_at, traceparent = length.end() + len(between), None
            if after:
                value = _match_traceparent(data, body_at)
                if value is None or not data.startswith(after, value.end()):
                    continue
                body_at, traceparent = value.end() + len(after), value[0].decode()
            length_bytes, body = int(length[0]), data[body_at:]
            if len(body) == length_bytes <= self._buffer_bytes:
                return HttpRequest(self._connection, head, traceparent, length_bytes, body, NO_CONTENT)
            if len(body) > length_bytes:
                return None
            arriving = self._begin_body(length_bytes, body)
            return HttpRequest(self._connection, head, traceparent, length_bytes, None, arriving)
        return None

    def _begin_body(self, length_bytes: int, begin: bytes) -> StreamReader:
        """Return a body that is fed here, without the parser."""
        connection = self._connection
        body = StreamReader(connection, self._buffer_bytes, loop=connection._loop)  # noqa: SLF001  its only user
        self._body, self._rest_bytes = body, length_bytes
        self._feed_body(body, begin)
        return body

    def _feed_body(self, body: StreamReader, data: bytes) -> Found:
        part, more = data[: self._rest_bytes], data[self._rest_bytes :]
        if part:
            body.feed_data(part)
            self._rest_bytes -= len(part)
        if self._rest_bytes == 0:
            self._body = None
            body.feed_eof()
        return self.feed_data(more) if more else _NOTHING

    def _parse(self, data: bytes) -> Found:
        requests, is_upgraded, _ = self._parser.feed_data(data)
        return [self._build_request(message, body) for message, body in requests], is_upgraded

    def _build_request(self, message: Any, body: Body) -> Parsed:
        if isinstance(message, MalformedRequest):
            return message
        head, traceparent = RequestHead.from_message(message)
        return HttpRequest(self._connection, head, traceparent, _read_content_length(message.headers), None, body)

    def _follow(self, data: bytes, found: Found) -> None:
        """Note where the request at the beginning of `data` ends, and remember its header."""
        requests, is_upgraded = found
        framed = _find_frame(data)
        if framed is None and not requests and _END not in data and len(data) <= _HEADER_BYTES_MAX:
            self._begun = data
            return
        self._rest_bytes = -1
        if framed is None or len(requests) != 1 or is_upgraded:
            return
        frame, length_bytes, body_at = framed
        (request,) = requests
        if isinstance(request, MalformedRequest):
            return
        head = request.head
        if not head.keep_alive or request.content_length != length_bytes:
            return
        self._rest_bytes = body_at + length_bytes - len(data)
        # The parser takes the first of several, wherever it is.
        is_framed = request.traceparent is None or (frame.after and len(_find_traceparents(data, 0, body_at)) == 1)
        is_repeatable = head.is_repeatable and is_framed
        if is_repeatable and sum(map(len, frame)) <= _HEADER_BYTES_MAX:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[frame] = head


def _find_frame(data: bytes) -> _Framed | None:
    """Return the header at the beginning of `data` if it is complete and has a plain Content-Length."""
    end = data.find(_END)
    if end < 0:
        return None
    start = data.find(_LENGTH, 0, end)
    if start < 0:
        return None
    start += len(_LENGTH)
    length = _match_length(data, start)
    if length is None or not data.startswith(b"\r\n", length.end()):
        return None
    body_at = end + len(_END)
    between, after = data[length.end() : body_at], b""
    found = _TRACEPARENT.search(between)
    value = None if found is None else _match_traceparent(between, found.end())
    if value is not None:
        between, after = between[: value.start()], between[value.end() :]
    return _Frame(data[:start], between, after), int(length[0]), body_at


def _read_content_length(headers: Headers) -> int | None:
    length = headers.get("Content-Length")
    return None if length is None else int(length)


def require_compiled_parser() -> None:
    """Reject aiohttp's pure Python parser: it is much slower, and accepts malformed HTTP."""
    if find_spec("aiohttp._http_parser") is None:
        raise UserError("aiohttp has no compiled HTTP parser here", "install aiohttp from a wheel")
