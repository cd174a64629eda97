"""One accepted connection, from accept to close: its handshake, its protocol, its timer and its writes.

Written one by one between reviews, each response would wake its client separately, and code of TLS and of the kernel
would displace that of the reviews from the processor's caches: docs/design/review-cost.md.
"""

import asyncio
import socket
import ssl
from typing import Protocol

_WAITING_MAX = 16
"""Responses that wait for others. More would gain little, and the first client would wait longer."""


class ResponseWriter:
    """Writes responses to their connections, in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []
        self.busy = 0
        """Connections with a request that is not answered. A single response is written at once."""

    def add(self, transport: asyncio.Transport, response: bytes) -> None:
        """Write a response in this turn of the loop, before anything else is read from any connection."""
        waiting = self._waiting
        waiting.append((transport, response))
        if self.busy <= 1 or len(waiting) >= _WAITING_MAX:
            self.flush()
        elif len(waiting) == 1:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the responses now."""
        waiting, self._waiting = self._waiting, []
        for transport, response in waiting:
            if not transport.is_closing():  # its client has gone
                transport.write(response)


class ConnectionObserver(Protocol):
    """Observer of the events of a connection."""

    def on_opened(self, connection: "Connection") -> None: ...

    def on_first_byte(self, connection: "Connection") -> None:
        """Handle the first byte after `wait_for_data`."""
        ...

    def on_unread(self, connection: "Connection") -> None:
        """Handle a client that does not read what it is sent."""
        ...

    def on_timed_out(self, connection: "Connection", reason: str, detail: str) -> None:
        """Handle the end of the time given to `start_timer`."""
        ...

    def on_closed(self, connection: "Connection") -> None: ...


class Connection(asyncio.BaseProtocol):
    """Wraps a protocol to observe its connection. Data goes directly to the inner protocol, without a call between."""

    def __init__(
        self, inner: asyncio.Protocol, observer: ConnectionObserver, accepted: socket.socket, address: str
    ) -> None:
        self.accepted = accepted
        self.address = address
        self.context: ssl.SSLContext | None = None
        """The TLS context of its handshake."""
        self.transport: asyncio.Transport | None = None
        """None until the handshake is over."""
        self.handshake: asyncio.Task[bool] | None = None
        """None before the handshake and after it."""
        self.since_seconds = asyncio.get_running_loop().time()
        self._inner = inner
        self._observer = observer
        self.timer: asyncio.TimerHandle | None = None
        self.data_received = inner.data_received
        self.eof_received = inner.eof_received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # asyncio gives a Transport
        self._observer.on_opened(self)
        self._inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.stop_timer()
        self._observer.on_closed(self)
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._observer.on_unread(self)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self.stop_timer()
        self._inner.resume_writing()

    def wait_for_data(self, seconds: float) -> None:
        """Close the connection unless data arrives in time. Over TLS only: else loops may cache `data_received`."""
        assert self.transport is not None  # noqa: S101  it has been opened
        self.data_received = self._receive_first
        self.timer = asyncio.get_running_loop().call_later(seconds, self.transport.close)

    def _receive_first(self, data: bytes) -> None:
        self.data_received = self._inner.data_received
        self._observer.on_first_byte(self)
        self._inner.data_received(data)

    def start_timer(self, seconds: float, reason: str, detail: str) -> None:
        """Call the observer's `on_timed_out` unless `stop_timer` is called within this time."""
        self.stop_timer()
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(seconds, self._observer.on_timed_out, self, reason, detail)

    def stop_timer(self) -> None:
        """Stop the timer, if one is running."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def end(self) -> None:
        """Abort the connection, also before or during its handshake."""
        if self.transport is not None:
            self.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()
        else:
            self.accepted.close()
            self._observer.on_closed(self)
