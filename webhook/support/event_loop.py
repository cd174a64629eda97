"""Event loop of Podgate's processes: uvloop, with workarounds for a double close and a false error report."""

import socket
from typing import Any

import uvloop

_GIVEN_UP = "the handler is closed"
"""uvloop's error for writing to a connection that it has closed itself."""


class EventLoop(uvloop.Loop):
    """Event loop that detaches a given socket after a failed connection, as asyncio's own loops do.

    aiohttp's client passes in sockets. If the peer resets a connection before the first bytes of the TLS handshake are
    written, uvloop 0.23 closes the descriptor, and the socket object closes the same number again when it is collected.
    By then the number may belong to a caller's connection or to a listener, which would be closed.
    """

    async def create_connection(self, *arguments: Any, sock: socket.socket | None = None, **options: Any) -> Any:
        try:
            return await super().create_connection(*arguments, sock=sock, **options)
        except BaseException:
            if sock is not None:
                sock.detach()  # libuv owns the descriptor, and closes it
            raise

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore the error of a TLS connection that was closed during its handshake.

        uvloop 0.23 closes the transport, then writes the handshake's last bytes to it, and reports an error with a
        stack trace. A shutdown while the client connects would log it.
        """
        error = context.get("exception")
        if isinstance(error, RuntimeError) and _GIVEN_UP in str(error) and "SSL" in context.get("message", ""):
            return
        super().call_exception_handler(context)
