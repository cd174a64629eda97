"""ResponseWriter: writes the responses of one turn of the event loop together.

Written one by one between reviews, each response would wake its client separately, and code of TLS and of the kernel
would displace that of the reviews from the processor's caches: docs/design/review-cost.md.
"""

import asyncio

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
