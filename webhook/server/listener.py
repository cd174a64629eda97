"""The accept loop: bounds how many connections there are, how long a handshake and a first request header may take.

aiohttp's own sites bound none of these. asyncio sets 256 KiB aside for each TLS connection, so the bound is kept before
the handshake. Where it is reached, the newcomer takes the place of one that has not earned its own: of a stranger in
line, else of the stranger that came first, else of whoever did. However many stall, who does not finds room.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webhook.errors import UserError
from webhook.server.connection import Connection
from webhook.server.handshake_errors import handshake_failure
from webhook.server.handshake_throttle import HandshakeThrottle
from webhook.tls.server_context import SpareSockets, send_alert, unsent

_BACKLOG = 512
_UNREAD_BYTES = 64 * 1024
"""Of a connection, in the kernel, where 6 MiB are usual. Under TLS it is also what one read may bring, held thrice."""
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # a name may have addresses that the host has not
_PAUSE_SECONDS = 0.1
"""Without descriptors or memory for another connection, accept would fail again at once."""
_CLOSE_NOTIFY_SECONDS = 1.0
"""How long a closed connection waits for its client to agree (30 s by default: a slot that nobody needs any more)."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one listener grants."""

    connections_max: int = 512
    handshake_timeout_seconds: float = 5.0
    header_timeout_seconds: float = 10.0
    """From the first byte of the first request to the end of its header."""
    age_max_seconds: float = 600.0
    """Connections outlive the revocation of what they were opened with: an old one ends after its present request."""
    unread_timeout_seconds: float = 30.0
    """How long a client may leave so much unread that we must wait before we go on."""
    silence_seconds: float = 120.0
    """From the end of the handshake to that first byte. An API server opens more connections than it needs at once,
    and does not repeat the call that it makes on one just when we close it: it should be the one to close them."""


class Listener:
    """Accepts connections for `protocol_factory` (an aiohttp `web.Server`). `context` None means plain.

    `on_refused(reason, detail)` is told of each connection that is ended for what it does, or does not do.
    """

    def __init__(
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        context: Callable[[], ssl.SSLContext] | None,
        limits: ConnectionLimits,
        on_refused: Callable[[str, str], None],
    ) -> None:
        self._protocol_factory = protocol_factory
        self._context = context
        self._limits = limits
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._newcomers: dict[Connection, None] = {}  # in the order of their coming, from the first byte on
        self._earned: dict[Connection, None] = {}
        self._live: dict[asyncio.BaseTransport, Connection] = {}  # those of both whose handshake is over
        self._spares = SpareSockets()
        self._pace: HandshakeThrottle[Connection] = HandshakeThrottle(self._loop.time)
        self._next_turn: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def connections(self) -> int:
        """How many there are, with those whose handshake is under way, or still to come."""
        return len(self._newcomers) + len(self._earned)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens: host and port, the real one where 0 was asked for."""
        return [listening.getsockname()[:2] for listening in self._sockets]

    async def start(self, host: str, port: int) -> None:
        """Listen on every address of `host`; an empty one means all interfaces."""
        opened: list[socket.socket] = []
        missing: OSError | None = None
        try:
            found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, address in dict.fromkeys(found):
                try:
                    opened.append(_listening(family, address))
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

    def seen(self, transport: asyncio.BaseTransport | None) -> bool:
        """Say that a request header is complete; False if its answer should end the connection.

        It should where the connection is old, or was opened under certificates or client CAs that have been replaced.
        """
        connection = self._live.get(transport) if transport is not None else None
        if connection is None:
            return False
        connection.came()
        is_young = self._loop.time() - connection.since_seconds < self._limits.age_max_seconds
        return is_young and connection.context is self._context_now()

    def earn(self, transport: asyncio.BaseTransport | None) -> None:
        """Let a connection keep its place, whoever else comes: it was worth its handshake."""
        connection = self._live.get(transport) if transport is not None else None
        if connection in self._newcomers:
            del self._newcomers[connection]
            self._earned[connection] = None
            self._pace.worth(connection.address)

    def _context_now(self) -> ssl.SSLContext | None:
        return self._context() if self._context is not None else None

    async def close(self) -> None:
        """Stop accepting. Live connections, and handshakes of those that were accepted, go on."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        _close(self._sockets)

    async def wait_idle(self) -> None:
        """Wait until no connection is left."""
        await self._idle.wait()

    def abort(self) -> None:
        """Cut what is left."""
        for connection in (*self._newcomers, *self._earned):
            connection.end()

    # What its connections say, as their Keeper.

    def opened(self, connection: Connection) -> None:
        assert connection.transport is not None  # noqa: S101  it has just been made
        self._live[connection.transport] = connection
        if connection.context is None:
            self.begun(connection)
        else:
            connection.rest(self._limits.silence_seconds)

    def begun(self, connection: Connection) -> None:
        seconds = self._limits.header_timeout_seconds
        connection.await_for(seconds, "header_timeout", f"no request header within {seconds:g} s")

    def unread(self, connection: Connection) -> None:
        seconds = self._limits.unread_timeout_seconds
        connection.await_for(seconds, "answer_unread", f"answers were left unread for {seconds:g} s")

    def late(self, connection: Connection, reason: str, detail: str) -> None:
        self._on_refused(reason, detail)
        connection.end()

    def closed(self, connection: Connection) -> None:
        if connection.transport is not None:
            self._live.pop(connection.transport, None)
        self._newcomers.pop(connection, None)
        self._earned.pop(connection, None)
        self._pace.leave(connection)
        if not self.connections:
            self._idle.set()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, (address, *_) = await self._loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue  # gone before we came to it
            except OSError as error:
                self._on_refused("accept", str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._has_room():
                self._welcome(accepted, address)
            else:
                accepted.close()
            # A waiting connection is accepted without a turn of the loop: a flood would starve everything else.
            await asyncio.sleep(0)

    def _has_room(self) -> bool:
        """Return whether there is room for one more, made at the cost of a newcomer if need be."""
        if self.connections < self._limits.connections_max:
            return True
        self._on_refused("connection_limit", f"{self._limits.connections_max} connections are open")
        displaced = self._least()
        if displaced is None:
            return False
        del self._newcomers[displaced]
        displaced.end()
        return True

    def _least(self) -> Connection | None:
        """Return the newcomer to be missed least: what a handshake was spent on, and good addresses, go last."""
        stranger = self._pace.first_stranger()
        if stranger is None:
            strangers = (one for one in self._newcomers if not self._pace.is_good(one.address))
            stranger = next(strangers, None)
        return stranger or next(iter(self._newcomers), None)

    def _welcome(self, accepted: socket.socket, address: str) -> None:
        connection = Connection(self._protocol_factory(), self, accepted, address)
        self._newcomers[connection] = None
        self._idle.clear()
        if self._context is None:
            self._set_up(connection)
            return
        displaced = self._pace.come(connection, address)
        if displaced is not None:
            self._on_refused("connection_limit", "too many connections wait for their handshakes")
            displaced.end()
        if self._next_turn is None:
            self._give_turns()

    def _give_turns(self) -> None:
        """Begin the handshakes that may begin, and look again when the next one may."""
        while (connection := self._pace.take()) is not None:
            self._set_up(connection)
        seconds = self._pace.seconds_to_wait()
        self._next_turn = None if seconds is None else self._loop.call_later(seconds, self._give_turns)

    def _set_up(self, connection: Connection) -> None:
        connection.context = self._context_now()
        connection.shaking = self._loop.create_task(self._shake_hands(connection))
        connection.shaking.add_done_callback(lambda task: self._shaken(connection, task))

    async def _shake_hands(self, connection: Connection) -> bool:
        """Set a connection up; return whether it could be, and say why not."""
        is_tls = connection.context is not None
        with self._spares.of(connection.accepted) as spare:
            try:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    connection.accepted,
                    ssl=connection.context,
                    ssl_handshake_timeout=self._limits.handshake_timeout_seconds if is_tls else None,
                    ssl_shutdown_timeout=_CLOSE_NOTIFY_SECONDS if is_tls else None,
                )
            except OSError as error:  # ssl.SSLError is one
                self._on_refused(handshake_failure(error), str(error) or type(error).__name__)
                if spare is not None and (alert := unsent(error)):
                    await send_alert(spare, alert)
                return False
        return True

    def _shaken(self, connection: Connection, task: "asyncio.Task[bool]") -> None:
        """Let go of a connection that was not set up."""
        connection.shaking = None
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._loop.call_exception_handler({"message": "a connection was not set up", "exception": error})
            elif task.result():
                return
        connection.accepted.close()
        self.closed(connection)


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()
    sockets.clear()


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BYTES)  # for those that it accepts
        listening.setblocking(False)  # noqa: FBT003  the standard library's signature
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
