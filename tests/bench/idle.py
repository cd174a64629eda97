"""CPU time of servers that nobody calls, and of their Redis, by the number of services.

Each service has had a Pod, so that counters and breakers exist. The servers are measured at the same time.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from tests.bench.calls import Caller
from tests.bench.cpu import GENERATOR_CORE, cpu_seconds, pin_to
from tests.bench.lineup import Stage
from tests.bench.policies import POLICY, services_of
from tests.bench.servers import REDIS, SERVER, Target
from tests.bench.spread import Spread
from tests.bench.telemetry import trace_receiver
from tests.bench.traffic import Workload
from tests.harness.server_process import Files
from webhook.core.admission.decision import Half

SERVICES = (1, 1_000)
SECONDS = 10.0
"""Of one round."""
_SETTLE_SECONDS = 5.0
_CALLS_IN_FLIGHT_MAX = 50
AIM = "aim: 10 ms a second with 1000 services"


@dataclass
class Idle:
    """A server without calls, and its measured rounds."""

    target: Target
    services: int
    server_ms: list[float] = field(default_factory=list)
    redis_ms: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        of_redis = {"redis_ms": Spread.from_values(self.redis_ms)} if self.target.redis else {}
        return {"name": self.name, "server_ms": Spread.from_values(self.server_ms), **of_redis}

    @property
    def name(self) -> str:
        return f"{self.target.name}, {self.services} service{'s' if self.services > 1 else ''}"

    def __str__(self) -> str:
        of_redis = f"; Redis {Spread.from_values(self.redis_ms):.2f}" if self.target.redis else ""
        return f"  {self.name:36} server {Spread.from_values(self.server_ms):.2f}{of_redis}"

    def cpu_seconds(self) -> dict[str, float]:
        return {group: sum(map(cpu_seconds, pids)) for group, pids in self.target.processes.items()}


async def measure_rounds(
    files: Files, rounds: int, seconds: float = SECONDS, settle_seconds: float = _SETTLE_SECONDS
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    async with trace_receiver() as traces, AsyncExitStack() as stack:
        stage = Stage(stack, files, traces)
        servers = [
            Idle(await stage.podgate(redis=redis, policy=services_of(count)), count)
            for count in SERVICES
            for redis in (True, False)
        ]
        for server in servers:
            await _create_pods(files, server)
        await asyncio.sleep(settle_seconds)
        for _ in range(rounds):
            await _round(servers, seconds)
    title = f"CPU of idle servers, ms a second, {rounds} rounds of {seconds} s; {AIM}"
    return [title, *map(str, servers)], [server.figures() for server in servers]


def measure(rounds: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder, pin_to(GENERATOR_CORE):
        return uvloop.run(measure_rounds(Files.create(Path(folder), POLICY), rounds))


async def _create_pods(files: Files, server: Idle) -> None:
    """Charge one Pod to each service."""

    async def create(caller: Caller, workload: Workload) -> None:
        async with at_once:
            answer = await caller.ask(Half.VALIDATE, await caller.make_validating(workload))
        if not answer["allowed"]:
            raise SystemExit(f"error: {server.name}: {workload.service}: denied: {answer}")

    at_once = asyncio.Semaphore(_CALLS_IN_FLIGHT_MAX)
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        caller = Caller(session, files, server.target)
        for workload in _workloads(server.services):
            tasks.create_task(create(caller, workload))


def _workloads(services: int) -> Iterator[Workload]:
    yield from (Workload(f"s{number}") for number in range(services))


async def _round(servers: list[Idle], seconds: float) -> None:
    before, began = [server.cpu_seconds() for server in servers], time.monotonic()
    await asyncio.sleep(seconds)
    after, took = [server.cpu_seconds() for server in servers], time.monotonic() - began
    for server, then, now in zip(servers, before, after, strict=True):
        server.server_ms.append((now[SERVER] - then[SERVER]) * 1e3 / took)
        if server.target.redis:
            server.redis_ms.append((now[REDIS] - then[REDIS]) * 1e3 / took)
