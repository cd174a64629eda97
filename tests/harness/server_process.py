"""A real `podgate serve` process, and calls to it as the API server makes them."""

import asyncio
import io
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from certs.authority import KeyPair
from tests.harness.fork_server import ForkedProcess, fork_server
from tests.harness.identity import IDENTITIES, Pki, Signer, jwks
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import (
    Ask,
    apply_patch,
    build_admission_review,
    prepare_for_mutate,
    prepare_for_validate,
)
from webhook.core.admission.decision import Half

TREE = Path(__file__).parents[2]
"""The checkout of these tests."""

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  failureMode: Closed
  match: {namespaces: [payments]}
  placement:
    schedulerName: podgate-scheduler
    topology: [{level: Zone, in: [zone-b, zone-g]}]
  quota: {windows: [{window: 1h, hard: {pods: 3}}]}
  breaker: {quotaExceeded: {count: 3, within: 1m, countBy: Request}, openFor: 30s}
- name: free
  match: {namespaces: [free]}
"""


@dataclass
class Files:
    """The files of a server."""

    folder: Path
    pki: Pki
    signer: Signer
    other: Signer
    caller: KeyPair
    keys_from: tuple[str, ...] = ()
    """Where the server gets its keys, unless from a file."""
    policy: Path = field(init=False)

    def __post_init__(self) -> None:
        self.policy = self.folder / "policy.yaml"

    @classmethod
    def create(cls, folder: Path, policy: str = POLICY) -> "Files":
        pki = Pki.create(folder)
        signer, other = Signer(), Signer(issuer="prober", subject="prober-1")
        files = cls(folder, pki, signer, other, pki.client())
        (folder / "jwks.json").write_text(jwks(signer, other))
        (folder / "identities.yaml").write_text(IDENTITIES)
        files.policy.write_text(policy)
        return files

    def arguments(self) -> list[str]:
        paths = self.pki.paths
        return [
            *("--policy", str(self.policy)),
            *("--tls-cert", str(paths.certificate), "--tls-key", str(paths.key), "--client-ca", str(paths.client_ca)),
            *(self.keys_from or ("--jwks", str(self.folder / "jwks.json"))),
            *("--identities", str(self.folder / "identities.yaml")),
            *("--listen", "127.0.0.1:0", "--plain-listen", "127.0.0.1:0"),
        ]


class Process:
    """A process whose end a coroutine waits for."""

    def __init__(self, started: subprocess.Popen[bytes] | ForkedProcess) -> None:
        self._started = started
        self.pid = started.pid
        self.terminate, self.kill, self.send_signal = started.terminate, started.kill, started.send_signal

    @property
    def returncode(self) -> int | None:
        return self._started.poll()

    async def wait(self) -> int:
        while (code := self._started.poll()) is None:  # noqa: ASYNC110 - it ends in another process
            await asyncio.sleep(0.01)
        return code


@dataclass
class Serving:
    """A running server as a test sees it."""

    files: Files
    process: Process
    admission: str
    plain: str
    session: aiohttp.ClientSession
    context: ssl.SSLContext
    log: Path
    ends_with: int = 0
    """The expected exit code."""
    decisions: str = ""
    """The decision port; none in a former release."""

    async def kill(self) -> None:
        """Kill the process, as in a crash."""
        self.ends_with = -signal.SIGKILL
        self.process.kill()
        await self.process.wait()

    async def post(
        self,
        path: str,
        body: bytes | None = None,
        *,
        token: str | None = None,
        context: ssl.SSLContext | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, str]:
        """Make one call; by default with a good certificate and token, and without a token if it is empty."""
        bearer = self.files.signer.token() if token is None else token
        sent = {"Content-Type": "application/json", **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
        async with self.session.post(
            f"https://{self.admission}{path}",
            data=io.BytesIO(body or b""),  # aiohttp warns of large bytes
            ssl=context or self.context,
            headers={**sent, **(headers or {})},
        ) as response:
            return response.status, await response.text()

    async def ask(self, half: Half, ask: Ask, pod: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(build_admission_review(ask, pod, half)).encode()
        status, text = await self.post(f"/{half}?timeout=10s", body)
        assert status == 200, text
        response: dict[str, Any] = json.loads(text)["response"]
        return response

    async def create(self, ask: Ask) -> dict[str, Any]:
        """Send a new Pod through both halves; return the validating half's response with the stored Pod as `pod`."""
        before = prepare_for_mutate(ask)
        after = prepare_for_validate(ask, apply_patch(before, await self.ask(Half.MUTATE, ask, before)))
        return {**await self.ask(Half.VALIDATE, ask, after), "pod": after}

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"http://{self.plain}{path}") as response:
            return response.status, await response.text()

    async def metric(self, line: str) -> float:
        """Return a series' value; 0 if it does not exist yet."""
        _, text = await self.get("/metrics")
        found = [row.removeprefix(line).strip() for row in text.splitlines() if row.startswith(f"{line} ")]
        return float(found[0]) if found else 0.0

    async def wait_for_metric(self, line: str, at_least: float) -> None:
        """Wait until a series has reached a value: the server has no other signal for it."""
        async with asyncio.timeout(HANG_SECONDS):
            while await self.metric(line) < at_least:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.05)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def pod(name: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{name}-", "labels": {"app": name}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "i"}], **spec},
    }


def start(arguments: list[str], log: Path, tree: Path | None = None, python: str = sys.executable) -> Process:
    """Start `python ARGUMENTS` with a file as its output.

    It is forked from an interpreter that has imported Podgate, unless there is a `tree`, from which it runs alone.
    """
    with log.open("wb") as stream:
        if tree is None:
            return Process(fork_server().start(arguments, log=stream.fileno(), folder=Path.cwd()))
        return Process(subprocess.Popen([python, *arguments], stdout=stream, stderr=stream, cwd=tree))


@asynccontextmanager
async def run_server(
    files: Files, *arguments: str, tree: Path | None = None, python: str = sys.executable
) -> AsyncIterator[Serving]:
    """Run a server until the block ends, then end it as Kubernetes would; its log must hold no traceback.

    `tree` and `python` are those of `start`.
    """
    log = files.folder / f"server-{len(list(files.folder.glob('server-*.log')))}.log"
    ports = () if tree is not None else ("--decision-listen", "127.0.0.1:0")
    process = start(["-m", "webhook", "serve", *files.arguments(), *ports, *arguments], log, tree, python)
    async with aiohttp.ClientSession() as session:
        try:
            listening = await wait_until_listening(process, log)
            context = files.pki.context(files.caller)
            addresses = listening["admission"][0], listening["plain"][0]
            server = Serving(files, process, *addresses, session, context, log)
            server.decisions = next(iter(listening.get("decisions", ())), "")
            yield server
        finally:
            await session.close()
            if process.returncode is None:
                process.terminate()
            code = await asyncio.wait_for(process.wait(), HANG_SECONDS)
    assert code == server.ends_with, log.read_text()
    assert "Traceback" not in log.read_text()


async def wait_until_listening(process: Process, log: Path) -> dict[str, Any]:
    """Return the addresses that a server logs once it listens."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            text = await asyncio.to_thread(log.read_text)
            for line in text.splitlines():
                if '"listening"' in line:
                    listening: dict[str, Any] = json.loads(line)
                    return listening
            assert process.returncode is None, text
            await asyncio.sleep(0.02)
