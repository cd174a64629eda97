"""The load balancer: new connections go to ready servers in turn; existing ones stay until they are cut."""

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cluster.load_balancer import LoadBalancer, LoadBalancers, Target
from tests.timeouts import HANG_SECONDS


class Handler(socketserver.StreamRequestHandler):
    """Sends the server's answer for each line, and `over` for the end of stream."""

    def handle(self) -> None:
        try:
            while self.rfile.readline().strip():
                self.wfile.write(self.server.answer)
            self.wfile.write(b"over\n")
        except ConnectionError:
            return


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = False
    answer = b""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


@contextmanager
def run_answering_server(answer: str) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.answer = f"{answer}\n".encode()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Client:
    """A client's connection through a load balancer."""

    def __init__(self, load_balancer: LoadBalancer, stack: ExitStack) -> None:
        self.socket = stack.enter_context(
            socket.create_connection(("127.0.0.1", load_balancer.port), timeout=HANG_SECONDS)
        )
        self._file = stack.enter_context(self.socket.makefile("rb"))

    def send(self) -> str:
        self.socket.sendall(b"?\n")
        return self.read()

    def read(self) -> str:
        return self._file.readline().decode().strip()


@pytest.fixture
def load_balancer() -> Iterator[LoadBalancer]:
    with LoadBalancers() as load_balancers:
        yield load_balancers.open()


@pytest.fixture
def connect(load_balancer: LoadBalancer) -> Iterator[Callable[[], Client]]:
    with ExitStack() as stack:
        yield lambda: Client(load_balancer, stack)


@pytest.fixture
def first_server() -> Iterator[Server]:
    with run_answering_server("one") as server:
        yield server


@pytest.fixture
def second_server() -> Iterator[Server]:
    with run_answering_server("two") as server:
        yield server


Connect = Callable[[], Client]


def test_connections_alternate_between_targets(
    first_server: Server, second_server: Server, load_balancer: LoadBalancer, connect: Connect
) -> None:
    load_balancer.targets = [first_server.address, second_server.address]
    assert sorted(connect().send() for _ in range(4)) == ["one", "one", "two", "two"]


def test_unready_server_gets_no_new_connection_and_keeps_the_open_ones(
    first_server: Server, second_server: Server, load_balancer: LoadBalancer, connect: Connect
) -> None:
    with run_answering_server("HTTP/1.1 200 OK") as probe:
        first_target = Target(first_server.address, f"http://{probe.address}/readyz")
        load_balancer.targets = [first_target]
        existing = connect()
        assert existing.send() == "one"
        load_balancer.targets = [first_target, second_server.address]
        probe.answer = b"HTTP/1.1 503 Service Unavailable\n"
        deadline = time.monotonic() + HANG_SECONDS
        while load_balancer.ready != (Target(second_server.address),):
            assert time.monotonic() < deadline, load_balancer.ready
            time.sleep(0.01)
        assert [connect().send() for _ in range(3)] == ["two"] * 3
        assert existing.send() == "one"


def test_without_a_ready_server_a_connection_ends_at_once(connect: Connect) -> None:
    with pytest.raises(ConnectionError):
        assert connect().send() == "no answer"


def test_cut_closes_open_connections_and_accepts_new_ones(
    first_server: Server, load_balancer: LoadBalancer, connect: Connect
) -> None:
    load_balancer.targets = [first_server.address]
    existing = connect()
    assert existing.send() == "one"
    load_balancer.cut()
    assert load_balancer.connections == 0
    with pytest.raises(ConnectionError):
        existing.read()
    assert connect().send() == "one"


def test_half_close_is_forwarded_and_the_other_direction_stays_open(
    first_server: Server, load_balancer: LoadBalancer, connect: Connect
) -> None:
    load_balancer.targets = [first_server.address]
    client = connect()
    assert client.send() == "one"
    client.socket.shutdown(socket.SHUT_WR)
    assert client.read() == "over"
