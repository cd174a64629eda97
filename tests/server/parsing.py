"""Helpers of the `request_parser` tests that other tests use, too: parsers of connections, and what they found."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp.http import HttpProcessingError, HttpRequestParser

from webhook.server import request_parser
from webhook.server.header_limits import BoundedHeaders, MalformedRequest
from webhook.server.http_messages import BrokenBodyError, HttpRequest, RequestConnection, RequestHead
from webhook.server.request_parser import RequestParser

BUFFER_BYTES = 64
TOKEN = "Authorization: Bearer abc\r\n"


def post(body: bytes, *headers: str, path: str = "/mutate?timeout=10s", length: str | None = None) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length or len(body)}\r\n{TOKEN}{lines}\r\n"
    return head.encode() + body


class Protocol(RequestConnection):
    """A connection that never pauses: the buffer of its bodies is not limited."""

    def pause_reading(self) -> None: ...


def open_parser(loop: asyncio.AbstractEventLoop) -> RequestParser:
    """Return the parser of a new connection."""
    protocol = Protocol(loop)
    parser = HttpRequestParser(
        protocol,
        loop,
        BUFFER_BYTES,
        payload_exception=BrokenBodyError,
        auto_decompress=False,
        max_msg_queue_size=1000,
    )
    return RequestParser(protocol, BoundedHeaders(parser), BUFFER_BYTES)


Summary = tuple[object, ...]


def summary(request: HttpRequest | MalformedRequest) -> Summary:
    """Return what a handler sees of a request: with a broken body, that it is malformed."""
    if isinstance(request, MalformedRequest):
        return (request,)
    head, content = request.head, request.content
    try:
        data = b"".join(iter(content.read_nowait, b"")) if request.body is None else request.body
    except BrokenBodyError as error:
        return (MalformedRequest(type(error).__name__),)
    headers = sorted((name.lower(), value) for name, value in head.headers.items() if name != "Content-Length")
    length_bytes, traceparent = request.content_length, request.traceparent
    return head.method, head.path, headers, head.keep_alive, traceparent, length_bytes, data, content.is_eof()


def feed(parser: RequestParser, pieces: Sequence[bytes]) -> tuple[list[Summary], bool]:
    """Return the requests in `pieces`, and whether the rest of the connection is not HTTP."""
    found: list[Any] = []
    ends = False
    for piece in pieces:
        try:
            known = parser.recognize(piece)
            more, ends = parser.feed_data(piece) if known is None else ([known], False)
        except HttpProcessingError as error:
            more, ends = [MalformedRequest(type(error).__name__)], True
        found += more
        if ends:
            break
    return [summary(request) for request in found], ends


class Forgetting(dict[request_parser._Frame, RequestHead]):
    def __setitem__(self, key: request_parser._Frame, head: RequestHead) -> None: ...


def make_limited_parser(loop: asyncio.AbstractEventLoop) -> RequestParser:
    """Return a parser with the limits of a connection, whose bodies are not limited."""
    protocol = Protocol(loop)
    parser = HttpRequestParser(
        protocol, loop, 1 << 20, max_field_size=16 * 1024, max_headers=64, auto_decompress=False, max_msg_queue_size=32
    )
    return RequestParser(protocol, BoundedHeaders(parser), 1 << 20)
