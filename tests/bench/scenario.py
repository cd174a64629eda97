"""Scenarios: calls for each Pod, size of the Pods, use of connections, and rate."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.policies import ADMITTED, DIVIDED, EXHAUSTED, OPEN, UNMATCHED
from tests.bench.traffic import CONTAINERS, POD_BYTES, Workload
from webhook.core.admission.decision import Half

WORKLOADS = 20
"""Number of Deployments in a scenario; their Pods alternate. A policy with more services has one for each."""
CONNECTIONS = 16


@dataclass(frozen=True)
class Case:
    """The calls for each Pod, and the expected decision."""

    name: str
    halves: tuple[Half, ...]
    service: str = ADMITTED
    refusal: str = ""
    """Reason in the response if Pods are refused."""
    has_one_workload: bool = False

    def patches(self, half: Half) -> bool:
        return half is Half.MUTATE and self.service in {ADMITTED, DIVIDED}


MUTATE = Case("mutate", (Half.MUTATE,))
VALIDATE = Case("validate", (Half.VALIDATE,))
BOTH = Case("both", (Half.MUTATE, Half.VALIDATE))
UNMATCHED_POD = Case("unmatched", (Half.MUTATE,), UNMATCHED)
OVER_QUOTA = Case("refused by quota", (Half.VALIDATE,), EXHAUSTED, "QuotaExceeded")
# Pods of controllers other than the one that has tripped the breaker would be early probes.
BREAKER_OPEN = Case("refused by OPEN", (Half.VALIDATE,), OPEN, "BreakerOpen", has_one_workload=True)
DIVIDE = Case("mutate, shares", (Half.MUTATE,), DIVIDED)
CASES = (MUTATE, VALIDATE, BOTH, UNMATCHED_POD, OVER_QUOTA, BREAKER_OPEN)


@dataclass(frozen=True)
class Scenario:
    """A kind of load."""

    case: Case
    pod_bytes: int = POD_BYTES
    own_images: bool = False
    """Each Pod has different images, so that nothing cached for one Pod applies to another."""
    new_connections: bool = False
    rate: int = 0
    """Pods per second; 0: each connection sends its next Pod after the last response."""
    connections: int = CONNECTIONS
    containers: int = CONTAINERS
    services: int = 0
    """Number of services in the policy, whose Pods alternate; 0: Pods of ADMITTED only."""
    windows: int = 1
    """Number of windows in the quota of the policy."""
    parent_flags: str = ""
    """Flags of a `traceparent` that all calls have, 00 or 01; empty: they have none."""
    controllers: int = 0
    """Number of Deployments whose Pods alternate; 0: WORKLOADS."""

    @property
    def name(self) -> str:
        parts = [self.case.name]
        parts += [f"{self.pod_bytes // 1000} KB"] if self.containers == CONTAINERS else []
        parts += ["different images"] if self.own_images else []
        parts += [f"traceparent {self.parent_flags}"] if self.parent_flags else []
        parts += ["new connections"] if self.new_connections else []
        parts += [f"{self.rate}/s"] if self.rate else []
        parts += [f"{self.containers} containers"] if self.containers != CONTAINERS else []
        parts += [f"{self.services} services"] if self.services else []
        parts += [f"{self.windows} windows"] if self.windows > 1 else []
        parts += [f"{self.controllers} controllers"] if self.controllers else []
        return f"{', '.join(parts)}, {self.sending}"

    @property
    def traceparent(self) -> str:
        return f"00-{1:032x}-{1:016x}-{self.parent_flags}" if self.parent_flags else ""

    @property
    def sending(self) -> str:
        if self.new_connections:
            return "one connection after another"
        return f"{self.connections} kept connection{'s' if self.connections > 1 else ''}"

    def workloads(self) -> Iterator[Workload]:
        count = 1 if self.case.has_one_workload else self.controllers or max(WORKLOADS, self.services)
        for number in range(count):
            service = f"s{number % self.services}" if self.services else self.case.service
            yield Workload(service, number, self.pod_bytes, self.own_images, self.containers)
