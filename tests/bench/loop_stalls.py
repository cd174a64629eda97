"""The longest iteration of a server's event loop: during large Pods, scrapes, and changes of policy and files.

It is measured in CPU time of the loop's thread, which a busy machine does not change, and by the wall, as a caller
notices it. The first line is an idle loop's, and an idle process measures the gaps that the machine causes.
"""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvloop

from tests.bench.file_swaps import Operation, file_swaps
from tests.bench.spread import Spread
from tests.core.reviewing import body, pod
from tests.harness.stall_meter import run_spinner
from webhook.adapters.clocks import SystemClock, WallClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.metrics import Metrics, ProcessRole
from webhook.adapters.policy_process.parent import PolicyProcess
from webhook.app.status_page import read_snapshots
from webhook.core.admission.decision import Half
from webhook.core.kubernetes.pod_size import CONTAINERS_MAX
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.policy_in_force.active_policy import ActivePolicy
from webhook.policy_in_force.policy_receiver import PolicyReceiver

SERVICES = 1_000
REPEATS = 10
_SWITCH_SECONDS = 0.001
_IDLE_SECONDS = 0.1
_WIDTH = 46


@dataclass
class Turns:
    """The longest turn of the loop so far, by the wall and in CPU time."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    _last: tuple[float, float] = field(default_factory=lambda: (time.perf_counter(), time.thread_time()))

    def take(self) -> None:
        now = time.perf_counter(), time.thread_time()
        self.wall_ms = max(self.wall_ms, (now[0] - self._last[0]) * 1e3)
        self.cpu_ms = max(self.cpu_ms, (now[1] - self._last[1]) * 1e3)
        self._last = now


class Server:
    """Keepers and interceptor as a server has them, on one loop."""

    def __init__(self) -> None:
        self._metrics = Metrics("bench", ProcessRole.REVIEWS)
        metrics, clock = Observers(self._metrics), SystemClock()
        self.overrides = ActiveOverrides(metrics, WallClock(), "here")
        active = ActivePolicy(self.overrides, clock)
        self.overrides.prepare = active.prepare
        self.keeper = PolicyReceiver(metrics, clock, PolicyProcess(), active=active)
        self._clock, self._store = clock, MemoryStore(clock)
        self._interceptor = Interceptor(self.keeper, self._store, FixedNamespaces(), metrics)

    async def swap(self, number: int) -> None:
        if not await self.keeper.on_document(policy(number), "policy.yaml"):
            raise SystemExit(f"error: {self.keeper.list_errors()}")
        await self.review(encode_review(number))

    async def override(self, number: int) -> None:
        await self.overrides.on_document(overrides(number), "overrides.yaml")
        await self.review(encode_review(number))

    async def scrape(self, _: int) -> None:
        """Scrape as the server does."""
        compiled = self.keeper.get_current()
        if compiled is None:
            raise SystemExit("error: no policy is loaded")
        self._metrics.update(await read_snapshots(self._store, self._clock, compiled.plans))
        await asyncio.to_thread(self._metrics.render)

    async def review(self, given: bytes) -> None:
        await self._interceptor.review(Half.MUTATE, given)


def encode_review(number: int, **spec: Any) -> bytes:
    return body(namespace=f"n{number}", object=pod(**spec))


def policy(number: int, count: int | None = None) -> bytes:
    """Return one of `count` services, SERVICES by default, different for each number."""
    services = "".join(
        f"""\
- name: s{n}
  match: {{namespaces: [n{n}]}}
  placement: {{schedulerName: x{number}, nodeSelector: {{disk: ssd}}, topology: [{{level: Zone, in: [a, b]}}]}}
  resources: {{container: {{default: {{cpu: 1, memory: 1Gi}}, max: {{cpu: 4}}}}}}
  quota: {{windows: [{{window: 1m, hard: {{pods: 50, cpu: 100}}}}, {{window: 1h, hard: {{pods: 500}}}}]}}
  breaker: {{quotaExceeded: {{count: 10}}}}
"""
        for n in range(SERVICES if count is None else count)
    )
    return f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n{services}".encode()


def overrides(number: int) -> bytes:
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return "".join(
        f"- {{service: s{n}, until: {until}, reason: bench, quotaFactor: {number + 2}}}\n" for n in range(10)
    ).encode()


@asynccontextmanager
async def watch_turns() -> AsyncIterator[Turns]:
    """Take every turn of the loop until the block ends."""
    turns = Turns()

    async def watch() -> None:
        while True:
            await asyncio.sleep(0)
            turns.take()

    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        yield turns
        turns.take()
    finally:
        task.cancel()


async def _find_worst(operation: Operation) -> list[Turns]:
    """Return the longest turn of each repeat."""
    repeats = []
    for number in range(REPEATS):
        async with watch_turns() as turns:
            await operation(number)
        repeats.append(turns)
    return repeats


async def _sleep(_: int) -> None:
    await asyncio.sleep(_IDLE_SECONDS)


async def _collect(_: int) -> None:
    gc.collect()


def _large(containers: int) -> list[dict[str, Any]]:
    return [{"name": f"c{n}", "resources": {"requests": {"cpu": f"{n + 1}m"}}} for n in range(containers)]


async def _measure_operations() -> tuple[list[str], list[dict[str, Any]]]:
    server, many, beyond = (
        Server(),
        encode_review(0, containers=_large(CONTAINERS_MAX)),
        encode_review(0, containers=_large(40_000)),
    )
    long = encode_review(0, containers=[{"name": "c", "env": [{"name": "E", "value": "x" * 100}] * 40_000}])
    operations: dict[str, Operation] = {
        "nothing": _sleep,
        f"swap of {SERVICES} services": server.swap,
        "overrides of 10 of them": server.override,
        f"a review of {CONTAINERS_MAX} containers": lambda _: server.review(many),
        "a review of 40000 containers, refused": lambda _: server.review(beyond),
        "a review of 5 MB of environment": lambda _: server.review(long),
        "a scrape": server.scrape,
        "a collection of garbage": _collect,
    }
    await server.swap(REPEATS)
    lines, figures = [f"the longest turn of the loop, median of {REPEATS} times, ms"], []
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
        async with file_swaps(Path(folder)) as swaps:
            for name, operation in (operations | swaps).items():
                async with run_spinner() as gaps:
                    repeats = await _find_worst(operation)
                cpu, wall = (
                    Spread.from_values([repeat.cpu_ms for repeat in repeats]),
                    Spread.from_values([repeat.wall_ms for repeat in repeats]),
                )
                beside = f"by the wall {wall.median:.1f}, an idle process {gaps.largest * 1e3:.1f}"
                lines.append(f"  {name:{_WIDTH - 2}} {cpu.median:7.1f}  ({beside})")
                figures.append({"name": name, "cpu_ms": cpu, "wall_ms": wall, "idle_process_ms": gaps.largest * 1e3})
    return lines, figures


def measure() -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        return uvloop.run(_measure_operations())
    finally:
        sys.setswitchinterval(interval)
