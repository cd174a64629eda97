import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.server.identity import Pki
from tests.server.loopback import Loopback, loopback, post
from webhook.errors import UserError
from webhook.listener import Limits
from webhook.tls import server_context

LOOPS = ("uvloop", "asyncio")
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="hello")


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Make one request; return the beginning of the answer, nothing where the connection was cut instead."""
    try:
        writer.write(REQUEST)
        answer = await reader.read(1000)
        return answer if answer.endswith(b"hello") or not answer else answer + await reader.readexactly(5)
    except OSError:
        return b""


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.create(tmp_path)


@pytest.fixture(params=["TLS", "plain"])
async def served(request: pytest.FixtureRequest, pki: Pki) -> AsyncIterator[tuple[Loopback, ssl.SSLContext | None]]:
    context = server_context(pki.paths) if request.param == "TLS" else None
    async with loopback(hello, (lambda: context) if context else None) as running:
        yield running, pki.context(pki.client()) if context else None


async def test_requests_are_served_and_connections_forgotten(
    served: tuple[Loopback, ssl.SSLContext | None],
) -> None:
    running, context = served
    for _ in range(3):
        assert await post(running.port, context) == (200, "hello")
    await running.until(lambda: running.listener.connections == 0)
    assert running.refused == []
    assert running.kept == [True] * 3


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
    idle = asyncio.create_task(running.listener.wait_idle())
    assert not idle.done()
    writer.close()
    await idle
    assert running.listener.connections == 0


async def test_a_connection_without_a_request_is_cut(pki: Pki) -> None:
    context = server_context(pki.paths)
    async with loopback(hello, lambda: context, Limits(header_timeout_seconds=0.05)) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=pki.context(pki.client()))
        writer.write(b"GET / HTTP/1.1\r\nX-Drip: ")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)):
            await reader.readexactly(1)
        writer.close()
        await running.until(lambda: running.listener.connections == 0)
        assert running.reasons == ["header_timeout"]


async def test_a_connection_that_has_made_a_request_may_rest(pki: Pki) -> None:
    context = server_context(pki.paths)
    async with loopback(hello, lambda: context, Limits(header_timeout_seconds=0.3)) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=pki.context(pki.client()))
        assert (await exchange(reader, writer)).endswith(b"hello")
        (tracked,) = running.listener._live.values()
        assert tracked.watchdog.cancelled()
        writer.close()
        await writer.wait_closed()


async def test_a_stalled_handshake_is_cut_and_delays_nobody(pki: Pki) -> None:
    context = server_context(pki.paths)
    async with loopback(hello, lambda: context, Limits(handshake_timeout_seconds=0.2)) as running:
        stalled = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(5)]
        assert await post(running.port, pki.context(pki.client())) == (200, "hello")
        for reader, writer in stalled:
            assert await _rest(reader) == b""
            writer.close()
        await running.until(lambda: running.listener.connections == 0)
        assert running.reasons == ["handshake_timeout"] * 5


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_the_newcomer_over_the_cap_is_closed_and_there_is_room_again_later(pki: Pki) -> None:
    context = server_context(pki.paths)
    client = pki.context(pki.client())
    async with loopback(hello, lambda: context, Limits(connections_max=3)) as running:
        opened = [await asyncio.open_connection("127.0.0.1", running.port, ssl=client) for _ in range(3)]
        for connection in opened:
            assert (await exchange(*connection)).endswith(b"hello")
        assert running.listener.connections == 3
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        assert await _rest(reader) == b""
        writer.close()
        assert running.reasons == ["connection_limit"]
        assert (await exchange(*opened[0])).endswith(b"hello")
        opened[0][1].close()
        await running.until(lambda: running.listener.connections == 2)
        assert await post(running.port, client) == (200, "hello")
        for _, one in opened:
            one.close()


async def test_handshakes_under_way_count_towards_the_cap(pki: Pki) -> None:
    context = server_context(pki.paths)
    async with loopback(hello, lambda: context, Limits(connections_max=2)) as running:
        writers = [(await asyncio.open_connection("127.0.0.1", running.port))[1] for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        assert await _rest(reader) == b""
        for one in (*writers, writer):
            one.close()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (REQUEST, "handshake_protocol"),
        (b"\x16\x03\x01\x00\x05hello", "handshake_failed"),
        (b"", "handshake_cut"),
    ],
    ids=["plain HTTP", "garbage", "nothing"],
)
async def test_a_failed_handshake_is_told_and_leaves_nothing_behind(pki: Pki, sent: bytes, reason: str) -> None:
    context = server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            client.sendall(sent)
        await running.until(lambda: bool(running.refused))
        assert running.reasons == [reason]
        await running.until(lambda: running.listener.connections == 0)


async def test_a_client_that_does_not_trust_us_is_told_apart(
    pki: Pki, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Pki.create(tmp_path_factory.mktemp("other"))
    context = server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(_shake_hands, running.port, other.context())  # asyncio's client sends no alert
        await running.until(lambda: bool(running.refused))
        assert running.reasons == ["handshake_refused_by_client"]


def _shake_hands(port: int, context: ssl.SSLContext) -> None:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        context.wrap_socket(plain, server_hostname="localhost").close()


async def test_an_old_connection_is_to_end_after_its_present_request(pki: Pki) -> None:
    context = server_context(pki.paths)
    async with loopback(hello, lambda: context, Limits(age_max_seconds=0)) as running:
        assert await post(running.port, pki.context(pki.client())) == (200, "hello")
        assert running.kept == [False]


async def test_aborting_cuts_handshakes_and_live_connections(pki: Pki) -> None:
    context = server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=pki.context(pki.client()))
        assert (await exchange(reader, writer)).endswith(b"hello")
        silent_reader, silent = await asyncio.open_connection("127.0.0.1", running.port)
        await running.until(lambda: running.listener.connections == 2)
        running.listener.abort()
        await running.listener.wait_idle()
        assert await _rest(silent_reader) == b""
        writer.close()
        silent.close()


async def test_an_address_that_cannot_be_had_is_a_users_error() -> None:
    async with loopback(hello, None) as running:
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{running.port}"):
            await running.listener.start("127.0.0.1", running.port)
        assert await post(running.port, None) == (200, "hello")


async def test_an_address_of_another_host_is_a_users_error() -> None:
    async with loopback(hello, None) as running:
        with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1:0"):  # RFC 5737: nobody's
            await running.listener.start("192.0.2.1", 0)


async def test_alpn_offers_http_1_1(pki: Pki) -> None:
    context = server_context(pki.paths)
    client = pki.context(pki.client())
    client.set_alpn_protocols(["h2", "http/1.1"])
    async with loopback(hello, lambda: context) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=client)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()
        await writer.wait_closed()
