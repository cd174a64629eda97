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
    """Answers each line with the server's answer, and the end with a last word."""

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
def answering(answer: str) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.answer = f"{answer}\n".encode()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Visitor:
    """A client's connection through a load balancer."""

    def __init__(self, load_balancer: LoadBalancer, stack: ExitStack) -> None:
        self.socket = stack.enter_context(
            socket.create_connection(("127.0.0.1", load_balancer.port), timeout=HANG_SECONDS)
        )
        self._file = stack.enter_context(self.socket.makefile("rb"))

    def ask(self) -> str:
        self.socket.sendall(b"?\n")
        return self.read()

    def read(self) -> str:
        return self._file.readline().decode().strip()


@pytest.fixture
def load_balancer() -> Iterator[LoadBalancer]:
    with LoadBalancers() as doors:
        yield doors.open()


@pytest.fixture
def visit(load_balancer: LoadBalancer) -> Iterator[Callable[[], Visitor]]:
    with ExitStack() as stack:
        yield lambda: Visitor(load_balancer, stack)


@pytest.fixture
def one() -> Iterator[Server]:
    with answering("one") as server:
        yield server


@pytest.fixture
def two() -> Iterator[Server]:
    with answering("two") as server:
        yield server


Visit = Callable[[], Visitor]


def test_connections_alternate_between_targets(
    one: Server, two: Server, load_balancer: LoadBalancer, visit: Visit
) -> None:
    load_balancer.targets = [one.address, two.address]
    assert sorted(visit().ask() for _ in range(4)) == ["one", "one", "two", "two"]


def test_unready_server_gets_no_new_connection_and_keeps_the_open_ones(
    one: Server, two: Server, load_balancer: LoadBalancer, visit: Visit
) -> None:
    with answering("HTTP/1.1 200 OK") as probe:
        first = Target(one.address, f"http://{probe.address}/readyz")
        load_balancer.targets = [first]
        old = visit()
        assert old.ask() == "one"
        load_balancer.targets = [first, two.address]
        probe.answer = b"HTTP/1.1 503 Service Unavailable\n"
        deadline = time.monotonic() + HANG_SECONDS
        while load_balancer.ready != (Target(two.address),):
            assert time.monotonic() < deadline, load_balancer.ready
            time.sleep(0.01)
        assert [visit().ask() for _ in range(3)] == ["two"] * 3
        assert old.ask() == "one"


def test_without_a_ready_server_a_connection_ends_at_once(visit: Visit) -> None:
    with pytest.raises(ConnectionError):
        assert visit().ask() == "nobody's answer"


def test_cut_closes_open_connections_and_accepts_new_ones(
    one: Server, load_balancer: LoadBalancer, visit: Visit
) -> None:
    load_balancer.targets = [one.address]
    old = visit()
    assert old.ask() == "one"
    load_balancer.cut()
    assert load_balancer.connections == 0
    with pytest.raises(ConnectionError):
        old.read()
    assert visit().ask() == "one"


def test_half_close_is_forwarded_and_the_other_direction_stays_open(
    one: Server, load_balancer: LoadBalancer, visit: Visit
) -> None:
    load_balancer.targets = [one.address]
    visitor = visit()
    assert visitor.ask() == "one"
    visitor.socket.shutdown(socket.SHUT_WR)
    assert visitor.read() == "over"
