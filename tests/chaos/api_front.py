"""The address of all API servers: like the load balancer before a control plane, it knows which are ready."""

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from tests.cluster.background_loop import BackgroundLoop

_POLL_SECONDS, _PROBE_SECONDS = 0.5, 2.0


class ApiFront:
    """Knows which API servers answer. `choose` is for links: a ready one, in turn, and then the others."""

    def __init__(self, loop: BackgroundLoop, list_ports: Callable[[], Sequence[int]]) -> None:
        self._loop = loop
        self._list_ports = list_ports
        self._unready: frozenset[int] = frozenset()
        self._turn = itertools.count()
        self._polling: Future[None] | None = None

    def choose(self) -> Sequence[str]:
        turn, ports = next(self._turn), self._list_ports()
        in_turn = [ports[(turn + place) % len(ports)] for place in range(len(ports))]
        return [f"127.0.0.1:{port}" for port in sorted(in_turn, key=lambda port: port in self._unready)]

    def watch(self, authority: Path) -> None:
        """Probe the API servers, whose certificates this CA has signed, from now on."""
        self.close()
        self._polling = self._loop.start(self._poll(ssl.create_default_context(cafile=authority)))

    def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    async def _poll(self, context: ssl.SSLContext) -> None:
        while True:
            ports = self._list_ports()
            answers = await asyncio.gather(*(_is_ready(port, context) for port in ports))
            self._unready = frozenset(port for port, is_ready in zip(ports, answers, strict=True) if not is_ready)
            await asyncio.sleep(_POLL_SECONDS)


async def _is_ready(port: int, context: ssl.SSLContext) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return b" 200 " in await reader.readline()
            finally:
                writer.transport.abort()
    return False
