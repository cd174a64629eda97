"""The event loop of our processes: uvloop's, kept from closing a descriptor twice and from crying wolf."""

import socket
from typing import Any

import uvloop

_GIVEN_UP = "the handler is closed"
"""What uvloop says of writing to a connection that it has closed itself."""


class EventLoop(uvloop.Loop):
    """Lets go of a socket that it was given and could not connect, as asyncio's own loops do.

    aiohttp's client gives sockets. Where the other side resets one before the TLS handshake's first bytes are written,
    uvloop 0.23 closes the descriptor and leaves its number to the socket object, which closes it again when it is
    collected. By then the number may belong to a caller's connection, or to a listener: both were seen to end.
    """

    async def create_connection(self, *arguments: Any, sock: socket.socket | None = None, **options: Any) -> Any:
        try:
            return await super().create_connection(*arguments, sock=sock, **options)
        except BaseException:
            if sock is not None:
                sock.detach()  # the descriptor is libuv's, which has closed it or will
            raise

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Say nothing of a TLS connection that was given up while its handshake went on.

        uvloop 0.23 closes its transport, then writes the handshake's last bytes to it, and tells that as a defect with
        a stack. Whoever stops while the client connects would have that in the log.
        """
        error = context.get("exception")
        if isinstance(error, RuntimeError) and _GIVEN_UP in str(error) and "SSL" in context.get("message", ""):
            return
        super().call_exception_handler(context)
