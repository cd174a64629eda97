"""The accept loop: bounds how many connections there are, how long a handshake and a first request header may take.

aiohttp's own sites bound none of these. asyncio sets 256 KiB aside for each TLS connection, so the bound is kept before
the handshake, and whoever comes over it is turned away at once.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webhook.errors import UserError
from webhook.handshake import handshake_failure

_BACKLOG = 512
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # a name may have addresses that the host has not
_PAUSE_SECONDS = 0.1
"""Without descriptors or memory for another connection, accept would fail again at once."""
_CLOSE_NOTIFY_SECONDS = 1.0
"""How long a closed connection waits for its client to agree (30 s by default: a slot that nobody needs any more)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one listener grants."""

    connections_max: int = 512
    handshake_timeout_seconds: float = 5.0
    header_timeout_seconds: float = 10.0
    """From the end of the handshake to the first complete request header."""
    age_max_seconds: float = 600.0
    """Connections outlive the revocation of what they were opened with: an old one ends after its present request."""
    newcomers_win: bool = False
    """At the cap, whether the oldest connection makes room, or the newcomer is turned away."""


class Listener:
    """Accepts connections for `protocol_factory` (an aiohttp `web.Server`). `context` None means plain.

    `on_refused(reason, detail)` is told of each connection that was turned away before its first request.
    """

    def __init__(
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        context: Callable[[], ssl.SSLContext] | None,
        limits: Limits,
        on_refused: Callable[[str, str], None],
    ) -> None:
        self._protocol_factory = protocol_factory
        self._context = context
        self._limits = limits
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._open: set[asyncio.Task[bool]] = set()  # one a connection: the task that set it up, done or not
        self._live: dict[asyncio.BaseTransport, _Tracked] = {}  # those of them whose handshake is over
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def connections(self) -> int:
        """How many there are, handshakes included."""
        return len(self._open)

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
        tracked = self._live.get(transport) if transport is not None else None
        if tracked is None:
            return False
        tracked.watchdog.cancel()
        is_young = self._loop.time() - tracked.since_seconds < self._limits.age_max_seconds
        return is_young and tracked.context is self._context_now()

    def _context_now(self) -> ssl.SSLContext | None:
        return self._context() if self._context is not None else None

    async def close(self) -> None:
        """Stop accepting. Live connections, and handshakes under way, go on."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        _close(self._sockets)

    async def wait_idle(self) -> None:
        """Wait until no connection is left."""
        await self._idle.wait()

    def abort(self) -> None:
        """Cut what is left."""
        for task in self._open:
            task.cancel()
        for tracked in list(self._live.values()):
            tracked.abort()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue  # gone before we came to it
            except OSError as error:
                self._on_refused("accept", str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            full = self.connections >= self._limits.connections_max
            if full:
                self._on_refused("connection_limit", f"{self._limits.connections_max} connections are open")
            if full and not (self._limits.newcomers_win and self._abort_oldest()):
                connection.close()
            else:
                task = self._loop.create_task(self._shake_hands(connection))
                self._open.add(task)
                self._idle.clear()
                task.add_done_callback(self._shaken)
            # A waiting connection is accepted without a turn of the loop: a flood would starve everything else.
            await asyncio.sleep(0)

    async def _shake_hands(self, connection: socket.socket) -> bool:
        """Return whether the connection was set up."""
        context = self._context_now()
        tracked = _Tracked(self._protocol_factory(), self, asyncio.current_task(), context)  # type: ignore[arg-type]  # a protocol by what it does
        try:
            await self._loop.connect_accepted_socket(
                lambda: tracked,
                connection,
                ssl=context,
                ssl_handshake_timeout=self._limits.handshake_timeout_seconds if context is not None else None,
                ssl_shutdown_timeout=_CLOSE_NOTIFY_SECONDS if context is not None else None,
            )
        except OSError as error:  # ssl.SSLError is one
            self._on_refused(handshake_failure(error), str(error) or type(error).__name__)
            return False
        return True

    def _shaken(self, task: "asyncio.Task[bool]") -> None:
        if task.cancelled():
            self._forget(task)
        elif (error := task.exception()) is not None:
            self._forget(task)
            self._loop.call_exception_handler({"message": "a connection was not set up", "exception": error})
        elif not task.result():
            self._forget(task)

    def opened(self, transport: asyncio.BaseTransport, tracked: "_Tracked") -> None:
        self._live[transport] = tracked
        tracked.watchdog = self._loop.call_later(self._limits.header_timeout_seconds, self._header_late, tracked)

    def closed(self, transport: asyncio.BaseTransport, tracked: "_Tracked") -> None:
        self._live.pop(transport, None)
        self._forget(tracked.task)

    def _abort_oldest(self) -> bool:
        """Return whether there was one."""
        oldest = next(iter(self._live), None)
        if oldest is None:
            return False
        self._live.pop(oldest).abort()
        return True

    def _forget(self, task: "asyncio.Task[bool]") -> None:
        self._open.discard(task)
        if not self._open:
            self._idle.set()

    def _header_late(self, tracked: "_Tracked") -> None:
        self._on_refused("header_timeout", f"no request header within {self._limits.header_timeout_seconds} s")
        tracked.abort()


class _Tracked(asyncio.BaseProtocol):
    """Stands before a protocol to see it come and go. Data goes straight to the inner one, without a step between."""

    watchdog: asyncio.TimerHandle

    def __init__(
        self, inner: asyncio.Protocol, listener: Listener, task: "asyncio.Task[bool]", context: ssl.SSLContext | None
    ) -> None:
        self.task = task
        self.context = context
        self._inner = inner
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self.since_seconds = asyncio.get_running_loop().time()
        self.data_received = inner.data_received
        self.eof_received = inner.eof_received
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]  # the inner one at once
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]  # the inner one at once

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # asyncio gives a Transport
        self._listener.opened(transport, self)
        self._inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.watchdog.cancel()
        if self._transport is not None:
            self._listener.closed(self._transport, self)
        self._inner.connection_lost(error)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


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
        listening.setblocking(False)  # noqa: FBT003  the standard library's signature
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
