"""HTTP: requests are the same in one piece and in several, on a new connection and on one that knows their headers.

The first bytes of an input say where to cut the rest.
"""

import asyncio
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from tests.fuzz.catalogue import Form
from tests.server.parsing import Forgetting, Summary, feed, open_parser, post
from webhook.server.header_limits import MalformedRequest
from webhook.server.request_parser import RequestParser

FORM = Form.BYTES
_LAST = "Accept-Encoding: gzip"
_PARENT = f"traceparent: 00-{1:032x}-{1:016x}-01"
WORDS = (
    *("POST /mutate?timeout=10s HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\n", "HTTP/1.0", "Host: x\r\n", "\r\n\r\n"),
    *("Content-Length: ", "\r\nContent-Length: 0\r\n", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n", "3\r\nabc\r\n"),
    *(
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "Upgrade: h2c\r\n",
        f"{_PARENT}\r\n",
        "traceparent:",
        "\r\n ",
    ),
)
_CUTS_MAX = 8
_USUAL = [post(b"a" * 10, _LAST), post(b"b" * 200, _PARENT, _LAST, path="/validate")]
_loop = asyncio.new_event_loop()


class Reading(NamedTuple):
    """The good requests of a connection, and whether something malformed follows."""

    requests: list[Summary]
    is_malformed: bool


def list_seeds() -> list[bytes]:
    chunked = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    streams = [
        b"".join(_USUAL),
        _USUAL[0] * 3,
        _USUAL[1] + chunked + _USUAL[1],
        post(b"abc", length="003"),
        post(b"abc", "Connection: close") + _USUAL[0],
        post(b"abc", "Expect: 100-continue"),
        post(b"abc", "Connection: upgrade", "Upgrade: websocket"),
        post(b"abc", "Transfer-Encoding: chunked"),
        post(b"abc", length="3, 3"),
        post(b"abc", "X-Other: \r\n Content-Length: 3"),
        post(b"a", f"{_PARENT}\r\n folded", _LAST),
        post(b"a", _PARENT, _PARENT, _LAST),
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
    ]
    alone = [make_input(request, ()) for request in _USUAL]
    one_by_one = make_input(b"".join(_USUAL) * 2, [*accumulate(map(len, _USUAL * 2))])
    return [*alone, one_by_one, *(make_input(stream, cuts) for stream in streams for cuts in ((), (10, 90)))]


def make_input(stream: bytes, cuts: Sequence[int]) -> bytes:
    return bytes([len(cuts)]) + b"".join(cut.to_bytes(2) for cut in cuts) + stream


def check(data: bytes) -> None:
    if not data:
        return
    count = data[0] % (_CUTS_MAX + 1)
    head, stream = data[1 : 1 + 2 * count], data[1 + 2 * count :]
    cuts = {int.from_bytes(head[at : at + 2]) for at in range(0, len(head), 2)}
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(stream)), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    forgetting = open_parser(_loop)
    forgetting._known = Forgetting()
    plain = read(forgetting, pieces)
    assert read(open_parser(_loop), pieces) == plain, "headers are remembered"
    warmed = open_parser(_loop)
    feed(warmed, _USUAL)
    assert read(warmed, pieces) == plain, "the connection has had other requests"
    whole = read(open_parser(_loop), [stream])
    assert whole.is_malformed == plain.is_malformed, "one piece against several"
    if whole.is_malformed:  # what is in one piece with an error may be dropped with it
        assert plain.requests[: len(whole.requests)] == whole.requests
    else:
        assert whole == plain


def read(parser: RequestParser, pieces: Sequence[bytes]) -> Reading:
    """Return the requests up to the first one that is not good, as a connection takes them."""
    found, _ = feed(parser, pieces)
    for number, request in enumerate(found):
        if isinstance(request[0], MalformedRequest):
            before = found[:number]
            return Reading([each for each in before if each[-1]], is_malformed=True)
    return Reading(found, is_malformed=False)
