"""Remembered request headers change nothing: the requests are those that aiohttp's parser returns for the bytes."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import examples
from tests.server.parsing import Forgetting, feed, make_limited_parser, open_parser, post
from webhook.server import request_parser
from webhook.server.header_limits import MalformedRequest

LAST = "Accept-Encoding: gzip"


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


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


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
    remembering, plain = open_parser(loop), open_parser(loop)
    plain._known = Forgetting()
    assert feed(remembering, pieces) == feed(plain, pieces)


def split_request(request: bytes, after: int | None) -> list[bytes]:
    if after is None:
        return [request]
    at = request.index(b"\r\n\r\n") + 4 + after
    return [request[:at], request[at:]]


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
    parser = open_parser(loop)
    headers = [[f"Traceparent: {parent}"] if parent else [] for parent in parents]
    first, second = (
        split_request(post(b"a" * 10, *headers[0]), first_cut),
        split_request(post(b"b" * 1000, *headers[1]), second_cut),
    )
    assert len(feed(parser, first)[0]) == 1
    parsed: list[bytes] = []
    monkeypatch.setattr(parser, "_parse", lambda data: parsed.append(data) or ((), False))
    found, _ = feed(parser, second)
    ((method, path, _, keep_alive, traceparent, length_bytes, body, is_complete),) = found
    assert (method, path, keep_alive, length_bytes, is_complete) == ("POST", "/mutate", True, 1000, True)
    assert traceparent == parents[1]
    assert body == b"b" * 1000
    assert not parsed


def test_few_headers_are_remembered_per_connection(loop: asyncio.AbstractEventLoop) -> None:
    parser = open_parser(loop)
    for number in range(100):
        feed(parser, [post(b"a", f"X-Number: {number}")])
        assert 0 < len(parser._known) <= request_parser._KNOWN_MAX
    known = set(parser._known)
    feed(parser, [post(b"a", "X-Long: " + "a" * 8192)])
    feed(parser, [post(b"a", "traceparent: another-form-in-each-request")])
    assert set(parser._known) == known


def test_a_header_costs_no_regular_expression_of_its_own(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling one for a long header is slow, and a client that is not authenticated yet chooses its headers."""
    parser = open_parser(loop)
    compiled: list[object] = []
    monkeypatch.setattr(re, "compile", lambda *arguments: compiled.append(arguments))
    for number in range(3):
        for _ in range(2):
            assert feed(parser, [post(b"a", f"X-Number: {number}", f"traceparent: 00-{1:032x}-{1:016x}-01")])[0]
    assert len(parser._known) == 3
    assert not compiled


def make_traced_request(body: bytes, before: Sequence[str], after: Sequence[str]) -> bytes:
    """Return a request with headers before and after its Content-Length."""
    lines = ["POST /mutate HTTP/1.1", "Host: x", *before, f"Content-Length: {len(body)}", *after, LAST]
    return "\r\n".join([*lines, "", ""]).encode() + body


FORMS = ("traceparent: {}", "Traceparent: {}", "traceparent:{}", "TRACEPARENT: \t{}", "traceparent: x{}")


@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("place", [(0, 0), (0, 2), (1, 2), (2, 2)], ids=["after", "around", "around-all", "before"])
def test_of_several_traceparents_a_known_header_takes_the_same_as_a_new_one(
    loop: asyncio.AbstractEventLoop, first: str, second: str, place: tuple[int, int]
) -> None:
    def request(numbers: tuple[int, int]) -> bytes:
        one, other = (f"00-{number:032x}-{sign * 16}-01" for number, sign in zip(numbers, "ab", strict=True))
        lines = [first.format(one), second.format(other)]
        split = {(0, 0): 0, (0, 2): 1, (1, 2): 1, (2, 2): 2}[place]
        lines = lines[::-1] if place == (1, 2) else lines
        return make_traced_request(b"a", lines[:split], lines[split:])

    remembering, plain = open_parser(loop), open_parser(loop)
    plain._known = Forgetting()
    for numbers in ((1, 1), (1, 2), (1, 3), (2, 3), (3, 3)):
        found = feed(remembering, [request(numbers)])
        assert found == feed(plain, [request(numbers)])
        assert not isinstance(found[0][0][0], MalformedRequest)


HEADER_BYTES_MAX = 65_536


def large(size: int, *headers: str, lines: int = 8) -> bytes:
    """Return a GET request whose header has `size` bytes."""
    start = "".join(f"{line}\r\n" for line in ("GET /healthz HTTP/1.1", "Host: x", *headers))
    rest = size - len(start) - 2
    each = rest // lines
    sizes = [each] * (lines - 1) + [rest - each * (lines - 1)]
    text = start + "".join(f"X-{n}: ".ljust(length - 2, "a") + "\r\n" for n, length in enumerate(sizes)) + "\r\n"
    assert len(text) == size
    return text.encode()


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


SMALL = large(100, lines=1)
POST = post(b"a" * 20_000)
CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize("piece", [10**6, 100_000, 65_536, 65_537, 16_384, 16_383, 16_385, 8000, 1000, 997])
@pytest.mark.parametrize("lines", [5, 8, 50])
@pytest.mark.parametrize(
    "before", [[], [SMALL], [SMALL, SMALL], [POST], [CHUNKED], [SMALL, CHUNKED, POST]], ids=["first", *"12345"]
)
@pytest.mark.parametrize("pipelined", [False, True])
def test_too_large_a_header_is_refused_however_it_arrives(
    loop: asyncio.AbstractEventLoop, *, piece: int, lines: int, before: list[bytes], pipelined: bool
) -> None:
    for size, accepted in ((HEADER_BYTES_MAX, True), (HEADER_BYTES_MAX + 1, False), (2 * HEADER_BYTES_MAX, False)):
        if size > lines * 16_000:
            continue
        parser, header = make_limited_parser(loop), large(size, lines=lines)
        sent = [b"".join([*before, header, SMALL])] if pipelined else [*before, header, SMALL]
        found, _ = feed(parser, [part for data in sent for part in pieces_of(data, piece)])
        assert len(found) == len(before) + (2 if accepted else 1), size
        (refused,) = [*found[len(before)][:1]]
        assert isinstance(refused, MalformedRequest) is not accepted
        if isinstance(refused, MalformedRequest):
            assert refused == MalformedRequest("HeaderTooLargeError")
