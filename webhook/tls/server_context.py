"""The server's TLS context for event loops: a refused handshake keeps the alert that its client should be sent.

asyncio and uvloop close the connection of a failed handshake at once, and drop what TLS had written for it.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_READING_SECONDS = 1.0
"""How long a refused client is read on, so that it gets to read its alert."""
_READS_MAX = 64
SPARES_MAX = 64
_READ_BYTES = 64 * 1024
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _ServerTls(ssl.SSLObject):
    """One connection's side of TLS."""

    written: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Go on with the handshake; an ssl.SSLError that ends it has the bytes to be sent still as `unsent`."""
        try:
            super().do_handshake()
        except _WAITS:
            raise
        except ssl.SSLError as error:
            error.unsent = self.written.read()  # type: ignore[attr-defined]  # see `unsent`
            raise

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: FBT001, FBT002  ssl's signature
        """Return the client's certificate in DER; as a dict it is empty.

        Event loops ask every connection for the dict, which nobody reads. Where a name in it is not UTF-8, Python
        raises what they do not expect.
        """
        return super().getpeercert(binary_form=True) if binary_form else {}


class ServerContext(ssl.SSLContext):
    """A context whose connections are `_ServerTls`."""

    sslobject_class = _ServerTls

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *rest: Any, **options: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *rest, **options)
        made.written = outgoing  # type: ignore[attr-defined]  # it is of our class
        return made


def unsent(error: BaseException) -> bytes:
    """Return what a failed handshake wrote last, the alert; empty where it wrote nothing."""
    return getattr(error, "unsent", b"")


class SpareSockets:
    """Second handles of sockets, for `send_alert`: the event loop closes the first one when a handshake fails.

    Only so many at one time: a flood of handshakes must not take all the descriptors that a process may have.
    """

    def __init__(self) -> None:
        self._held = 0

    @contextmanager
    def of(self, accepted: socket.socket) -> Iterator[socket.socket | None]:
        """Give one for as long as the block lasts; None where there is none to be had, and so no alert."""
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
    """Tell a client why it is refused, and read on for a moment: closing over what it sends would take that away."""
    loop = asyncio.get_running_loop()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_READING_SECONDS):
            await loop.sock_sendall(spare, alert)
            spare.shutdown(socket.SHUT_WR)
            for _ in range(_READS_MAX):
                if not await loop.sock_recv(spare, _READ_BYTES):
                    break
