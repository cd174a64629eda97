"""The servers of the light stage: real processes, which can be killed and started again."""

import asyncio
import json
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.harness.server_process import Files, Process, start, wait_until_listening
from tests.timeouts import HANG_SECONDS

CALL_SECONDS = 10.0
"""The timeout of a webhook."""


@dataclass
class LightServer:
    """One part: a process at a time, and a log for each."""

    part: str
    files: Files
    arguments: tuple[str, ...]
    session: aiohttp.ClientSession
    context: ssl.SSLContext
    process: Process | None = None
    is_up: bool = False
    addresses: dict[str, str] = field(default_factory=dict)
    logs: list[Path] = field(default_factory=list)

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        log = self.files.folder / f"{self.part}-{len(self.logs) + 1}.log"
        self.logs.append(log)
        ports = ("--decision-listen", "127.0.0.1:0")
        self.process = start(["-m", "webhook", "serve", *self.files.arguments(), *ports, *self.arguments], log)
        listening = await wait_until_listening(self.process, log)
        self.addresses = {name: listening[name][0] for name in ("admission", "plain", "decisions")}
        self.is_up = True

    async def kill(self) -> None:
        self.is_up = False
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        """End it as Kubernetes would."""
        self.is_up = False
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), HANG_SECONDS)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    @property
    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.logs)

    @property
    def replica(self) -> str:
        """The name that its records have: that of the machine and of the process."""
        return f"{socket.gethostname()}-{self.process.pid}" if self.process is not None else ""

    async def post(self, path: str, body: bytes, token: str, context: ssl.SSLContext | None = None) -> Any:
        """Make one call; OSError, aiohttp.ClientError or TimeoutError: there was no answer that counts."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        url = f"https://{self.addresses['admission']}{path}"
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        async with self.session.post(
            url, data=body, ssl=context or self.context, headers=headers, timeout=timeout
        ) as response:
            text = await response.text()
            if response.status != 200:
                raise OSError(f"HTTP {response.status}: {text[:200]}")
            return json.loads(text)

    async def get(self, of: str, path: str) -> str:
        """Return a page of the port `plain` or `decisions`."""
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        async with self.session.get(f"http://{self.addresses[of]}{path}", timeout=timeout) as response:
            text = await response.text()
            if response.status != 200:
                raise OSError(f"HTTP {response.status}: {text[:200]}")
            return text
