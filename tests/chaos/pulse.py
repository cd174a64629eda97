"""The pulse of each node of a Cluster: when it was slow for the harness, too, an answer to a server may be late."""

import socket

from tests.chaos.history import BEGAN, ENDED, SLOW_NODE
from tests.chaos.redis_follower import RedisFollower

SLOW_SECONDS = 0.5
_PERIOD_SECONDS = 0.25
_PING = b"PING\r\n"


class Pulse(RedisFollower):
    """Sends a PING to one Redis again and again while it is entered. While none is answered is a fault: SLOW_NODE."""

    _FAULT = SLOW_NODE

    def _follow(self) -> None:
        is_slow = False
        while not self._is_over.wait(_PERIOD_SECONDS):
            if self._answers() == is_slow:
                self._tell(ENDED if is_slow else BEGAN)
                is_slow = not is_slow

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._server.port), timeout=SLOW_SECONDS) as connection:
                connection.sendall(_PING)
                return bool(connection.recv(1))
        except OSError:
            return False
