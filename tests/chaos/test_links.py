"""Links: what each trouble does to a connection."""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

from tests.chaos.links import Link, Trouble, replace_ports
from tests.cluster.background_loop import BackgroundLoop
from tests.timeouts import HANG_SECONDS


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("links")
    yield loop
    loop.close()


@pytest.fixture
def received() -> list[bytes]:
    """Return what the server has received."""
    return []


@pytest.fixture
def link(loop: BackgroundLoop, received: list[bytes]) -> Iterator[Link]:
    """Open a link to a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(100):
            received.append(chunk)
            writer.write(chunk)
        writer.close()

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(echo, "127.0.0.1", 0)

    server = loop.run(serve())
    link = Link("one>other", loop)
    link.open(lambda: [f"127.0.0.1:{server.sockets[0].getsockname()[1]}"])
    yield link
    link.close()
    loop.run(_close(server))


async def _close(server: asyncio.Server) -> None:
    server.close()


def connect(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.ports[0]), timeout=HANG_SECONDS)


def ask(connection: socket.socket, text: bytes, timeout_seconds: float = HANG_SECONDS) -> bytes:
    connection.sendall(text)
    connection.settimeout(timeout_seconds)
    return connection.recv(100)


def test_without_trouble_everything_passes(link: Link) -> None:
    with connect(link) as connection:
        assert ask(connection, b"hello") == b"hello"


@pytest.mark.parametrize(("trouble", "arrives"), [("holds_requests", False), ("holds_answers", True)])
def test_one_direction_is_held_until_the_link_heals(
    link: Link, received: list[bytes], trouble: str, *, arrives: bool
) -> None:
    with connect(link) as connection:
        ask(connection, b"before")
        link.disturb(Trouble(**{trouble: True}))
        with pytest.raises(TimeoutError):
            ask(connection, b"held", 0.5)
        deadline = time.monotonic() + HANG_SECONDS
        while arrives and b"held" not in received and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (b"held" in received) == arrives
        link.heal()
        connection.settimeout(HANG_SECONDS)
        assert connection.recv(100) == b"held"


def test_connections_that_are_half_open_are_silent_while_new_ones_work(link: Link) -> None:
    with connect(link) as former:
        ask(former, b"before")
        link.forget_connections()
        with pytest.raises(TimeoutError):
            ask(former, b"lost", 0.5)
        with connect(link) as latter:
            assert ask(latter, b"hello") == b"hello"
        link.heal()
        former.settimeout(HANG_SECONDS)
        with pytest.raises(ConnectionResetError):
            former.recv(100)


def test_a_link_that_refuses_resets_old_and_new_connections(link: Link) -> None:
    with connect(link) as former:
        ask(former, b"before")
        link.disturb(Trouble(refuses=True))
        with pytest.raises(ConnectionResetError):
            former.recv(100)
        with pytest.raises(ConnectionResetError), connect(link) as latter:  # connecting fails if the reset is there
            ask(latter, b"hello")
        link.heal()
        with connect(link) as latter:
            assert ask(latter, b"hello") == b"hello"


def test_ports_in_the_answers_of_a_sentinel_lead_through_the_link() -> None:
    answer = b"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n12345\r\n+switch-master podgate-store 127.0.0.1 12345 127.0.0.1 12346"
    expected = b"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n40001\r\n+switch-master podgate-store 127.0.0.1 40001 127.0.0.1 40002"
    assert replace_ports(answer, {12345: 40001, 12346: 40002}) == expected
    assert replace_ports(b"127.0.0.1:123456 12345", {12345: 40001}) == b"127.0.0.1:123456 12345"


def test_ports_in_the_answers_of_a_node_of_a_cluster_lead_through_the_link() -> None:
    """Slots and lengths that look like a port are not of an address."""
    answer = b"*3\r\n:10923\r\n:12345\r\n*4\r\n$9\r\n127.0.0.1\r\n:12345\r\n$12345\r\n"
    expected = b"*3\r\n:10923\r\n:12345\r\n*4\r\n$9\r\n127.0.0.1\r\n:40001\r\n$12345\r\n"
    assert replace_ports(answer, {12345: 40001}) == expected
    assert replace_ports(b"-MOVED 12345 127.0.0.1:12345\r\n", {12345: 40001}) == b"-MOVED 12345 127.0.0.1:40001\r\n"
