"""Capacity past one machine: replicas, Redis cores and shards for a rate of admissions, from measured costs."""

import math
from dataclasses import dataclass

from tests.bench.page.rows import Json, render_table, row
from tests.bench.servers import OWN, OWN_TWO

RATES = (100, 1_000, 10_000, 100_000)
SERVER_USE, REDIS_USE = 0.6, 0.5
"""Shares of a core in use at the planned rate: the target of the HPA, and room for a failover of Redis."""


@dataclass(frozen=True)
class Capacity:
    """Costs of one admission, both calls, in microseconds of CPU; `efficiency` is that of a process among several."""

    server_us: float
    redis_us: float
    efficiency: float

    @classmethod
    def from_results(cls, results: Json) -> "Capacity | None":
        """Return the measured costs; None if a part was not measured."""
        both = row(results, "servers", "both")
        one, two = (row(results, "processes", "validate", server) for server in (OWN, OWN_TWO))
        if not (both and one and two):
            return None
        efficiency = min(1.0, one["cpu_us"]["median"] / two["cpu_us"]["median"])
        return cls(both["cpu_us"]["median"], both["redis_cpu_us"]["median"], efficiency)

    @property
    def per_replica(self) -> float:
        """Return the admissions a second of a replica: one process, so at most one core."""
        return SERVER_USE * self.efficiency * 1e6 / self.server_us

    @property
    def per_redis_core(self) -> float:
        """Return the admissions a second of a Redis, or of a shard: scripts run on one thread."""
        return REDIS_USE * 1e6 / self.redis_us

    def render_table(self) -> str:
        head = ["admissions a second", "replicas", "their CPU, cores", "Redis shards", "their CPU, cores"]
        return render_table(head, [self._line(rate) for rate in RATES])

    def _line(self, rate: int) -> list[str]:
        server, redis = rate * self.server_us / self.efficiency / 1e6, rate * self.redis_us / 1e6
        replicas = max(2, math.ceil(rate / self.per_replica))
        shards = math.ceil(rate / self.per_redis_core)
        return [f"{rate:,}", f"{replicas:,}", f"{server:,.2f}", f"{shards:,}", f"{redis:,.2f}"]

    def text(self) -> str:
        """Return the inputs and the table."""
        inputs = (
            f"One admission (both calls) costs {self.server_us:.0f} µs of CPU at the server and {self.redis_us:.0f} µs"
            f" at Redis.\nWith {SERVER_USE:.0%} of a core, and {self.efficiency:.2f} of the efficiency beside other"
            f" processes, a replica serves {self.per_replica:,.0f} a second;\nwith {REDIS_USE:.0%} a Redis core or a"
            f" shard serves {self.per_redis_core:,.0f}."
        )
        return f"{inputs}\n\n{self.render_table()}"
