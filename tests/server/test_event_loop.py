import asyncio
import gc
import select
import socket
import ssl
import struct
from typing import Any

import pytest
import uvloop

from webhook.wiring import serving
from webhook.wiring.event_loop import EventLoop

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


def test_the_server_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    async def serve(_: Any) -> None:
        found.append(asyncio.get_running_loop())

    monkeypatch.setattr(serving, "_serve", serve)
    serving.run(None)  # type: ignore[arg-type]  # nobody looks at the settings
    assert isinstance(found[0], EventLoop)
