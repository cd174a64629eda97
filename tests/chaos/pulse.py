"""The pulse of each node of a Cluster: when it was slow for the harness, too, an answer to a server may be late."""

import socket
import threading
from types import TracebackType
from typing import Self

from tests.chaos.history import BEGAN, ENDED
from tests.chaos.record import SLOW_NODE, Record
from tests.redis_servers import RedisServer

SLOW_SECONDS = 0.5
_PERIOD_SECONDS = 0.25
_PING = b"PING\r\n"


class Pulse:
    """Sends a PING to one Redis again and again while it is entered. While none is answered is a fault: SLOW_NODE."""

    def __init__(self, part: str, server: RedisServer, record: Record) -> None:
        self._part = part
        self._server = server
        self._record = record
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"pulse of {part}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _follow(self) -> None:
        is_slow = False
        while not self._is_over.wait(_PERIOD_SECONDS):
            if self._answers() == is_slow and not self._is_over.is_set():
                self._record.add_fault(0, SLOW_NODE, (self._part,), ENDED if is_slow else BEGAN)
                is_slow = not is_slow

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._server.port), timeout=SLOW_SECONDS) as connection:
                connection.sendall(_PING)
                return bool(connection.recv(1))
        except OSError:
            return False
