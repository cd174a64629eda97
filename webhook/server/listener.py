"""TCP listener for TLS connections, with limits and timeouts.

aiohttp's own sites limit none of these. asyncio reserves 256 KiB for each TLS connection, so the number of connections
is limited before the handshake.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

from webhook.errors import UserError
from webhook.server.connection import Connection
from webhook.server.connection_table import ConnectionTable
from webhook.server.handshake_throttle import classify_failure
from webhook.tls.server_context import SpareSockets, find_alert, send_alert

_BACKLOG = 512
_UNREAD_BYTES = 64 * 1024
"""Kernel receive buffer of a connection (6 MiB by default). Under TLS also the most that one read returns, held three
times over."""
_NO_SUCH_FAMILY = (
    errno.EAFNOSUPPORT,
    errno.EADDRNOTAVAIL,
)  # a name may resolve to addresses that the host does not have
_PAUSE_SECONDS = 0.1
"""Pause after accept failed for lack of descriptors or memory, since it would fail again at once."""
_CLOSE_NOTIFY_SECONDS = 1.0
"""Longest wait for the close_notify of a client whose connection is closed (asyncio's default is 30 s)."""


class Listener:
    """Accepts connections for `protocol_factory` (HttpProtocols) and keeps them in `connections`.

    `on_refused(reason, detail)` is called for each connection that is ended because of its client's behaviour.
    """

    def __init__(
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        connections: ConnectionTable,
        on_refused: Callable[[str, str], None],
    ) -> None:
        self._protocol_factory = protocol_factory
        self._connections = connections
        self._limits = connections.limits
        self._throttle = connections.throttle
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._spares = SpareSockets()
        self._next_handshake: asyncio.TimerHandle | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each listening socket; the actual port if 0 was requested."""
        return [listening.getsockname()[:2] for listening in self._sockets]

    async def start(self, host: str, port: int) -> None:
        """Listen on every address of `host`; an empty host means all interfaces. UserError if that fails."""
        opened: list[socket.socket] = []
        missing: OSError | None = None
        try:
            found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, address in dict.fromkeys(found):
                try:
                    opened.append(_open_socket(family, address))
                except OSError as error:
                    if error.errno not in _NO_SUCH_FAMILY:
                        raise
                    missing = error
            if missing is not None and not opened:
                raise missing
        except OSError as error:
            _close(opened)
            raise UserError(
                f"cannot listen on {host or '*'}:{port}: {error.strerror}", "choose another address or port"
            ) from None
        self._sockets += opened
        self._accepting += [self._loop.create_task(self._accept(listening)) for listening in opened]

    async def close(self) -> None:
        """Stop accepting. Accepted connections, and their handshakes, continue."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        _close(self._sockets)

    # Methods of ConnectionObserver.

    def on_opened(self, connection: Connection) -> None:
        self._connections.establish(connection)
        if connection.context is None:
            self.on_first_byte(connection)
        else:
            connection.wait_for_data(self._limits.silence_seconds)

    def on_first_byte(self, connection: Connection) -> None:
        seconds = self._limits.header_timeout_seconds
        connection.start_timer(seconds, "header_timeout", f"no request header within {seconds:g} s")

    def on_unread(self, connection: Connection) -> None:
        seconds = self._limits.unread_timeout_seconds
        connection.start_timer(seconds, "answer_unread", f"responses were left unread for {seconds:g} s")

    def on_timed_out(self, connection: Connection, reason: str, detail: str) -> None:
        self._on_refused(reason, detail)
        connection.end()

    def on_closed(self, connection: Connection) -> None:
        self._connections.remove(connection)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, (address, *_) = await self._loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue  # the client has closed it already
            except OSError as error:
                self._on_refused("accept", str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._make_room():
                self._add(accepted, address)
            else:
                accepted.close()
            # Accepting a waiting connection does not yield to the loop: a flood would starve everything else.
            await asyncio.sleep(0)

    def _make_room(self) -> bool:
        """Return whether one more connection may be kept, after displacing another one if necessary."""
        if not self._connections.is_full:
            return True
        self._on_refused("connection_limit", f"{self._limits.connections_max} connections are open")
        return self._connections.displace()

    def _add(self, accepted: socket.socket, address: str) -> None:
        connection = Connection(self._protocol_factory(), self, accepted, address)
        self._connections.add(connection)
        if not self._connections.is_tls:
            self._set_up(connection)
            return
        displaced = self._throttle.enqueue(connection, address)
        if displaced is not None:
            self._on_refused("connection_limit", "too many connections wait for their handshakes")
            displaced.end()
        if self._next_handshake is None:
            self._start_handshakes()

    def _start_handshakes(self) -> None:
        """Start the handshakes that the throttle allows, and schedule the next one."""
        while (connection := self._throttle.dequeue()) is not None:
            self._set_up(connection)
        seconds = self._throttle.compute_wait_seconds()
        self._next_handshake = None if seconds is None else self._loop.call_later(seconds, self._start_handshakes)

    def _set_up(self, connection: Connection) -> None:
        connection.context = self._connections.read_context()
        connection.handshake = self._loop.create_task(self._perform_handshake(connection))
        connection.handshake.add_done_callback(lambda task: self._on_handshake_done(connection, task))

    async def _perform_handshake(self, connection: Connection) -> bool:
        """Set up a connection; return whether that succeeded, and report why not."""
        is_tls = connection.context is not None
        with self._spares.duplicate(connection.accepted) as spare:
            try:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    connection.accepted,
                    ssl=connection.context,
                    ssl_handshake_timeout=self._limits.handshake_timeout_seconds if is_tls else None,
                    ssl_shutdown_timeout=_CLOSE_NOTIFY_SECONDS if is_tls else None,
                )
            except OSError as error:  # ssl.SSLError is one
                self._on_refused(classify_failure(error), str(error) or type(error).__name__)
                if spare is not None and (alert := find_alert(error)):
                    await send_alert(spare, alert)
                return False
        return True

    def _on_handshake_done(self, connection: Connection, task: "asyncio.Task[bool]") -> None:
        """Close a connection that was not set up."""
        connection.handshake = None
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._loop.call_exception_handler({"message": "a connection was not set up", "exception": error})
            elif task.result():
                return
        connection.accepted.close()
        self.on_closed(connection)


def _close(sockets: list[socket.socket]) -> None:
    for listening in sockets:
        listening.close()
    sockets.clear()


def _open_socket(family: int, address: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)  # accepted sockets inherit it
        listening.setblocking(False)  # noqa: FBT003  the standard library's signature
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
