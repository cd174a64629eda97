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
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    theirs.close()
    arrived = select.poll()
    arrived.register(ours, select.POLLHUP)
    assert arrived.poll(10_000)
    return ours


def taking(number: int) -> socket.socket:
    """Return a socket of this descriptor, which must be free."""
    tried = [socket.socket()]
    while tried[-1].fileno() < number:
        tried.append(socket.socket())
    assert tried[-1].fileno() == number
    for one in tried[:-1]:
        one.close()
    return tried[-1]


async def shake_hands(over: socket.socket) -> None:
    loop, context = asyncio.get_running_loop(), ssl.create_default_context()
    with pytest.raises(ConnectionError):
        await loop.create_connection(asyncio.Protocol, sock=over, ssl=context, server_hostname="localhost")


def test_a_connection_that_is_reset_at_once_takes_no_other_one_with_it() -> None:
    async def another_gets_its_number() -> None:
        given = reset_socket()
        number = given.fileno()
        await shake_hands(given)
        await asyncio.sleep(0)  # its end takes a turn of the loop
        with taking(number) as another:
            del given
            gc.collect()
            assert another.getsockname()

    uvloop.run(another_gets_its_number(), loop_factory=EventLoop)


def test_a_connection_that_is_made_keeps_its_socket() -> None:
    async def talk() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(100))
            writer.close()

        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            given = socket.create_connection(server.sockets[0].getsockname())
            reader, writer = await asyncio.open_connection(sock=given)
            writer.write(b"hello")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
        return answer

    assert uvloop.run(talk(), loop_factory=EventLoop) == b"hello"


@contextmanager
def shaking_hands(pki: Pki) -> Iterator[int]:
    """Shake hands with the first that comes to this port of loopback."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.paths.certificate, pki.paths.key)

    def serve() -> None:
        theirs, _ = listening.accept()
        with theirs, suppress(OSError):  # who gives up closes the connection
            context.wrap_socket(theirs, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving_one = threading.Thread(target=serve)
        serving_one.start()
        yield listening.getsockname()[1]
        serving_one.join()


def test_who_gives_up_while_it_shakes_hands_is_no_defect_to_report(tmp_path: Path) -> None:
    pki, told = Pki.create(tmp_path), list[dict[str, Any]]()

    class Made(asyncio.Protocol):
        is_made = False

        def connection_made(self, _: asyncio.BaseTransport) -> None:
            Made.is_made = True

    async def give_up(port: int) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        given = socket.create_connection(("127.0.0.1", port))
        # By hand, for a task would be told before there is anything to give up.
        connecting = loop.create_connection(Made, sock=given, ssl=pki.context(), server_hostname="localhost")
        connecting.send(None)
        async with asyncio.timeout(HANG_SECONDS):
            while not Made.is_made:  # noqa: ASYNC110  the very next turn of the loop is wanted
                await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            connecting.throw(asyncio.CancelledError())
        for _ in range(3):
            await asyncio.sleep(0)

    with shaking_hands(pki) as port:
        uvloop.run(give_up(port), loop_factory=EventLoop)
    assert told == []


def test_a_defect_is_reported() -> None:
    told: list[dict[str, Any]] = []

    async def fail() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        loop.call_soon(lambda: dict[str, int]()["a defect of ours"])
        await asyncio.sleep(0)

    uvloop.run(fail(), loop_factory=EventLoop)
    assert [repr(context["exception"]) for context in told] == ["KeyError('a defect of ours')"]


def test_the_server_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    async def serve(_: Any) -> None:
        found.append(asyncio.get_running_loop())

    monkeypatch.setattr(server_process, "_serve", serve)
    server_process.run(None)  # type: ignore[arg-type]  # nobody looks at the settings
    assert isinstance(found[0], EventLoop)
