"""The server's event loop: uvloop's, kept from closing a descriptor twice."""

import socket
from typing import Any

import uvloop


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
