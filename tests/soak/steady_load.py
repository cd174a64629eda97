"""A steady stream of Pods through servers, and what their processes and Redis hold meanwhile."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, cycle

from tests.harness.server_process import Serving, pod, resident_bytes
from tests.redis_servers import RedisServer
from tests.soak.holdings import count_descriptors
from webhook.commands.simulator import Ask

IN_FLIGHT_MAX = 16
"""A machine that is too busy gets fewer Pods a second, not more at once."""


@dataclass(frozen=True)
class Sample:
    """Holdings at one moment: of each server, and of Redis."""

    seconds: float
    resident_bytes: tuple[int, ...]
    descriptors: tuple[int, ...]
    threads: tuple[int, ...]
    keys: Counter[str]
    """Keys of Redis by kind."""
    lasting: frozenset[str]
    """Keys that never expire."""
    redis_bytes: int


@dataclass
class SteadyLoad:
    """Pods that are sent to the servers in turn, at a rate."""

    servers: Sequence[Serving]
    redis: RedisServer
    namespaces: Sequence[str]
    latencies_seconds: list[tuple[float, float]] = field(default_factory=list)
    """When each Pod was admitted, and how long that took."""
    admitted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    _numbers: "count[int]" = field(default_factory=count)
    _begun_seconds: float = field(default_factory=time.monotonic)

    async def send(self, seconds: float, per_second: float) -> None:
        """Send Pods for this time."""
        until, free = time.monotonic() + seconds, asyncio.Semaphore(IN_FLIGHT_MAX)
        turns = cycle((server, namespace) for namespace in self.namespaces for server in self.servers)
        due = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            while time.monotonic() < until:
                await free.acquire()
                tasks.create_task(self._create(*next(turns))).add_done_callback(lambda _: free.release())
                due = max(due + 1 / per_second, time.monotonic() - 1)
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _create(self, server: Serving, namespace: str) -> None:
        began = time.monotonic()
        answer = await server.create(Ask(pod(), namespace, f"soak-{next(self._numbers)}", "alice"))
        self.latencies_seconds.append((began - self._begun_seconds, time.monotonic() - began))
        if answer["allowed"]:
            self.admitted += 1
        else:
            self.refused[answer["status"]["message"].partition(":")[0]] += 1

    def sample(self) -> Sample:
        pids = [server.process.pid for server in self.servers]
        with self.redis.client(decode_responses=True) as client:
            names = list(client.scan_iter(count=1000))
            pipeline = client.pipeline(transaction=False)
            for name in names:
                pipeline.ttl(name)
            ttls = pipeline.execute()
            used = client.info("memory")["used_memory"]
        return Sample(
            time.monotonic() - self._begun_seconds,
            tuple(map(resident_bytes, pids)),
            tuple(map(count_descriptors, pids)),
            tuple(map(count_threads, pids)),
            Counter(map(find_kind, names)),
            frozenset(name for name, ttl in zip(names, ttls, strict=True) if ttl == -1),
            used,
        )

    def list_deciles(self) -> list[list[float]]:
        """Return the latencies of each tenth of the run, in seconds, sorted."""
        end = max(began for began, _ in self.latencies_seconds) + 1e-9
        deciles: list[list[float]] = [[] for _ in range(10)]
        for began, took in self.latencies_seconds:
            deciles[int(began / end * 10)].append(took)
        return [sorted(decile) for decile in deciles]


def count_threads(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123  a file of the kernel
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


def find_kind(key: str) -> str:
    """Return the kind of a key: podgate:{TAG}:v1:CLUSTER:KIND:NAME."""
    parts = key.split(":")
    return parts[4] if len(parts) > 4 and parts[1].startswith("{") else parts[3]
