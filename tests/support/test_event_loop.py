import asyncio
import gc
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.harness.identity import Pki
from tests.timeouts import HANG_SECONDS
from webhook.app import server as server_process
from webhook.support.event_loop import EventLoop

RESET = struct.pack("ii", 1, 0)


def reset_socket() -> socket.socket:
    """Return a connected socket that the other side has reset."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client_end = socket.create_connection(listening.getsockname())
        server_end, _ = listening.accept()
    server_end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    server_end.close()
    arrived = select.poll()
    arrived.register(client_end, select.POLLHUP)
    assert arrived.poll(10_000)
    return client_end


def socket_with_number(number: int) -> socket.socket:
    """Return a socket of this descriptor, which must be free."""
    tried = [socket.socket()]
    while tried[-1].fileno() < number:
        tried.append(socket.socket())
    assert tried[-1].fileno() == number
    for spare in tried[:-1]:
        spare.close()
    return tried[-1]


async def shake_hands(over: socket.socket) -> None:
    loop, context = asyncio.get_running_loop(), ssl.create_default_context()
    with pytest.raises(ConnectionError):
        await loop.create_connection(asyncio.Protocol, sock=over, ssl=context, server_hostname="localhost")


def test_failed_connection_closes_no_other_socket() -> None:
    async def reuse_number() -> None:
        sock = reset_socket()
        number = sock.fileno()
        await shake_hands(sock)
        await asyncio.sleep(0)  # closing takes a turn of the loop
        with socket_with_number(number) as another:
            del sock
            gc.collect()
            assert another.getsockname()

    uvloop.run(reuse_number(), loop_factory=EventLoop)


def test_successful_connection_keeps_its_socket() -> None:
    async def talk() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(100))
            writer.close()

        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            sock = socket.create_connection(server.sockets[0].getsockname())
            reader, writer = await asyncio.open_connection(sock=sock)
            writer.write(b"hello")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
        return answer

    assert uvloop.run(talk(), loop_factory=EventLoop) == b"hello"


@contextmanager
def tls_server(pki: Pki) -> Iterator[int]:
    """Complete the TLS handshake with the first client of this port of loopback."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.paths.certificate, pki.paths.key)

    def serve() -> None:
        server_end, _ = listening.accept()
        with server_end, suppress(OSError):  # a client that cancels closes the connection
            context.wrap_socket(server_end, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving_one = threading.Thread(target=serve)
        serving_one.start()
        yield listening.getsockname()[1]
        serving_one.join()


def test_cancelled_handshake_is_not_reported_as_a_defect(tmp_path: Path) -> None:
    pki, reported = Pki.create(tmp_path), list[dict[str, Any]]()

    class HandshakeProtocol(asyncio.Protocol):
        is_made = False

        def connection_made(self, _: asyncio.BaseTransport) -> None:
            HandshakeProtocol.is_made = True

    async def give_up(port: int) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        sock = socket.create_connection(("127.0.0.1", port))
        # Without a task, which would be cancelled before the handshake begins.
        connecting = loop.create_connection(
            HandshakeProtocol, sock=sock, ssl=pki.context(), server_hostname="localhost"
        )
        connecting.send(None)
        async with asyncio.timeout(HANG_SECONDS):
            while not HandshakeProtocol.is_made:  # noqa: ASYNC110  the very next turn of the loop is wanted
                await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            connecting.throw(asyncio.CancelledError())
        for _ in range(3):
            await asyncio.sleep(0)

    with tls_server(pki) as port:
        uvloop.run(give_up(port), loop_factory=EventLoop)
    assert reported == []


def test_defect_is_reported() -> None:
    reported: list[dict[str, Any]] = []

    async def fail() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        loop.call_soon(lambda: dict[str, int]()["a defect of ours"])
        await asyncio.sleep(0)

    uvloop.run(fail(), loop_factory=EventLoop)
    assert [repr(context["exception"]) for context in reported] == ["KeyError('a defect of ours')"]


def test_server_runs_on_this_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    async def serve(_: Any) -> None:
        found.append(asyncio.get_running_loop())

    monkeypatch.setattr(server_process, "_serve_until_stopped", serve)
    server_process.run(None)  # type: ignore[arg-type]  # the settings are not used
    assert isinstance(found[0], EventLoop)
