"""Remembered request headers change nothing: the requests are those that aiohttp's parser returns for the bytes."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from aiohttp.http import HttpProcessingError, HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import examples
from webhook.server import request_parser
from webhook.server.header_limits import BoundedHeaders, MalformedRequest
from webhook.server.http_messages import HttpRequest, RequestConnection, RequestHead
from webhook.server.request_parser import RequestParser

BUFFER_BYTES = 64
TOKEN = "Authorization: Bearer abc\r\n"
LAST = "Accept-Encoding: gzip"


def post(body: bytes, *headers: str, path: str = "/mutate?timeout=10s", length: str | None = None) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length or len(body)}\r\n{TOKEN}{lines}\r\n"
    return head.encode() + body


SIZES = st.integers(min_value=0, max_value=300)
PARENTS = st.builds(
    "{}: 00-{:032x}-{:016x}-0{}".format,
    st.sampled_from(["traceparent", "Traceparent"]),
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**64 - 1),
    st.sampled_from("01"),
)
USUAL = st.builds(
    lambda size, path, parents: post(b"a" * size, *parents, LAST, path=path),
    SIZES,
    st.sampled_from(["/mutate?timeout=10s", "/validate"]),
    st.lists(PARENTS, max_size=1),
)
UNUSUAL = st.one_of(
    st.binary(max_size=20).map(post),
    st.binary(max_size=20).map(lambda body: post(body, length=f"00{len(body)}")),
    st.binary(max_size=20).map(lambda body: post(body, "Connection: close")),
    st.binary(max_size=20).map(lambda body: post(body, f"content-length: {len(body)}")),
    st.binary(max_size=20).map(lambda body: post(body, length=f"{len(body)}, {len(body)}")),
    st.binary(max_size=20).map(lambda body: post(body, length=f"+{len(body)}")),
    st.binary(max_size=20).map(lambda body: post(body, "Transfer-Encoding: chunked")),
    st.binary(max_size=20).map(lambda body: post(body, "Expect: 100-continue")),
    st.binary(max_size=20).map(lambda body: post(body, "Connection: upgrade", "Upgrade: websocket")),
    st.binary(max_size=20).map(lambda body: post(body, "X-Other: \r\n Content-Length: 3")),
    st.lists(PARENTS, min_size=2, max_size=2).map(lambda parents: post(b"a", *parents, LAST)),
    PARENTS.map(lambda parent: post(b"a", f"{parent}\r\n folded", LAST)),
    PARENTS.map(lambda parent: post(b"a", f"{parent}0", LAST)),
    PARENTS.map(lambda parent: post(b"a", parent.replace(" ", ""), LAST)),
    PARENTS.map(lambda parent: post(b"a", f"{parent[:40]}\r\na:{parent[44:]}", LAST)),
    PARENTS.map(lambda parent: post(b"a", f"{parent[:40]}\0{parent[41:]}", LAST)),
    PARENTS.map(lambda parent: f"POST /a HTTP/1.1\r\n{parent}\r\nContent-Length: 0\r\n\r\n".encode()),
    st.just(b"POST /a HTTP/1.0\r\nContent-Length: 2\r\n\r\nab"),
    st.just(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    st.just(b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    st.just(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\r\n\r\n"),
    st.binary(min_size=1, max_size=20),
)


class Protocol(RequestConnection):
    """A connection that never pauses: the buffer of its bodies is not limited."""

    def pause_reading(self) -> None: ...


def opened(loop: asyncio.AbstractEventLoop) -> RequestParser:
    """Return the parser of a new connection."""
    protocol = Protocol(loop)
    parser = HttpRequestParser(protocol, loop, BUFFER_BYTES, auto_decompress=False, max_msg_queue_size=1000)
    return RequestParser(protocol, BoundedHeaders(parser), BUFFER_BYTES)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


Summary = tuple[object, ...]


def summary(request: HttpRequest | MalformedRequest) -> Summary:
    if isinstance(request, MalformedRequest):
        return (request,)
    head, content = request.head, request.content
    data = b"".join(iter(content.read_nowait, b"")) if request.body is None else request.body
    headers = sorted((name.lower(), value) for name, value in head.headers.items() if name != "Content-Length")
    length_bytes, traceparent = request.content_length, request.traceparent
    return head.method, head.path, headers, head.keep_alive, traceparent, length_bytes, data, content.is_eof()


def fed(parser: RequestParser, pieces: Sequence[bytes]) -> tuple[list[Summary], bool]:
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
    return [summary(one) for one in found], ends


@examples(1000)
@given(
    usual=st.lists(USUAL, min_size=1, max_size=5),
    unusual=st.lists(UNUSUAL, max_size=2),
    cuts=st.lists(st.integers(min_value=0, max_value=1500), max_size=8),
    between=st.booleans(),
)
def test_the_requests_are_those_of_the_parser_alone(
    loop: asyncio.AbstractEventLoop, usual: list[bytes], unusual: list[bytes], cuts: list[int], *, between: bool
) -> None:
    requests = [*usual, *unusual, *usual]
    data, ends, at = b"".join(requests), set(cuts), 0
    if between:  # as a client does that waits for each response
        for request in requests:
            at += len(request)
            ends.add(at)
    edges = [0, *sorted(end for end in ends if 0 < end < len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    remembering, plain = opened(loop), opened(loop)
    plain._known = Forgetting()
    assert fed(remembering, pieces) == fed(plain, pieces)


def cut(request: bytes, after: int | None) -> list[bytes]:
    if after is None:
        return [request]
    at = request.index(b"\r\n\r\n") + 4 + after
    return [request[:at], request[at:]]


class Forgetting(dict[request_parser._Frame, RequestHead]):
    def __setitem__(self, key: request_parser._Frame, head: RequestHead) -> None: ...


@pytest.mark.parametrize(
    "parents",
    [(None, None), (f"00-{1:032x}-{1:016x}-01", f"00-{2:032x}-{2:016x}-00")],
    ids=["alone", "with-other-traceparents"],
)
@pytest.mark.parametrize("second_cut", [None, 0, 100], ids=str)
@pytest.mark.parametrize("first_cut", [None, -80, -2, 0, 5], ids=str)
def test_a_second_request_with_the_same_header_is_not_parsed_again(
    loop: asyncio.AbstractEventLoop,
    monkeypatch: pytest.MonkeyPatch,
    first_cut: int | None,
    second_cut: int | None,
    parents: tuple[str | None, str | None],
) -> None:
    """The cuts are relative to the beginning of the body."""
    parser = opened(loop)
    headers = [[f"Traceparent: {parent}"] if parent else [] for parent in parents]
    first, second = cut(post(b"a" * 10, *headers[0]), first_cut), cut(post(b"b" * 1000, *headers[1]), second_cut)
    assert len(fed(parser, first)[0]) == 1
    parsed: list[bytes] = []
    monkeypatch.setattr(parser, "_parse", lambda data: parsed.append(data) or ((), False))
    found, _ = fed(parser, second)
    ((method, path, _, keep_alive, traceparent, length_bytes, body, is_complete),) = found
    assert (method, path, keep_alive, length_bytes, is_complete) == ("POST", "/mutate", True, 1000, True)
    assert traceparent == parents[1]
    assert body == b"b" * 1000
    assert not parsed


def test_few_headers_are_remembered_per_connection(loop: asyncio.AbstractEventLoop) -> None:
    parser = opened(loop)
    for number in range(100):
        fed(parser, [post(b"a", f"X-Number: {number}")])
        assert 0 < len(parser._known) <= request_parser._KNOWN_MAX
    known = set(parser._known)
    fed(parser, [post(b"a", "X-Long: " + "a" * 8192)])
    fed(parser, [post(b"a", "traceparent: another-form-in-each-request")])
    assert set(parser._known) == known


def test_a_header_costs_no_regular_expression_of_its_own(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compile one takes 8 ms for a long header, and a client that is not authenticated yet chooses its headers."""
    parser = opened(loop)
    compiled: list[object] = []
    monkeypatch.setattr(re, "compile", lambda *arguments: compiled.append(arguments))
    for number in range(3):
        for _ in range(2):
            assert fed(parser, [post(b"a", f"X-Number: {number}", f"traceparent: 00-{1:032x}-{1:016x}-01")])[0]
    assert len(parser._known) == 3
    assert not compiled
