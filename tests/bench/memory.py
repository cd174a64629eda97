"""Resident memory of servers while they review many Pods, with both calls of each.

The servers get their load in turn, so that all are measured under the same conditions.
"""

import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from tests.bench.calls import Caller
from tests.bench.cpu import GENERATOR_CORE, pin_to
from tests.bench.generator import Call, Credentials, Load, generate
from tests.bench.lineup import Stage
from tests.bench.policies import POLICY
from tests.bench.programs import go_programs
from tests.bench.scenario import BOTH, CONNECTIONS, Scenario
from tests.bench.servers import Target
from tests.bench.telemetry import trace_receiver
from tests.harness.server_process import Files, resident_bytes

REVIEWS = (0, 10_000, 100_000, 1_000_000)
"""A server is measured as soon as it has answered so many reviews."""
_TURN_SECONDS = 2.0
_MIB = 1 << 20


@dataclass
class Memory:
    """A server, and its resident memory by the reviews that it had answered."""

    target: Target
    reviews: int = 0
    rss_mib: dict[int, float] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        return {"name": self.target.name, "rss_mib": {str(reviews): mib for reviews, mib in self.rss_mib.items()}}

    def __str__(self) -> str:
        return f"  {self.target.name:20} " + ", ".join(f"{mib:.1f} after {n:,}" for n, mib in self.rss_mib.items())

    async def send(self, program: Path, credentials: Credentials, calls: list[Call], until: int) -> None:
        """Send reviews until the server has answered so many, and measure it."""
        load = Load(warm_up_seconds=0, seconds=_TURN_SECONDS, connections=CONNECTIONS)
        while self.reviews < until:
            measured = await generate(program, credentials, self.target.addresses, calls, load, self.target.processes)
            self.reviews += measured.count * len(calls)
        self.rss_mib[until] = sum(map(resident_bytes, self.target.processes["server"])) / _MIB


async def measure_reviews(
    program: Path, files: Files, reviews: tuple[int, ...] = REVIEWS
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    credentials = Credentials.from_files(files)
    async with trace_receiver() as traces, AsyncExitStack() as stack:
        stage = Stage(stack, files, traces)
        servers = [Memory(await stage.podgate(redis=redis)) for redis in (True, False)]
        session = await stack.enter_async_context(aiohttp.ClientSession())
        calls = [await Caller(session, files, server.target).calls(Scenario(BOTH)) for server in servers]
        for until in reviews:
            for server, own in zip(servers, calls, strict=True):
                await server.send(program, credentials, own, until)
    title = f"resident memory of servers with traces, MiB, by reviews; {CONNECTIONS} connections"
    return [title, *map(str, servers)], [server.figures() for server in servers]


def measure() -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder, pin_to(GENERATOR_CORE):
        return uvloop.run(measure_reviews(go_programs().loadgen, Files.create(Path(folder), POLICY)))
