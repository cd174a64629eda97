"""Attacks on the running server's connections: short answers without details, and the next call works."""

import asyncio
import gzip
import json
import re
import socket
import ssl
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.harness.raw_http import BODY, Line, encode_chunks, eventually, format_length, head, line, status
from tests.harness.server_process import POLICY, Files, Serving, run_server
from tests.server.hardening import log, server

__all__ = ["server"]

PROC = Path("/proc")
SECRET = "c2VjcmV0LW9mLWEtdG9rZW4"

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the event loop of the shared server's session


async def works(server: Serving) -> bool:
    code, text = await server.post("/mutate?timeout=10s", BODY)
    return code == 200 and json.loads(text)["response"]["allowed"]


def refusals(reason: str) -> str:
    return f'podgate_refused_calls_total{{reason="{reason}"}}'


async def exchange(server: Serving, sent: bytes, *, plain: bool = False) -> bytes:
    """Send bytes on a new connection; return all bytes received until it ends."""
    async with line(server, plain=plain) as connection:
        connection.send(sent)
        return await connection.rest()


def lines_of(kibibytes: int) -> list[str]:
    """Return header lines, each within the limit of a line."""
    return [f"X-{number}: {'x' * (10 * 1024 - 7)}" for number in range(kibibytes // 10)]


def make_malformed(server: Serving) -> dict[str, bytes]:
    bearer = f"Authorization: Bearer {SECRET}"
    return {
        "header line of 17 KiB": head(server, bearer + "x" * 17_000, token=""),
        "header name of 17 KiB": head(server, bearer, "X" * 17_000 + ": 1", token=""),
        "header of 90 KiB": head(server, bearer, *lines_of(90), token=""),
        "a hundred headers": head(server, bearer, *(f"X-{number}: 1" for number in range(100)), token=""),
        "request line of 9 KiB": head(server, bearer, start=f"POST /{SECRET * 400} HTTP/1.1", token=""),
        "null byte in a value": head(server, bearer, "X-Null: a\0b", token=""),
        "null byte in the path": head(server, bearer, start="POST /mu\0tate HTTP/1.1", token=""),
        "null byte in the token": head(server, bearer + "\0", token=""),
        "line folding": head(server, bearer + "\r\n x", token=""),
        "no colon": head(server, bearer.replace(": ", " "), token=""),
        "lower-case method": head(server, bearer, start="post /mutate HTTP/1.1", token=""),
        "unknown method": head(server, bearer, start="BREW /mutate HTTP/1.1", token=""),
        "unknown version": head(server, bearer, start="POST /mutate HTTP/3.0", token=""),
        "tunnel to nowhere": b"CONNECT \r\n\r\n",
        "tunnel to nowhere after a line": b"\r\nCONNECT   \r\n\r\n\r\n",
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
        "garbage": b"\x16\x03\x01\x02\0\1\0\x01\xfc" + SECRET.encode() * 20,
        "both lengths": head(server, bearer, "Content-Length: 5", "Transfer-Encoding: chunked", token="")
        + b"0\r\n\r\n",
        "two lengths": head(server, bearer, "Content-Length: 5", "Content-Length: 6", token="") + b"12345",
        "negative length": head(server, bearer, "Content-Length: -1", token=""),
        "length in words": head(server, bearer, "Content-Length: five", token=""),
        "unknown transfer encoding": head(server, bearer, "Transfer-Encoding: gzip", token=""),
    }


@pytest.mark.parametrize("plain", [False, True], ids=["admission", "plain"])
async def test_invalid_http_gets_a_bare_400_and_is_quoted_nowhere(server: Serving, *, plain: bool) -> None:
    before = await server.metric(refusals("bad_request"))
    for name, sent in make_malformed(server).items():
        answer = await exchange(server, sent, plain=plain)
        assert status(answer) == 400, name
        assert answer.endswith(b"\r\n\r\nbad request\n"), (name, answer)
        assert b"Server:" not in answer, name
        assert b"Connection: close" in answer, name
        assert await works(server), name
    assert await server.metric(refusals("bad_request")) == before + len(make_malformed(server))
    assert SECRET not in log(server)
    after_start = log(server).partition('"msg":"listening"')[2].partition("\n")[2]
    assert "bad_request" in after_start
    assert "127.0.0.1" not in after_start


CODINGS: dict[tuple[str, ...], tuple[str, int]] = {
    ("gzip, chunked",): ("HTTP/1.1", 501),
    ("gzip", "chunked"): ("HTTP/1.1", 400),
    ("GZIP ,\tchunked",): ("HTTP/1.1", 501),
    ("identity, chunked",): ("HTTP/1.1", 501),
    ("x-unknown;level=1, chunked",): ("HTTP/1.1", 501),
    ("chunked, chunked",): ("HTTP/1.1", 400),
    ("chunked", "chunked"): ("HTTP/1.1", 400),
    ("chunked, gzip",): ("HTTP/1.1", 400),
    ("identity",): ("HTTP/1.1", 400),
    ("chunked;q=1",): ("HTTP/1.1", 400),
    (",chunked",): ("HTTP/1.1", 501),
    ("chunked",): ("HTTP/1.0", 400),
    ("Chunked",): ("HTTP/1.1", 200),
}


@pytest.mark.parametrize("codings", CODINGS, ids=str)
async def test_body_with_a_transfer_coding_other_than_chunked_ends_the_connection(
    server: Serving, codings: tuple[str, ...]
) -> None:
    version, expected = CODINGS[codings]
    lines = [f"Transfer-Encoding: {coding}" for coding in codings]
    before = await server.metric(refusals("bad_request"))
    sent = head(server, *lines, start=f"POST /mutate {version}") + encode_chunks()
    async with line(server) as connection:
        connection.send(sent, head(server, format_length()), BODY)
        answers = await connection.answer()
        if expected == 200:
            assert status(answers) == status(await connection.answer()) == 200
            return
        answers += await connection.rest()
    assert status(answers) == expected
    assert answers.count(b"HTTP/1.") == 1
    assert await server.metric(refusals("bad_request")) == before + 1


@pytest.mark.parametrize("plain", [False, True], ids=["admission", "plain"])
async def test_no_header_of_a_connection_may_be_larger_than_its_bound(server: Serving, *, plain: bool) -> None:
    """The limit also applies to a header that is never complete."""
    start = "GET /healthz HTTP/1.1" if plain else "POST /mutate HTTP/1.1"
    request = head(server, *lines_of(50), "Content-Length: 0" if plain else format_length(), start=start)
    before = await server.metric(refusals("bad_request"))
    async with line(server, plain=plain) as connection:
        for _ in range(3):  # the limit is per request
            connection.send(request, b"" if plain else BODY)
            assert status(await connection.answer()) == 200
        connection.send(head(server, *lines_of(70), start=start)[:-2])
        assert status(await connection.answer()) == 400
        assert await connection.is_cut()
    assert await server.metric(refusals("bad_request")) == before + 1
    assert "HeaderTooLargeError" in log(server)


@pytest.mark.parametrize("pieces", [1, 7])
async def test_complete_header_above_its_bound_is_refused(server: Serving, pieces: int) -> None:
    request = head(server, *lines_of(70), format_length())
    assert len(request) > 65_536
    async with line(server) as connection:
        size = len(request) // pieces + 1
        for start in range(0, len(request), size):
            connection.send(request[start : start + size])
            await connection.writer.drain()
        connection.send(BODY)
        assert status(await connection.answer()) == 400
        assert await connection.is_cut()


async def test_trailers_are_bounded_like_headers(server: Serving) -> None:
    async with line(server) as connection:
        for kibibytes, expected in ((50, 200), (500, 408)):  # the larger one is never complete
            trailers = "".join(f"{line}\r\n" for line in lines_of(kibibytes)).encode()
            connection.send(head(server, "Transfer-Encoding: chunked"), encode_chunks()[:-2], trailers, b"\r\n")
            assert status(await connection.answer()) == expected
        assert await connection.is_cut()
    assert await works(server)


def unusual(server: Serving) -> dict[str, tuple[bytes, int]]:
    """Return HTTP requests of a valid caller that an API server does not send."""
    large = format_length(b"x" * 8_000_000)
    zipped = gzip.compress(BODY)
    return {
        "charset": (head(server, format_length()).replace(b"/json", b"/json; charset=utf-8") + BODY, 200),
        "chunked": (head(server, "Transfer-Encoding: chunked") + encode_chunks(), 200),
        "HTTP/1.0": (head(server, format_length(), start="POST /mutate HTTP/1.0") + BODY, 200),
        "absolute URI": (head(server, format_length(), start="POST https://elsewhere/mutate HTTP/1.1") + BODY, 200),
        "query": (head(server, format_length(), start="POST /mutate?timeout=1s&a=%00 HTTP/1.1") + BODY, 200),
        "two slashes": (head(server, format_length(), start="POST //mutate HTTP/1.1") + BODY, 404),
        "slash at the end": (head(server, format_length(), start="POST /mutate/ HTTP/1.1") + BODY, 404),
        "dots": (head(server, format_length(), start="POST /x/../mutate/.. HTTP/1.1") + BODY, 404),
        "upper-case path": (head(server, format_length(), start="POST /MUTATE HTTP/1.1") + BODY, 404),
        "HEAD": (head(server, start="HEAD /mutate HTTP/1.1"), 405),
        "OPTIONS": (head(server, start="OPTIONS /mutate HTTP/1.1"), 405),
        "OPTIONS of all": (head(server, start="OPTIONS * HTTP/1.1"), 404),
        "TRACE": (head(server, start="TRACE /mutate HTTP/1.1"), 405),
        "CONNECT": (head(server, start="CONNECT elsewhere:443 HTTP/1.1"), 404),
        "no body": (head(server), 400),
        "upgrade": (head(server, "Connection: Upgrade", "Upgrade: websocket", format_length()) + BODY, 200),
        "gzip": (head(server, "Content-Encoding: gzip", format_length(zipped)) + zipped, 415),
        "media type": (head(server, format_length()).replace(b"application/json", b"application/yaml") + BODY, 415),
        "expectation": (head(server, "Expect: tea", format_length()) + BODY, 417),
        "too large by its length": (head(server, large), 413),
        "too large by its chunks": (
            head(server, "Transfer-Encoding: chunked") + b"800000\r\n%b\r\n" % (b" " * 0x800000) + b"0\r\n\r\n",
            413,
        ),
        "length too long": (head(server, f"Content-Length: {len(BODY) + 1}") + BODY, 408),
        "length too short": (head(server, "Content-Length: 10") + BODY, 400),
        "broken chunk": (head(server, "Transfer-Encoding: chunked") + b"zz\r\n", 400),
        "forwarded certificate": (
            head(server, 'X-Forwarded-Client-Cert: Subject="CN=kube-apiserver"', format_length()),
            403,
        ),
        "two tokens": (head(server, "Authorization: Bearer x", format_length()), 401),
        "token beyond ASCII": (head(server, "Authorization: Bearer \u00e9\u00e9", format_length(), token=""), 401),
        "another scheme": (head(server, f"Authorization: Basic {SECRET}", format_length(), token=""), 401),
    }


@pytest.mark.parametrize(
    ("start", "field", "closes"),
    [
        ("POST /mutate HTTP/1.1", "X-Nothing: 1", False),
        ("POST /mutate HTTP/1.1", "Connection: close", True),
        ("POST /mutate HTTP/1.0", "Connection: keep-alive", True),
    ],
)
async def test_response_has_date_content_type_and_connection_headers(
    server: Serving, start: str, field: str, *, closes: bool
) -> None:
    async with line(server) as connection:
        connection.send(head(server, field, format_length(), start=start) + BODY)
        before = int(time.time())
        first, *fields = (await connection.answer()).partition(b"\r\n\r\n")[0].decode().split("\r\n")
        headers = dict(field.split(": ") for field in fields)
        assert first == "HTTP/1.1 200 OK"
        assert headers["Content-Type"] == "application/json"
        assert before - 1 <= parsedate_to_datetime(headers["Date"]).timestamp() <= time.time()
        assert (headers.get("Connection") == "close") == closes
        if closes:
            assert await connection.rest() == b""
        else:
            connection.send(head(server, format_length(), start=start) + BODY)
            assert status(await connection.answer()) == 200


async def test_unusual_requests_are_served_or_rejected_and_end_with_their_connection(server: Serving) -> None:
    for name, (sent, expected) in unusual(server).items():
        async with line(server) as connection:
            connection.send(sent)
            answer = await connection.reader.readuntil(b"\r\n\r\n")
            assert status(answer) == expected, (name, answer)
            assert b"Server:" not in answer, name
            if expected >= 400:
                assert b"Connection: close" in answer, name
                rest = await connection.rest()
                assert b"HTTP/1.1 " not in rest, name  # the bytes after it are not parsed as a request
                assert len(rest) < 200, (name, rest)
                assert b"Traceback" not in rest, name
        assert await works(server), name
    for reason in (
        "not_found",
        "method",
        "authentication_forwarded_certificate",
        "media_type",
        "body_timeout",
        "body_too_large",
    ):
        assert await server.metric(refusals(reason)) >= 1, reason
    assert SECRET not in log(server)


async def test_pipelined_calls_are_answered_in_order_and_garbage_after_them_ends_the_connection(
    server: Serving,
) -> None:
    good = head(server, format_length()) + BODY
    async with line(server) as connection:
        connection.send(good * 20)
        assert [status(await connection.answer()) for _ in range(20)] == [200] * 20
        connection.send(b"\x01\x02", SECRET.encode(), b"\r\n\r\n")
        assert status(await connection.answer()) == 400
        assert await connection.is_cut()
    assert SECRET not in log(server)
    assert await works(server)


async def test_only_an_authenticated_caller_is_asked_for_its_body(server: Serving) -> None:
    async with line(server) as client:
        client.send(head(server, "Expect: 100-continue", format_length(), token=""))
        assert status(await client.answer()) == 401
        assert await client.is_cut()
    async with line(server) as caller:
        caller.send(head(server, "Expect: 100-continue", format_length()))
        assert status(await caller.answer()) == 100
        caller.send(BODY)
        assert status(await caller.answer()) == 200
        caller.send(head(server, format_length()) + BODY)
        assert status(await caller.answer()) == 200


async def test_over_the_limit_in_flight_a_slow_body_is_dropped(tmp_path: Path) -> None:
    timeouts = ("--body-timeout", "1h", "--drain", "1s")
    async with (
        run_server(Files.create(tmp_path), "--max-in-flight", "2", *timeouts) as server,
        AsyncExitStack() as stack,
    ):
        slow = [await stack.enter_async_context(line(server)) for _ in range(2)]
        for number, connection in enumerate(slow, 1):
            connection.send(head(server, format_length()), BODY[:10])
            await server.wait_for_metric("podgate_calls_in_flight", number)
        assert await works(server)
        answer = await slow[0].answer()
        assert status(answer) == 503
        assert answer.endswith(b"\r\n\r\ntoo many bodies arrive, and this one was the slowest\n")
        assert await slow[0].is_cut()
        slow[1].send(BODY[10:])  # it was not the slowest
        assert status(await slow[1].answer()) == 200
        assert await server.metric(refusals("body_displaced")) == 1
        assert await server.metric(refusals("overloaded")) == 0


async def test_incoming_bodies_together_stay_within_a_bound(tmp_path: Path) -> None:
    """Each body is within the limit of one, and none is ever complete."""
    part = b" " * 6_000_000
    timeouts = ("--body-timeout", "1h", "--drain", "1s")
    async with run_server(Files.create(tmp_path), *timeouts) as server, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(line(server)) for _ in range(14)]
        for connection in slow:
            connection.send(head(server, "Content-Length: 7000000"), part)
            await connection.writer.drain()
        await server.wait_for_metric(refusals("body_displaced"), 14 - 64 * 1024 * 1024 // len(part))
        assert status(await slow[0].answer()) == 503
        assert await works(server)


async def test_at_the_cap_stalled_connections_are_closed_and_answered_ones_stay(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path), "--max-connections", "2", "--drain", "1s") as server:
        async with line(server) as known, line(server) as stalled:
            known.send(head(server, format_length()) + BODY)
            assert status(await known.answer()) == 200
            async with line(server) as new_connection:
                new_connection.send(head(server, format_length()) + BODY)
                assert status(await new_connection.answer()) == 200
                assert await stalled.is_cut()
                with pytest.raises((OSError, ssl.SSLError)):
                    async with line(server):  # both connections have answered requests now
                        pass
                known.send(head(server, format_length()) + BODY)
                assert status(await known.answer()) == 200
            await server.wait_for_metric(refusals("connection_limit"), 2)
        await eventually(lambda: _works_now(server))


async def test_reporter_connections_are_closed_before_those_of_the_api_server(tmp_path: Path) -> None:
    """They are closed although their requests succeed."""
    policy = POLICY.replace("breaker: {", "breaker: {outcomes: {source: Pushed, reporters: [prober]}, ")
    files = Files.create(tmp_path, policy)
    reporter = files.pki.context(files.pki.client("prober"))
    token = files.other.token(client_id="prober")
    outcomes = b'[{"service": "payment-api", "ok": true, "latency": 0.1}]'
    sent = "POST /v1/outcomes HTTP/1.1"
    async with run_server(files, "--max-connections", "2", "--drain", "1s") as server, AsyncExitStack() as stack:
        as_reporter = replace(server, context=reporter)
        connections = [await stack.enter_async_context(line(as_reporter)) for _ in range(2)]
        for connection in connections:
            connection.send(head(server, format_length(outcomes), start=sent, token=token) + outcomes)
            answer = await connection.answer()
            assert (status(answer), b"Connection: close" in answer) == (200, False)
        assert await works(server)
        assert await server.metric(refusals("connection_limit")) == 1


async def _works_now(server: Serving) -> bool:
    try:
        return await works(server)
    except OSError:
        return False


async def test_slow_clients_are_cut_off(tmp_path: Path) -> None:
    """In the handshake, in the first header, in a later one, and while idle."""
    # Valid handshakes must be faster than this timeout, on any machine.
    timeouts = ("--handshake-timeout", "3s", "--header-timeout", "300ms", "--keep-alive", "600ms")
    async with run_server(Files.create(tmp_path), *timeouts, "--drain", "1s") as server:
        host, port = server.admission.split(":")
        silent = Line(*await asyncio.open_connection(host, int(port)))
        assert await silent.is_cut()
        silent.writer.close()
        assert await server.metric(refusals("handshake_timeout")) == 1
        async with line(server) as first:
            first.send(head(server)[:-4])
            assert await first.is_cut()
        assert await server.metric(refusals("header_timeout")) == 1
        for beginning in (b"", head(server)[:-4]):
            async with line(server) as later:
                later.send(head(server, format_length()) + BODY)
                assert status(await later.answer()) == 200
                later.send(beginning)
                assert await later.is_cut()
        assert await works(server)


async def test_ended_connection_frees_its_slot_before_its_client_closes(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path), "--max-connections", "1", "--drain", "1s") as server:
        with await asyncio.to_thread(_reject_client, server):  # it reads no more, so it does not see the end
            await eventually(lambda: _works_now(server), within_seconds=25)  # OpenSSL would wait for it for 30 s


def _reject_client(server: Serving) -> socket.socket:
    host, port = server.admission.split(":")
    client = server.context.wrap_socket(socket.create_connection((host, int(port))), server_hostname="localhost")
    client.sendall(head(server, format_length(b""), token=""))
    assert status(client.recv(4096)) == 401
    return client


# ---------------------------------------------------------------------------------------------------- the plain port


async def test_plain_port_serves_exactly_four_pages(server: Serving) -> None:
    for path in ("/", "/mutate", "/metrics/", "//metrics", "/healthz/x", "/status/../metrics"):
        answer = await exchange(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), plain=True)
        assert status(answer) == 404, path
        assert b"Server:" not in answer, path
    answer = await exchange(server, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", plain=True)
    assert status(answer) == 405
    async with line(server, plain=True) as connection:
        connection.send(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(await connection.reader.readuntil(b"\r\n\r\n")) == 200
        assert (await connection.answer()).endswith(b"ok\n")


async def test_occupied_plain_port_still_serves_probes(server: Serving) -> None:
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(line(server, plain=True)) for _ in range(100)]
        for _ in range(5):
            assert await exchange_plain(server, "/healthz") == (200, b"ok\n")
        assert await connections[0].is_cut()  # the oldest connection is closed


async def exchange_plain(server: Serving, path: str) -> tuple[int, bytes]:
    async with line(server, plain=True) as connection:
        connection.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = await connection.answer()
        return status(answer), answer.partition(b"\r\n\r\n")[2]


async def test_concurrent_scrapes_while_services_change(server: Serving) -> None:
    reloads = 'podgate_policy_reloads_total{result="success"}'
    policy = server.files.policy.read_text()
    more_services = "".join(
        f"- name: s{number}\n  match: {{namespaces: [n{number}]}}\n"
        "  quota: {windows: [{window: 1h, hard: {pods: 3}}]}\n"
        for number in range(60)
    )

    async def scrape(path: str) -> None:
        for _ in range(15):
            code, text = await exchange_plain(server, path)
            assert code == 200
            assert b"podgate" in text or b'"services"' in text

    async def call() -> None:
        for _ in range(40):
            assert await works(server)

    async def change() -> None:
        for number, document in enumerate((policy + more_services, policy, policy + more_services, policy), 1):
            server.files.policy.write_text(document)
            await server.wait_for_metric(reloads, before + number)

    before, length = await server.metric(reloads), len(log(server))
    await asyncio.gather(change(), call(), *(scrape(path) for path in ("/metrics", "/status") * 6))
    assert "failed" not in log(server)[length:]


# ------------------------------------------------------------------------------------------------- files that change


async def test_files_change_under_load_and_no_call_fails(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path), "--drain", "1s") as server:
        is_running = True
        answered = 0

        async def call() -> None:
            nonlocal answered
            while is_running:
                assert await works(server)
                answered += 1
                await asyncio.sleep(0.02)  # to leave CPU time for other processes

        callers = [asyncio.create_task(call()) for _ in range(4)]
        serial = server.files.pki.renew_server().certificate.serial_number
        await eventually(lambda: _serves(server, serial))
        failures = {
            server.files.folder / "jwks.json": 'podgate_file_reloads_total{file="key set",result="failure"}',
            server.files.pki.paths.key: 'podgate_file_reloads_total{file="certificates",result="failure"}',
        }
        assert [await server.metric(series) for series in failures.values()] == [0, 0]
        for path in failures:
            path.write_text("{}")
        for series in failures.values():
            await server.wait_for_metric(series, 1)
        is_running = False
        await asyncio.gather(*callers)
        assert answered > 20
        for file in ("certificates", "key set"):
            assert f"{file} rejected, the last good one stays in use" in log(server)
        assert (await server.get("/readyz"))[0] == 200


async def _serves(server: Serving, serial: int) -> bool:
    async with line(server) as connection:
        return int(connection.writer.get_extra_info("peercert")["serialNumber"], 16) == serial


async def test_removed_ca_is_rejected_on_open_connections_too(tmp_path: Path) -> None:
    files = Files.create(tmp_path)
    (tmp_path / "next").mkdir()
    other = type(files.pki).create(tmp_path / "next", "next-ca")
    trusted = files.pki.folder / "ca.crt"
    old, new = trusted.read_text(), (other.folder / "ca.crt").read_text()
    new_context = files.pki.context()
    credentials = other.client()
    other.context(credentials)
    stem = f"{credentials.certificate.serial_number:x}"
    new_context.load_cert_chain(other.folder / f"{stem}.crt", other.folder / f"{stem}.key")
    # The old CA issued the serving certificate: contexts of clients still trust it.
    old_context = files.pki.context(files.caller)
    async with run_server(files, "--drain", "1s") as server, line(server) as live:
        live.send(head(server, format_length()) + BODY)
        assert b"Connection: close" not in await live.answer()
        trusted.write_text(old + new)
        await eventually(lambda: _can_call(server, new_context))
        assert (await server.post("/mutate", BODY, context=old_context))[0] == 200
        trusted.write_text(new)
        await eventually(lambda: _is_refused(server, old_context))
        untrusted = refusals("authentication_certificate_untrusted")
        before = await server.metric(untrusted)  # a handshake just before the change may count too
        live.send(head(server, format_length()) + BODY)
        answer = await live.answer()
        assert status(answer) == 401  # the connection is from before the change
        assert b"Connection: close" in answer
        assert await live.is_cut()
        assert await server.metric(untrusted) == before + 1


async def _can_call(server: Serving, context: ssl.SSLContext) -> bool:
    """Return whether a call on a new connection succeeds."""
    host, port = server.admission.split(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    except (OSError, ssl.SSLError):
        return False
    connection = Line(reader, writer)
    try:
        connection.send(head(server, format_length()) + BODY)
        return status(await connection.answer()) == 200
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.transport.abort()


async def _is_refused(server: Serving, context: ssl.SSLContext) -> bool:
    return not await _can_call(server, context)


# ---------------------------------------------------------------------------------------------------------------- leaks


@pytest.mark.skipif(not PROC.exists(), reason="counts descriptors in /proc")
async def test_many_calls_and_short_connections_leak_no_descriptor(server: Serving) -> None:
    async def descriptors() -> int:
        return len(list((PROC / str(server.process.pid) / "fd").iterdir()))

    async def is_as_before() -> bool:
        return await descriptors() <= before + 5

    assert await works(server)
    before = await descriptors()
    for _ in range(5):
        await asyncio.gather(*(_can_call(server, server.context) for _ in range(20)))
        await asyncio.gather(*(exchange(server, b"GARBAGE\r\n\r\n") for _ in range(20)))
        await asyncio.gather(*(exchange_plain(server, "/healthz") for _ in range(20)))
    await eventually(is_as_before)
    assert not re.search(r"unclosed|never retrieved|Fatal", log(server))
