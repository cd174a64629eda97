"""The listener: limits on connections, timeouts, and the queue of handshakes."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.identity import Pki
from tests.harness.loopback import Loopback, loopback, post
from tests.server.listener import REQUEST, exchange, hello, open_connection
from tests.timeouts import HANG_SECONDS
from webhook.errors import UserError
from webhook.server import handshake_throttle, listener
from webhook.server.connection_table import ConnectionLimits
from webhook.server.http_messages import HttpRequest, HttpResponse
from webhook.tls.context import make_server_context

LOOPS = ("uvloop", "asyncio")
TRUSTED_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nX-Earn: 1\r\n\r\n"


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.create(tmp_path)


@pytest.fixture(params=["TLS", "plain"])
async def served(request: pytest.FixtureRequest, pki: Pki) -> AsyncIterator[tuple[Loopback, ssl.SSLContext | None]]:
    context = make_server_context(pki.paths) if request.param == "TLS" else None
    async with loopback(hello, (lambda: context) if context else None) as running:
        yield running, pki.context(pki.client()) if context else None


async def test_requests_are_served_and_connections_released(
    served: tuple[Loopback, ssl.SSLContext | None],
) -> None:
    running, context = served
    for _ in range(3):
        assert await post(running.port, context) == (200, "hello")
    await running.wait_until(lambda: running.connections.count == 0)
    assert running.refused == []
    assert running.kept == [True] * 3


async def test_data_sent_ahead_is_bounded_in_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_UNREAD_BYTES", 16_384)  # without the bound the buffer starts larger and grows
    async with loopback(hello, None) as running:
        _, writer = await open_connection(running.port, None)
        await running.wait_until(lambda: running.connections.count == 1)
        (connection,) = running.connections._untrusted
        buffer_bytes = connection.accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert buffer_bytes <= 2 * 16_384  # the kernel doubles the value that is set
        writer.close()


async def test_closing_stops_accepting_while_live_connections_go_on(
    served: tuple[Loopback, ssl.SSLContext | None],
) -> None:
    running, context = served
    port = running.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    assert (await exchange(reader, writer)).endswith(b"hello")
    await running.listener.close()
    assert (await exchange(reader, writer)).endswith(b"hello")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    idle = asyncio.create_task(running.connections.wait_empty())
    assert not idle.done()
    writer.close()
    await idle
    assert running.connections.count == 0


async def test_a_connection_without_a_request_is_cut(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context, ConnectionLimits(header_timeout_seconds=0.05)) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=pki.context(pki.client()))
        writer.write(b"GET / HTTP/1.1\r\nX-Drip: ")
        assert await _rest(reader) == b""
        writer.close()
        await running.wait_until(lambda: running.connections.count == 0)
        assert running.reasons == ["header_timeout"]


async def test_connection_may_idle_until_its_first_byte(pki: Pki) -> None:
    """An API server opens spare connections: to cut one at its first use would lose a call."""
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context, ConnectionLimits(header_timeout_seconds=0)) as running:
        spare = await open_connection(running.port, pki.context(pki.client()))
        await running.wait_until(lambda: bool(running.connections._established))
        (connection,) = running.connections._established.values()
        await asyncio.sleep(0.1)  # any timer of 0 s has fired
        assert connection.transport is not None
        assert not connection.transport.is_closing()
        spare[1].write(REQUEST[:5])
        assert await _rest(spare[0]) == b""  # the header timeout starts at the first byte
        assert running.reasons == ["header_timeout"]
        spare[1].close()


async def test_silent_connection_is_closed_without_an_error(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context, ConnectionLimits(silence_seconds=0.05)) as running:
        reader, writer = await open_connection(running.port, pki.context(pki.client()))
        assert await _rest(reader) == b""
        writer.close()
        await running.wait_until(lambda: running.connections.count == 0)
        assert running.reasons == []


async def test_silent_connection_is_closed_at_the_cap(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    client = pki.context(pki.client())
    async with loopback(hello, lambda: context, ConnectionLimits(connections_max=1)) as running:
        silent = await open_connection(running.port, client)
        assert await post(running.port, client) == (200, "hello")
        assert await _rest(silent[0]) == b""
        silent[1].close()


async def test_connection_with_a_completed_request_may_idle(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context, ConnectionLimits(header_timeout_seconds=0.3)) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=pki.context(pki.client()))
        assert (await exchange(reader, writer)).endswith(b"hello")
        (connection,) = running.connections._established.values()
        assert connection.timer is None
        writer.close()
        await writer.wait_closed()


def _client_hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("part", [0, 0.5, 1], ids=["before its hello", "in its hello", "after its hello"])
async def test_stalled_handshake_is_cut_and_delays_no_other(pki: Pki, part: float) -> None:
    context, client = make_server_context(pki.paths), pki.context(pki.client())
    hello_sent = _client_hello(client)
    async with loopback(hello, lambda: context, ConnectionLimits(handshake_timeout_seconds=2)) as running:
        stalled = [await open_connection(running.port, None) for _ in range(5)]
        for _, writer in stalled:
            writer.write(hello_sent[: int(len(hello_sent) * part)])
        assert await post(running.port, client) == (200, "hello")
        for reader, writer in stalled:
            assert bool(await _rest(reader)) == (part == 1)
            writer.close()
        await running.wait_until(lambda: running.connections.count == 0)
        assert running.reasons == ["handshake_timeout"] * 5


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(HANG_SECONDS):
            return await reader.read()
    except ConnectionError:
        return b""


async def test_at_the_cap_of_proven_connections_a_new_one_is_closed(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    client = pki.context(pki.client())
    async with loopback(hello, lambda: context, ConnectionLimits(connections_max=3)) as running:
        connections = [await open_connection(running.port, client) for _ in range(3)]
        for connection in connections:
            assert (await exchange(*connection, TRUSTED_REQUEST)).endswith(b"hello")
        assert running.connections.count == 3
        reader, writer = await open_connection(running.port, None)
        assert await _rest(reader) == b""
        writer.close()
        assert running.reasons == ["connection_limit"]
        assert (await exchange(*connections[0])).endswith(b"hello")
        connections[0][1].close()
        await running.wait_until(lambda: running.connections.count == 2)
        assert await post(running.port, client) == (200, "hello")
        for _, connection_writer in connections:
            connection_writer.close()


@pytest.mark.parametrize("stage", ["handshake", "first request"])
async def test_over_the_cap_a_new_connection_replaces_the_longest_stalled(pki: Pki, stage: str) -> None:
    context = make_server_context(pki.paths)
    client = pki.context(pki.client())
    async with loopback(hello, lambda: context, ConnectionLimits(connections_max=3)) as running:
        good = await open_connection(running.port, client)
        assert (await exchange(*good, TRUSTED_REQUEST)).endswith(b"hello")
        stalled = [await open_connection(running.port, None if stage == "handshake" else client) for _ in range(2)]
        await running.wait_until(lambda: running.connections.count == 3)
        assert await post(running.port, client, ("X-Earn", "1")) == (200, "hello")
        assert await _rest(stalled[0][0]) == b""
        assert running.reasons == ["connection_limit"]
        assert (await exchange(*good)).endswith(b"hello")  # the oldest connection, but a trusted one
        await running.wait_until(lambda: running.connections.count == 2)
        for _, writer in (good, *stalled):
            writer.close()


async def test_flood_of_stalled_handshakes_blocks_no_client(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    client = pki.context(pki.client())
    async with loopback(hello, lambda: context, ConnectionLimits(connections_max=100)) as running:
        stalled = [await open_connection(running.port, None) for _ in range(300)]
        for _ in range(10):
            assert await post(running.port, client, ("X-Earn", "1")) == (200, "hello")
        assert running.connections.count <= 100
        for _, writer in stalled:
            writer.close()
        await running.wait_until(lambda: running.connections.count == 0)


TRUSTED_ADDRESS = "127.0.0.2"


async def connect_from(
    address: str, port: int, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, local_addr=(address, 0))


async def call_from_trusted_address(port: int, context: ssl.SSLContext) -> bytes:
    """Make a trusted call from TRUSTED_ADDRESS, then disconnect."""
    reader, writer = await connect_from(TRUSTED_ADDRESS, port, context)
    try:
        return await exchange(reader, writer, TRUSTED_REQUEST)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_trusted_address_passes_queued_handshakes_of_untrusted_ones(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    client = pki.context(pki.client())
    async with loopback(hello, lambda: context) as running:
        assert (await call_from_trusted_address(running.port, client)).endswith(b"hello")
        seconds = stop_clock(running)
        capacity = handshake_throttle._BURST_MAX + handshake_throttle._UNTRUSTED_MAX
        untrusted = [await open_connection(running.port, None) for _ in range(capacity + 1)]
        assert await _rest(untrusted[handshake_throttle._BURST_MAX][0]) == b""  # the oldest queued connection is closed
        assert running.reasons == ["connection_limit"]
        trusted_call = asyncio.create_task(call_from_trusted_address(running.port, client))
        await running.wait_until(lambda: running.connections.throttle.waiting == handshake_throttle._UNTRUSTED_MAX + 1)
        assert not trusted_call.done()
        seconds[0] += 1.5 / running.connections.throttle._per_second
        assert (await trusted_call).endswith(b"hello")
        # Its credit was returned, and one untrusted connection used it.
        await running.wait_until(lambda: running.connections.throttle.waiting == handshake_throttle._UNTRUSTED_MAX - 1)
        for _, writer in untrusted:
            writer.close()


async def test_at_the_cap_queued_untrusted_clients_are_closed_for_trusted_ones(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    client = pki.context(pki.client())
    cap = 2 * handshake_throttle._BURST_MAX
    limits = ConnectionLimits(connections_max=cap, handshake_timeout_seconds=HANG_SECONDS)  # none ends by itself
    async with loopback(hello, lambda: context, limits) as running:
        assert (await call_from_trusted_address(running.port, client)).endswith(b"hello")
        await running.wait_until(lambda: running.connections.count == 0)
        seconds = stop_clock(running)
        untrusted = [await open_connection(running.port, None) for _ in range(handshake_throttle._BURST_MAX)]
        trusted_call = asyncio.create_task(call_from_trusted_address(running.port, client))
        await running.wait_until(lambda: running.connections.throttle.waiting == 1)
        untrusted += [await open_connection(running.port, None) for _ in range(2 * cap)]
        await running.wait_until(
            lambda: running.reasons.count("connection_limit") == handshake_throttle._BURST_MAX + 1 + cap
        )
        assert running.connections.count == cap
        seconds[0] += 1.5 / running.connections.throttle._per_second
        assert (await trusted_call).endswith(b"hello")
        for _, writer in untrusted:
            writer.close()


async def test_at_the_cap_stalled_untrusted_clients_are_closed_before_trusted_ones(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    client = pki.context(pki.client())
    async with loopback(
        hello, lambda: context, ConnectionLimits(connections_max=3, handshake_timeout_seconds=60)
    ) as running:
        assert (await call_from_trusted_address(running.port, client)).endswith(b"hello")
        await running.wait_until(lambda: running.connections.count == 0)
        spare = [await connect_from(TRUSTED_ADDRESS, running.port, client)]
        stalled = [await open_connection(running.port, None) for _ in range(2)]
        for number in range(2):
            spare.append(await connect_from(TRUSTED_ADDRESS, running.port, client))
            assert await _rest(stalled[number][0]) == b""
        spare.append(await connect_from(TRUSTED_ADDRESS, running.port, client))
        assert await _rest(spare[0][0]) == b""  # no untrusted connection is left
        for connection in spare[1:]:
            assert (await exchange(*connection)).endswith(b"hello")
        for _, writer in (*spare, *stalled):
            writer.close()


def stop_clock(running: Loopback) -> list[float]:
    """Stop the throttle's clock; return its time in a list, which tests advance."""
    throttle = running.connections.throttle
    seconds = [throttle._clock_seconds()]
    throttle._clock_seconds = lambda: seconds[0]
    return seconds


async def test_abort_cuts_queued_handshakes_too(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    limits = ConnectionLimits(handshake_timeout_seconds=HANG_SECONDS)
    async with loopback(hello, lambda: context, limits) as running:
        stop_clock(running)
        untrusted = [await open_connection(running.port, None) for _ in range(handshake_throttle._BURST_MAX + 3)]
        await running.wait_until(lambda: running.connections.throttle.waiting == 3)
        running.connections.abort()
        await running.connections.wait_empty()
        assert not running.connections.throttle.waiting
        for reader, writer in untrusted:
            assert await _rest(reader) == b""
            writer.close()


async def test_plain_port_has_no_handshake_queue() -> None:
    """No address becomes trusted there, and delayed probes could restart the server."""
    async with loopback(hello, None) as running:
        stop_clock(running)
        connections = [await open_connection(running.port, None) for _ in range(2 * handshake_throttle._BURST_MAX)]
        async with asyncio.timeout(HANG_SECONDS):
            assert await post(running.port, None) == (200, "hello")
        for _, writer in connections:
            writer.close()


async def test_a_client_that_reads_no_answers_is_cut(pki: Pki) -> None:
    """A trusted client that sends requests and reads nothing uses bounded memory, for a bounded time."""

    async def large_answer(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, bytes(1 << 20))

    context = make_server_context(pki.paths)
    async with loopback(large_answer, lambda: context, ConnectionLimits(unread_timeout_seconds=0.2)) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=pki.context(pki.client()), limit=1024)
        writer.write(TRUSTED_REQUEST * 40)
        await running.wait_until(lambda: bool(running.refused))
        assert running.reasons == ["answer_unread"]
        await running.wait_until(lambda: running.connections.count == 0)
        writer.transport.abort()


async def test_a_client_that_reads_slowly_is_served(pki: Pki) -> None:
    async def large_answer(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, bytes(1 << 20))

    context = make_server_context(pki.paths)
    async with loopback(
        large_answer, lambda: context, ConnectionLimits(unread_timeout_seconds=HANG_SECONDS)
    ) as running:
        reader, writer = await open_connection(running.port, pki.context(pki.client()))
        writer.write(TRUSTED_REQUEST * 20)
        for _ in range(20):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(1 << 20)
        (connection,) = running.connections._established.values()
        assert connection.timer is None
        assert running.reasons == []
        writer.close()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (REQUEST, "handshake_protocol"),
        (b"\x16\x03\x01\x00\x05hello", "handshake_failed"),
        (b"", "handshake_cut"),
    ],
    ids=["plain HTTP", "garbage", "nothing"],
)
async def test_failed_handshake_is_reported_and_leaks_nothing(pki: Pki, sent: bytes, reason: str) -> None:
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            client.sendall(sent)
        await running.wait_until(lambda: bool(running.refused))
        assert running.reasons == [reason]
        await running.wait_until(lambda: running.connections.count == 0)


async def test_client_that_rejects_the_server_certificate_is_distinguished(
    pki: Pki, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Pki.create(tmp_path_factory.mktemp("other"))
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(_handshake, running.port, other.context())  # asyncio's client sends no alert
        await running.wait_until(lambda: bool(running.refused))
        assert running.reasons == ["handshake_refused_by_client"]


def _handshake(port: int, context: ssl.SSLContext) -> None:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        context.wrap_socket(plain, server_hostname="localhost").close()


async def test_old_connection_ends_after_its_current_request(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context, ConnectionLimits(age_max_seconds=0)) as running:
        assert await post(running.port, pki.context(pki.client())) == (200, "hello")
        assert running.kept == [False]


async def test_aborting_cuts_handshakes_and_live_connections(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=pki.context(pki.client()))
        assert (await exchange(reader, writer)).endswith(b"hello")
        silent_reader, silent = await asyncio.open_connection("127.0.0.1", running.port)
        await running.wait_until(lambda: running.connections.count == 2)
        running.connections.abort()
        await running.connections.wait_empty()
        assert await _rest(silent_reader) == b""
        writer.close()
        silent.close()


async def test_unavailable_address_is_a_user_error() -> None:
    async with loopback(hello, None) as running:
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{running.port}"):
            await running.listener.start("127.0.0.1", running.port)
        assert await post(running.port, None) == (200, "hello")


async def test_address_of_another_host_is_a_user_error() -> None:
    async with loopback(hello, None) as running:
        with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1:0"):  # RFC 5737: for documentation
            await running.listener.start("192.0.2.1", 0)


async def test_alpn_offers_http_1_1(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    client = pki.context(pki.client())
    client.set_alpn_protocols(["h2", "http/1.1"])
    async with loopback(hello, lambda: context) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=client)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()
        await writer.wait_closed()
