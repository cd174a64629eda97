"""Many clusters on one Redis: shards, memory and connections, from what one large cluster costs it."""

import math
from dataclasses import dataclass

from tests.bench.page.capacity import REDIS_USE
from tests.bench.page.rows import Json, render_table
from tests.bench.scale.cluster import REDIS

CLUSTERS = (1, 10, 100)
ADMISSIONS_PER_SECOND = (10, 1_000)
"""Of each cluster: a busy one, and as many as 100 clusters need for 100,000 a second."""
_SHARD_GIB = 8
"""Memory of a shard, half of which a fork for persistence may need."""
_GIB, _MIB = 1 << 30, 1 << 20


@dataclass(frozen=True)
class Fleet:
    """What Redis spends: CPU of one Pod in microseconds and of an idle cluster in a second, memory, connections."""

    pod_us: float
    idle_ms_per_second: float
    bytes_per_pod: float
    bytes_per_service: float
    pods: int
    services: int
    connections: float
    """Of one cluster, on each shard."""

    @classmethod
    def from_results(cls, results: Json) -> "Fleet | None":
        """Return the measured costs of the largest step; None if they were not measured."""
        rows = results.get("scale", {}).get("figures", [])
        if len(rows) < 2:
            return None
        first, last = rows[0], rows[-1]
        bytes_per_pod = (last["redis_mib"] - first["redis_mib"]) * _MIB / (last["pods"] - first["pods"])
        rest = first["redis_mib"] * _MIB - bytes_per_pod * first["pods"]
        return cls(
            pod_us=last["cpu_s_per_1000"][REDIS] * 1e3,
            idle_ms_per_second=last["idle_ms_per_second"][REDIS],
            bytes_per_pod=bytes_per_pod,
            bytes_per_service=max(0.0, rest) / last["services"],
            pods=last["pods"],
            services=last["services"],
            connections=last["redis_connections"],
        )

    def count_shards(self, clusters: int, per_second: float) -> int:
        """Return the shards that CPU or memory need."""
        return max(
            1,
            math.ceil(self.compute_cores(clusters, per_second) / REDIS_USE),
            math.ceil(self.compute_bytes(clusters, per_second) / (_SHARD_GIB * _GIB / 2)),
        )

    def compute_cores(self, clusters: int, per_second: float) -> float:
        return clusters * (per_second * self.pod_us / 1e6 + self.idle_ms_per_second / 1e3)

    def compute_bytes(self, clusters: int, per_second: float) -> float:
        """Return the memory: a Pod is remembered for an hour, or while it lives."""
        remembered = max(self.pods, per_second * 3600)
        return clusters * (remembered * self.bytes_per_pod + self.services * self.bytes_per_service)

    def text(self) -> str:
        """Return the inputs and the table."""
        head = [
            "clusters",
            "admissions a second, each",
            "Redis CPU, cores",
            "memory, GiB",
            "shards",
            "connections a shard",
        ]
        lines = [self._line(clusters, rate) for rate in ADMISSIONS_PER_SECOND for clusters in CLUSTERS]
        inputs = (
            f"A cluster of {self.services:,} services and {self.pods:,} Pods uses {self.idle_ms_per_second:.0f} ms of"
            f" Redis' CPU a second while it is idle,\n{self.pod_us:.0f} µs for each Pod from its admission until the"
            f" controller has seen it, {self.bytes_per_pod:.0f} bytes a Pod, {self.bytes_per_service:.0f} a"
            f" service\nand {self.connections:.0f} connections. A shard uses {REDIS_USE:.0%} of its core, and half of"
            f" {_SHARD_GIB} GiB."
        )
        return f"{inputs}\n\n{render_table(head, lines)}"

    def _line(self, clusters: int, rate: int) -> list[str]:
        return [
            f"{clusters:,}",
            f"{rate:,}",
            f"{self.compute_cores(clusters, rate):,.2f}",
            f"{self.compute_bytes(clusters, rate) / _GIB:,.1f}",
            f"{self.count_shards(clusters, rate):,}",
            f"{clusters * self.connections:,.0f}",
        ]
