"""ServerContext: TLS context for event loops that keeps the alert of a failed handshake, so that it can be sent.

asyncio and uvloop close the connection of a failed handshake at once, and drop the alert that TLS wrote for it.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_READING_SECONDS = 1.0
"""Time to keep reading from a rejected client, so that it receives its alert."""
_READS_MAX = 64
SPARES_MAX = 64
_READ_BYTES = 64 * 1024
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _ServerTls(ssl.SSLObject):
    """The server side of one TLS connection."""

    written: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Continue the handshake; an ssl.SSLError that ends it has the bytes still to be sent as `unsent`."""
        try:
            super().do_handshake()
        except _WAITS:
            raise
        except ssl.SSLError as error:
            error.unsent = self.written.read()  # type: ignore[attr-defined]  # see `unsent`
            raise

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: FBT001, FBT002  ssl's signature
        """Return the client's certificate in DER; the dict form is always empty.

        Event loops request the dict for every connection, and it is not used. For a name that is not UTF-8, Python
        would raise an error that they do not expect.
        """
        return super().getpeercert(binary_form=True) if binary_form else {}


class ServerContext(ssl.SSLContext):
    """TLS context whose connections are `_ServerTls` objects."""

    sslobject_class = _ServerTls

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *rest: Any, **options: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *rest, **options)
        made.written = outgoing  # type: ignore[attr-defined]  # it is a _ServerTls
        return made


def find_alert(error: BaseException) -> bytes:
    """Return the alert of a failed handshake; empty if there is none."""
    return getattr(error, "unsent", b"")


class SpareSockets:
    """Duplicated descriptors of sockets, for `send_alert`: the event loop closes the original after a failed handshake.

    Their number is limited: a flood of handshakes must not use up the process's file descriptors.
    """

    def __init__(self) -> None:
        self._held = 0

    @contextmanager
    def duplicate(self, accepted: socket.socket) -> Iterator[socket.socket | None]:
        """Yield a duplicate, closed at the end of the block; None if none is available: no alert is sent then."""
        if self._held >= SPARES_MAX:
            yield None
            return
        try:
            spare = accepted.dup()
        except OSError:
            yield None
            return
        self._held += 1
        try:
            yield spare
        finally:
            self._held -= 1
            spare.close()


async def send_alert(spare: socket.socket, alert: bytes) -> None:
    """Send an alert, and read on for a moment: closing with unread data would reset the connection and lose it."""
    loop = asyncio.get_running_loop()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_READING_SECONDS):
            await loop.sock_sendall(spare, alert)
            spare.shutdown(socket.SHUT_WR)
            for _ in range(_READS_MAX):
                if not await loop.sock_recv(spare, _READ_BYTES):
                    break
