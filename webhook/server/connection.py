"""One connection as its listener knows it: from the moment it is accepted until it is gone."""

import asyncio
import socket
import ssl
from typing import Protocol


class ConnectionObserver(Protocol):
    """Whoever must know what becomes of a connection."""

    def opened(self, connection: "Connection") -> None: ...

    def begun(self, connection: "Connection") -> None:
        """Say that its first byte has come, where it was let rest."""
        ...

    def unread(self, connection: "Connection") -> None:
        """Say that its client does not read what it is sent."""
        ...

    def late(self, connection: "Connection", reason: str, detail: str) -> None:
        """Say that what was awaited has not come."""
        ...

    def closed(self, connection: "Connection") -> None: ...


class Connection(asyncio.BaseProtocol):
    """Stands before a protocol to see it come and go. Data goes straight to the inner one, without a step between."""

    def __init__(
        self, inner: asyncio.Protocol, keeper: ConnectionObserver, accepted: socket.socket, address: str
    ) -> None:
        self.accepted = accepted
        self.address = address
        self.context: ssl.SSLContext | None = None
        """That its handshake is made under."""
        self.transport: asyncio.Transport | None = None
        """None until its handshake is over."""
        self.shaking: asyncio.Task[bool] | None = None
        """None before its handshake and after it."""
        self.since_seconds = asyncio.get_running_loop().time()
        self._inner = inner
        self._keeper = keeper
        self._awaited: asyncio.TimerHandle | None = None
        self.data_received = inner.data_received
        self.eof_received = inner.eof_received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # asyncio gives a Transport
        self._keeper.opened(self)
        self._inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.came()
        self._keeper.closed(self)
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._keeper.unread(self)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self.came()
        self._inner.resume_writing()

    def rest(self, seconds: float) -> None:
        """Let it be silent for so long. Over TLS only: loops may ask a plain one just once where its data goes."""
        assert self.transport is not None  # noqa: S101  who has none has not been opened
        self.data_received = self._begin
        self._awaited = asyncio.get_running_loop().call_later(seconds, self.transport.close)

    def _begin(self, data: bytes) -> None:
        self.data_received = self._inner.data_received
        self._keeper.begun(self)
        self._inner.data_received(data)

    def await_for(self, seconds: float, reason: str, detail: str) -> None:
        """Tell the keeper unless `came` is called within this time."""
        self.came()
        loop = asyncio.get_running_loop()
        self._awaited = loop.call_later(seconds, self._keeper.late, self, reason, detail)

    def came(self) -> None:
        """Note that what was awaited has come."""
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None

    def end(self) -> None:
        """Cut it, in the middle of its handshake or before it too."""
        if self.transport is not None:
            self.transport.abort()
        elif self.shaking is not None:
            self.shaking.cancel()
        else:
            self.accepted.close()
            self._keeper.closed(self)
