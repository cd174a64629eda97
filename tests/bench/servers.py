"""Compared servers: Podgate, Go webhooks, kopf, and aiohttp with a constant response; all on the core for servers."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench.cpu import SERVER_CORE, family, pin_to
from tests.bench.programs import GoPrograms
from tests.harness.server_process import TREE, Files, Serving, run_server
from tests.redis_servers import RedisServer

GCRA = Path(__file__).with_name("gcra.lua")
SERVER, REDIS = "server", "redis"
"""Groups of processes whose CPU time is measured."""
GO, GO_FULL, KOPF = "go", "go + JWT + Redis", "kopf"
OWN, OWN_MEMORY, OWN_TWO = "podgate, redis", "podgate, memory", "podgate, redis, 2 processes"
AIOHTTP, AIOHTTP_SERVER = "aiohttp Application", "aiohttp web.Server"
"""Names of the servers that others are compared with."""


@dataclass(frozen=True)
class Target:
    """A running server."""

    name: str
    address: str
    pid: int
    redis: RedisServer | None = None
    is_constant: bool = False
    """Its response is constant, so it serves only as a mutating webhook."""
    serving: Serving | None = None
    """Only of Podgate."""
    others: tuple["Target", ...] = ()
    """Further processes of the same server, on the same Redis."""

    @property
    def addresses(self) -> list[str]:
        return [self.address, *(other.address for other in self.others)]

    @property
    def processes(self) -> dict[str, list[int]]:
        """Return the processes whose CPU time is measured, by group."""
        pids = [pid for process in (self, *self.others) for pid in family(process.pid)]
        return {SERVER: pids, **({REDIS: [self.redis.pid]} if self.redis else {})}


@dataclass(frozen=True)
class Variant:
    """A configuration of Podgate."""

    name: str
    redis: RedisServer | None = None
    policy: str = ""
    """Instead of that of the files."""
    tree: Path | None = None
    """The checkout of another commit."""
    python: str = sys.executable
    core: int = SERVER_CORE


@asynccontextmanager
async def podgate(variant: Variant, files: Files, traces: str) -> AsyncIterator[Target]:
    """Run Podgate with default settings and traces; only the maximum age of connections is raised."""
    arguments = ["--max-connection-age", "1h", "--otlp-endpoint", traces]
    if variant.redis is not None:
        # On a busy machine a late response of Redis must not change the decision.
        arguments += ["--store", variant.redis.url, "--store-deadline", "10s"]
    if variant.policy:
        files = replace(files)
        files.policy = files.folder / f"policy-{len(list(files.folder.glob('policy-*.yaml')))}.yaml"
        files.policy.write_text(variant.policy)
    async with AsyncExitStack() as stack:
        with pin_to(variant.core):
            started = run_server(files, *arguments, tree=variant.tree or TREE, python=variant.python)
            running = await stack.enter_async_context(started)
        yield Target(variant.name, running.admission, running.process.pid, variant.redis, serving=running)


@asynccontextmanager
async def launch(
    name: str, *command: str | Path, redis: RedisServer | None = None, is_constant: bool = False
) -> AsyncIterator[Target]:
    """Run a server that prints its address when it is listening."""
    with pin_to(SERVER_CORE):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=TREE)
    assert process.stdout is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise SystemExit(f"error: {name} exited: see above")
        yield Target(name, address, process.pid, redis, is_constant)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def go_webhooks(programs: GoPrograms, files: Files, redis: RedisServer | None) -> AsyncIterator[list[Target]]:
    """Run the plain Go webhook, and with a Redis also the one with tokens and a quota."""
    folder = ("-certificates", files.folder)
    async with AsyncExitStack() as stack:
        targets = [await stack.enter_async_context(launch(GO, programs.gowebhook, *folder))]
        if redis is not None:
            command = (programs.gowebhook, *folder, "-jwt", files.folder / "jwks.json", "-redis", redis.url)
            full = launch(GO_FULL, *command, "-script", GCRA, redis=redis)
            targets.append(await stack.enter_async_context(full))
        yield targets


def empty_go(programs: GoPrograms, files: Files) -> AbstractAsyncContextManager[Target]:
    """Run a server so cheap that it shows the limit of the generator."""
    command = (programs.gowebhook, "-certificates", files.folder, "-empty")
    return launch("go, constant", *command, is_constant=True)


def controller_runtime(programs: GoPrograms, files: Files) -> AbstractAsyncContextManager[Target]:
    return launch("controller-runtime", programs.controllerruntime, "-certificates", files.folder)


def aiohttp_server(files: Files, *, low_level: bool) -> AbstractAsyncContextManager[Target]:
    command = (sys.executable, "-m", "tests.bench.baseline_server", files.folder)
    more = ("--low-level",) if low_level else ()
    return launch(AIOHTTP_SERVER if low_level else AIOHTTP, *command, *more, is_constant=True)


def kopf(python: Path, files: Files) -> AbstractAsyncContextManager[Target]:
    # -P: kopf must not import modules of this folder.
    return launch(KOPF, python, "-P", Path(__file__).with_name("kopf_server.py"), files.folder)
