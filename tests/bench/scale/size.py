"""Size of a large cluster, and the policy of its services."""

from dataclasses import dataclass
from typing import Any

import msgspec

WAITING = "waiting"
"""The service, and its namespace, whose Pods wait: it has no quota left."""
_QUEUE_EVERY = 10
"""Every tenth service lets Pods wait above its quota; it has room."""


@dataclass(frozen=True)
class Size:
    """Numbers of objects; the Pods are created in steps, up to the last one."""

    nodes: int
    namespaces: int
    services: int
    steps: tuple[int, ...]
    waiting: int
    """Pods that wait all the time."""
    clients: int = 16
    """Pods that are created at once."""
    probes: int = 20
    quiet_seconds: float = 5.0

    def find_place(self, number: int) -> tuple[str, str]:
        """Return the namespace and the `app` label of the Pods of a service."""
        return f"n{number % self.namespaces}", f"a{number // self.namespaces}"

    def build_policy(self, limit: int = 1_000_000, changed: int = 0) -> str:
        """Return the policy; `limit` is the quota of its first `changed` services, and of the others by default."""
        services = [self._build_service(number, limit if number < changed else 1_000_000) for number in self._numbers]
        waits = {"whenExceeded": "Queue", "queue": {"maxPods": 10_000, "maxWait": "24h"}}
        services.append(
            {
                "name": WAITING,
                "match": {"namespaces": [WAITING]},
                "quota": {"windows": [{"window": "24h", "hard": {"pods": 1}}], **waits},
            }
        )
        document = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": services}
        return msgspec.json.encode(document).decode()

    @property
    def _numbers(self) -> range:
        return range(self.services)

    def _build_service(self, number: int, limit: int) -> dict[str, Any]:
        namespace, app = self.find_place(number)
        queue: dict[str, Any] = {"whenExceeded": "Queue", "queue": {}} if number % _QUEUE_EVERY == 0 else {}
        return {
            "name": f"s{number}",
            "failureMode": "Closed",
            "match": {"namespaces": [namespace], "podSelector": {"matchLabels": {"app": app}}},
            "placement": {"allowNodeName": True, "tolerations": [{"key": "dedicated", "operator": "Exists"}]},
            "quota": {
                "windows": [{"window": "1h", "hard": {"pods": limit}}],
                "standing": {"hard": {"pods": 1_000_000}},
                **queue,
            },
            "breaker": {"quotaExceeded": {"count": 10, "within": "1m"}},
        }


LARGE = Size(5_000, 1_000, 2_000, (5_000, 10_000, 25_000, 50_000), 100)
SMALL = Size(50, 10, 20, (500,), 5, clients=8, probes=2, quiet_seconds=0.5)
"""The same within the time of a test."""
