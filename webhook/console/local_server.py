"""Server of a console on loopback, for the one user who has started it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from webhook.console.access import is_loopback_host
from webhook.console.application import ConsoleParts, build_application
from webhook.console.interface.act import Hands
from webhook.console.interface.document_reader import ConsolePorts, DocumentReader
from webhook.console.listener import ConsoleListener
from webhook.console.live_updates import LiveUpdates
from webhook.console.local_access import TOKEN, LocalAccess
from webhook.errors import UserError

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RunningConsole:
    """A console that listens."""

    url: str
    access: LocalAccess
    live: LiveUpdates

    def issue_address(self) -> str:
        """Return an address that lets in one browser; the one before it no longer does."""
        return f"{self.url}/?{TOKEN}={self.access.issue_token()}"


@asynccontextmanager
async def run_console(ports: ConsolePorts, hands: Hands | None, port: int = 0) -> AsyncIterator[RunningConsole]:
    """Listen until the block ends, on a free port by default. UserError: the port is taken."""
    access, live = LocalAccess(time.monotonic), LiveUpdates()
    reader = DocumentReader(ports, lambda: time.time_ns() // 1000)
    application = build_application(ConsoleParts(reader, access, is_loopback_host, hands, live))
    listener = ConsoleListener(application)
    try:
        try:
            [(_, taken)] = await listener.start(_HOST, port)
        except OSError as error:
            raise UserError(f"--port: {_HOST}:{port}: {error.strerror}", "give another one, or none") from None
        access.cookie_name = f"podgate-console-{taken}"
        yield RunningConsole(f"http://{_HOST}:{taken}", access, live)
    finally:
        await listener.stop()
