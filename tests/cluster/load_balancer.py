"""TCP load balancer on loopback with stable ports in front of changing servers, like a Service."""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tests.cluster.background_loop import BackgroundLoop
from tests.cluster.tcp_relay import probe_ready, relay, reset

_POLL_SECONDS, _POLL_SECONDS_READY = 0.2, 0.5
"""Between two polls of the targets, and while all of them are ready: a poll takes 2 ms of CPU."""


@dataclass(frozen=True)
class Target:
    """A server: its HOST:PORT, and a readiness URL (http, loopback)."""

    address: str
    ready_url: str | None = None

    async def is_ready(self) -> bool:
        return self.ready_url is None or await probe_ready(self.ready_url)


class LoadBalancer:
    """One port. New connections go to the ready targets in turn; existing ones stay."""

    def __init__(self, loop: BackgroundLoop) -> None:
        self.port = 0
        self.accepted = 0
        """Number of connections so far."""
        self._loop = loop
        self._targets: tuple[Target, ...] = ()
        self._ready: tuple[Target, ...] = ()
        self._turn = itertools.count()
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._poller: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def targets(self) -> tuple[Target, ...]:
        return self._targets

    @targets.setter
    def targets(self, targets: Sequence[Target | str]) -> None:
        """Send new connections to these targets."""
        self._targets = tuple(Target(target) if isinstance(target, str) else target for target in targets)
        self._loop.run(self._check_readiness())

    @property
    def ready(self) -> tuple[Target, ...]:
        """The targets that get new connections."""
        return self._ready

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    def cut(self) -> None:
        """Reset all open connections, as a network failure does; new ones are accepted."""
        self._loop.run(self._cut())

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._poller = asyncio.create_task(self._poll())

    async def close(self) -> None:
        assert self._server is not None
        assert self._poller is not None
        self._server.close()
        self._poller.cancel()
        await self._cut()

    async def _cut(self) -> None:
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self) -> None:
        while True:
            await self._check_readiness()
            await asyncio.sleep(_POLL_SECONDS_READY if self._ready == self._targets else _POLL_SECONDS)

    async def _check_readiness(self) -> None:
        targets = self._targets
        answers = await asyncio.gather(*(target.is_ready() for target in targets))
        if targets == self._targets:
            self._ready = tuple(
                target for target, is_target_ready in zip(targets, answers, strict=True) if is_target_ready
            )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._forward(reader, writer)
                return
            reset(writer)  # the other side failed, or `cut` was called
        finally:
            self._open.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = self._ready
        if not ready:
            raise ConnectionRefusedError("no target is ready")
        await relay(reader, writer, ready[next(self._turn) % len(ready)].address)


class LoadBalancers:
    """All load balancers of a control plane, on their own event loop, so that tests may block."""

    def __init__(self) -> None:
        self._loop = BackgroundLoop("load_balancers")
        self._load_balancers: list[LoadBalancer] = []

    def open(self) -> LoadBalancer:
        """Return a new load balancer on its own port, without targets."""
        load_balancer = LoadBalancer(self._loop)
        self._loop.run(load_balancer.open())
        self._load_balancers.append(load_balancer)
        return load_balancer

    def close(self) -> None:
        for load_balancer in self._load_balancers:
            self._loop.run(load_balancer.close())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
