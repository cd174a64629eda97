"""Table of a listener's open connections: their number, age and trust; and the guard of those that calls use.

When the table is full, a new connection displaces an untrusted one: first one from an untrusted address that waits for
its handshake, then any from such an address, then the oldest untrusted one. A trusted connection is never displaced.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from webhook.authentication.peer_recheck import PeerRecheck
from webhook.server.connection import Connection
from webhook.server.handshake_throttle import HandshakeThrottle
from webhook.tls.server_context import ServerContext


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one listener's connections."""

    connections_max: int = 512
    handshake_timeout_seconds: float = 5.0
    header_timeout_seconds: float = 10.0
    """From the first byte of the first request to the end of its header."""
    age_max_seconds: float = 600.0
    """Connections outlive the revocation of their credentials: an older one is closed after its current request."""
    unread_timeout_seconds: float = 30.0
    """How long writing may be paused because the client does not read."""
    silence_seconds: float = 120.0
    """From the end of the handshake to the first byte. An API server opens more connections than it needs at once, and
    does not retry a call whose connection the server closes at that moment: the client should be the one to close."""


class ConnectionTable:
    """Connections from accept to close. `context` returns the TLS context of new connections; None means plain HTTP."""

    def __init__(self, limits: ConnectionLimits, context: Callable[[], ssl.SSLContext] | None) -> None:
        self.limits = limits
        self.is_tls = context is not None
        self._context = context
        self._loop = asyncio.get_running_loop()
        self.is_draining = False
        self.throttle: HandshakeThrottle[Connection] = HandshakeThrottle(self._loop.time, self._read_handshake_seconds)
        self._untrusted: dict[Connection, None] = {}  # in order of arrival, those before their handshake included
        self._trusted: dict[Connection, None] = {}
        self._established: dict[asyncio.BaseTransport | None, Connection] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def count(self) -> int:
        """Number of connections, those before or in their handshake included."""
        return len(self._untrusted) + len(self._trusted)

    @property
    def is_full(self) -> bool:
        return self.count >= self.limits.connections_max

    def read_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the next connection."""
        return self._context() if self._context is not None else None

    def _read_handshake_seconds(self) -> float:
        context = self.read_context()
        return context.handshake_seconds if isinstance(context, ServerContext) else 0.0

    def add(self, connection: Connection) -> None:
        """Add a connection that has just been accepted."""
        self._untrusted[connection] = None
        self._empty.clear()

    def establish(self, connection: Connection) -> None:
        """Note that a connection has its transport: its handshake is over."""
        assert connection.transport is not None  # noqa: S101  it has just been made
        self._established[connection.transport] = connection

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        if connection.transport is not None:
            self._established.pop(connection.transport, None)
        self._untrusted.pop(connection, None)
        self._trusted.pop(connection, None)
        self.throttle.cancel(connection)
        if not self.count:
            self._empty.set()

    def displace(self) -> bool:
        """End one untrusted connection to make room; False if all are trusted."""
        displaced = self._choose_displaced()
        if displaced is None:
            return False
        del self._untrusted[displaced]
        displaced.end()
        return True

    def _choose_displaced(self) -> Connection | None:
        """Return the connection to displace; those after their handshake, and from trusted addresses, come last."""
        waiting = self.throttle.find_oldest_untrusted()
        if waiting is not None:
            return waiting
        from_untrusted = (
            connection for connection in self._untrusted if not self.throttle.is_trusted(connection.address)
        )
        return next(from_untrusted, None) or next(iter(self._untrusted), None)

    def record_request(self, transport: asyncio.BaseTransport | None) -> bool:
        """Record that a request header is complete; return False if the connection should be closed after its response.

        It should be closed if it is old, if its TLS context has been replaced, or during a drain.
        """
        connection = self._established.get(transport)
        if connection is None:
            return False
        if connection.timer is not None:
            connection.stop_timer()
        if self.is_draining or self._loop.time() >= connection.since_seconds + self.limits.age_max_seconds:
            return False
        return self._context is None or connection.context is self._context()

    def mark_trusted(self, transport: asyncio.BaseTransport | None) -> None:
        """Never displace this connection from now on, and prefer its address in the handshake queue."""
        connection = self._established.get(transport)
        if connection in self._untrusted:
            del self._untrusted[connection]
            self._trusted[connection] = None
            self.throttle.mark_trusted(connection.address)

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""
        await self._empty.wait()

    def abort(self) -> None:
        """Abort all connections that are left."""
        for connection in (*self._untrusted, *self._trusted):
            connection.end()


class ConnectionGuard:
    """Checks and records the connection of each call."""

    def __init__(self, connections: ConnectionTable, peers: PeerRecheck) -> None:
        self.connections = connections
        self.trust = peers.trust
        """Returns the current client CAs: a new object after each change."""
        self.check_peer = peers.check
        """Checks a Peer against the current CAs; AuthenticationError if it is no longer trusted."""
        self.record_request = connections.record_request
        """Records that a request header is complete; returns False if the response should close the connection."""
        self.mark_trusted = connections.mark_trusted
        """Marks a connection over which an authenticated caller has sent a whole request."""

    @property
    def is_draining(self) -> bool:
        return self.connections.is_draining

    def drain(self) -> None:
        """From now on, every response closes its connection."""
        self.connections.is_draining = True
