"""Creation of Pods at a real API server: rate, latency and CPU time, without a webhook, with Go's and with Podgate."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from tests.bench import servers
from tests.bench.apiserver.cluster import API_SERVER, ETCD, api_server, credentials, find_called, list_expected
from tests.bench.apiserver.webhooks import NONE, OWN_BOTH, OWN_MUTATE, WAYS, Way, policy_of
from tests.bench.cpu import GENERATOR_CORE, pin_to
from tests.bench.generator import Call, Expect, Load, Measured, generate
from tests.bench.programs import go_programs
from tests.bench.real_redis import real_redis
from tests.bench.results import record
from tests.bench.servers import GO, OWN, SERVER, Target, Variant
from tests.bench.spread import Spread
from tests.bench.telemetry import trace_receiver
from tests.bench.traffic import Workload, user_pod
from tests.cluster.controlplane import ControlPlane
from tests.harness.server_process import Files

CLIENTS = (1, 16)
SECONDS, WARM_UP_SECONDS = 3.0, 0.5
_WIDTHS = {"Pods/s": 10, "by none": 20, "p50 ms": 9, "by none ": 20, "p90 ms": 9, "apiserver": 11, "webhook": 9}


@dataclass
class Created:
    """A way with a number of clients, and the measurements of its rounds."""

    way: Way
    clients: int
    rounds: list[Measured] = field(default_factory=list)

    @property
    def rate(self) -> list[float]:
        return [measured.count / measured.seconds for measured in self.rounds]

    @property
    def p50(self) -> list[float]:
        return [measured.latency_us.p50 for measured in self.rounds]

    def cpu(self, group: str) -> float:
        return Spread.from_values([measured.cpu_us(group) for measured in self.rounds]).median

    def line(self, none: "Created") -> str:
        cells = [
            f"{Spread.from_values(self.rate).median:.0f}",
            f"{Spread.from_ratios(self.rate, none.rate):.2f}",
            f"{Spread.from_values(self.p50).median / 1e3:.2f}",
            f"{Spread.from_ratios(self.p50, none.p50):.2f}",
            f"{Spread.from_values([measured.latency_us.p90 for measured in self.rounds]).median / 1e3:.2f}",
            f"{self.cpu(API_SERVER):.0f}",
            f"{self.cpu(SERVER):.0f}",
        ]
        name = f"  {self.way.name:18} {self.clients:>2} clients"
        return name + "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS.values(), strict=True))

    def to_json(self, none: "Created") -> dict[str, Any]:
        return {
            "way": self.way.name,
            "clients": self.clients,
            "pods_per_second": Spread.from_values(self.rate),
            "rate_ratio": Spread.from_ratios(self.rate, none.rate),
            "p50_us": Spread.from_values(self.p50),
            "p50_ratio": Spread.from_ratios(self.p50, none.p50),
            "cpu_us": {group: self.cpu(group) for group in (API_SERVER, ETCD, SERVER)},
            "rounds": self.rounds,
        }


async def creation(files: Files, rounds: int, seconds: float) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    async with trace_receiver() as traces, AsyncExitStack() as stack:
        redis = stack.enter_context(real_redis())
        variant = Variant(OWN, redis, policy_of(OWN_MUTATE.namespace, OWN_BOTH.namespace))
        own = await stack.enter_async_context(servers.podgate(variant, files, traces.endpoint("0")))
        [go] = await stack.enter_async_context(servers.go_webhooks(go_programs(), files, None))
        targets = {OWN: own, GO: go}
        plane = stack.enter_context(api_server(files, targets))
        await _warm_up(plane, targets)
        rows = [Created(way, clients) for clients in CLIENTS for way in WAYS]
        for number in range(rounds):
            for row in rows if number % 2 else reversed(rows):
                row.rounds.append(await _turn(plane, row.way, row.clients, seconds, targets))
    none = {row.clients: row for row in rows if row.way is NONE}
    lines = [row.line(none[row.clients]) for row in rows]
    head = " " * 31 + "".join(f"{name:>{width}}" for name, width in _WIDTHS.items())
    return [head, *lines], [row.to_json(none[row.clients]) for row in rows]


async def _warm_up(plane: ControlPlane, targets: dict[str, Target]) -> None:
    """Create Pods until the API server has called each webhook: configurations are in force after a while."""
    names = list_expected(targets)
    while not names <= await asyncio.to_thread(find_called, plane):
        for way in WAYS:
            path, pod = f"/api/v1/namespaces/{way.namespace}/pods", _pod(way)
            status, answer = await asyncio.to_thread(plane.api.request, "POST", path, pod)
            if status != 201:
                raise SystemExit(f"error: {way.name}: {status}: {json.dumps(answer)}")


async def _turn(plane: ControlPlane, way: Way, clients: int, seconds: float, targets: dict[str, Target]) -> Measured:
    expect = Expect(echoes_uid=False, allowed=True, patch=False, text=f'"{way.scheduler}"', created=True)
    call = Call(f"/api/v1/namespaces/{way.namespace}/pods", [json.dumps(_pod(way))], expect)
    load = Load(min(seconds, WARM_UP_SECONDS), seconds, connections=clients)
    processes: dict[str, Sequence[int]] = {name: [plane.processes.pid(name)] for name in (API_SERVER, ETCD)}
    if way.server:
        processes |= targets[way.server].processes
    address = plane.server.removeprefix("https://")
    return await generate(go_programs().loadgen, credentials(plane), [address], [call], load, processes)


def _pod(way: Way) -> dict[str, Any]:
    pod = user_pod(Workload())
    pod["metadata"]["namespace"] = way.namespace
    return pod


def measure(rounds: int) -> list[str]:
    """Return the lines of the output; the figures are recorded."""
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder, pin_to(GENERATOR_CORE):
        lines, figures = uvloop.run(creation(Files.create(Path(folder)), rounds, SECONDS))
    record("apiserver", {"rows": figures})
    title = f"Pods of 6 KB at a real API server, {rounds} interleaved rounds of {SECONDS} s; CPU in us for each Pod"
    return [title, *lines]
