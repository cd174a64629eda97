"""ServerContext: TLS context for event loops that keeps the alert of a failed handshake, so that it can be sent.

asyncio and uvloop close the connection of a failed handshake at once, and drop the alert that TLS wrote for it. It also
measures how long handshakes take: machines differ by much.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import thread_time
from typing import Any

_READING_SECONDS = 1.0
"""Time to keep reading from a rejected client, so that it receives its alert."""
_READS_MAX = 64
SPARES_MAX = 64
_READ_BYTES = 64 * 1024
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
_AVERAGED = 16
"""About so many handshakes count in the average."""


class _ServerTls(ssl.SSLObject):
    """The server side of one TLS connection."""

    written: ssl.MemoryBIO
    made_by: "ServerContext"
    spent_seconds = 0.0

    def do_handshake(self) -> None:
        """Continue the handshake; an ssl.SSLError that ends it has the bytes still to be sent as `unsent`."""
        started_seconds, is_over = thread_time(), True
        try:
            super().do_handshake()
        except _WAITS:
            is_over = False
            raise
        except ssl.SSLError as error:
            error.unsent = self.written.read()  # type: ignore[attr-defined]  # see `unsent`
            raise
        finally:
            self.spent_seconds += thread_time() - started_seconds
            if is_over:
                self.made_by.note_handshake(self.spent_seconds)

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: FBT001, FBT002  ssl's signature
        """Return the client's certificate in DER; the dict form is always empty.

        Event loops request the dict for every connection, and it is not used. For a name that is not UTF-8, Python
        would raise an error that they do not expect.
        """
        return super().getpeercert(binary_form=True) if binary_form else {}


class ServerContext(ssl.SSLContext):
    """TLS context whose connections are `_ServerTls` objects."""

    sslobject_class = _ServerTls
    handshake_seconds = 0.0
    """Processor time of a handshake, on average of the last ones; 0 before the first."""

    def note_handshake(self, seconds: float) -> None:
        """Note the time of a handshake that has succeeded or failed."""
        self.handshake_seconds += (seconds - self.handshake_seconds) / (_AVERAGED if self.handshake_seconds else 1)

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *rest: Any, **options: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *rest, **options)
        made.written, made.made_by = outgoing, self  # type: ignore[attr-defined]  # it is a _ServerTls
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
