"""Console of the demo: that of its server, with Pods that are created while somebody looks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from webhook.commands.clients import status_client
from webhook.console.interface.act import Hands
from webhook.console.interface.console_policies import ConsolePolicies
from webhook.console.interface.document_reader import ConsolePorts, ReadablePort
from webhook.console.local_server import RunningConsole, run_console
from webhook.demo.environment import RunningServer

_PERIOD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Port:
    """A port of the demo's server."""

    name: str

    async def get(self, path: str) -> bytes:
        return await asyncio.to_thread(status_client.get, self.name, path)


@dataclass(frozen=True, slots=True)
class ConsoleInputs:
    """What lets the demo's console act, and judge drafts by the decisions of its server."""

    hands: Hands | None = None
    open_policies: Callable[[ReadablePort], ConsolePolicies] | None = None


@asynccontextmanager
async def show_console(
    running: RunningServer, inputs: ConsoleInputs, create_pod: Callable[[], Awaitable[Any]]
) -> AsyncIterator[RunningConsole]:
    """Run the console until the block ends. Its breaker moves: a Pod is created each second while a browser is open."""
    plain, decisions = _Port(f"http://{running.plain}"), _Port(f"http://{running.decisions}")
    policies = inputs.open_policies(decisions) if inputs.open_policies is not None else None
    async with run_console(ConsolePorts(plain, decisions, plain, policies=policies), inputs.hands) as console:
        busy = asyncio.create_task(_keep_busy(console, create_pod))
        try:
            yield console
        finally:
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)


async def _keep_busy(console: RunningConsole, create_pod: Callable[[], Awaitable[Any]]) -> None:
    while True:
        await asyncio.sleep(_PERIOD_SECONDS)
        if console.live.clients:
            try:
                await create_pod()
            except aiohttp.ClientError:  # the server is ending
                return
