"""A large cluster: simulated nodes, many namespaces and services, two servers, a controller and Redis.

Its Pods name their nodes, on which kwok runs them at once: how fast kube-scheduler is does not matter here. kwok renews
the nodes' leases seldom, else they would use all of a small machine.
"""

import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.cpu import CORES, cpu_seconds, pin_to
from tests.bench.pods import memory_bytes
from tests.bench.real_redis import real_redis
from tests.bench.scale.size import WAITING, Size
from tests.cluster.admission_configuration import stand_in_service
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.kwok import node
from tests.cluster.server import Server
from tests.redis_servers import RedisServer

SERVERS, CONTROLLER, REDIS, API_SERVER, ETCD = "servers", "controller", "Redis", "kube-apiserver", "etcd"
_COMPONENTS = ("etcd", "kube-apiserver", "kwok")
_FLAGS = {"kwok": ("--node-lease-duration-seconds=1200",)}
_CLIENTS = 16
_STORE_FLAGS = ("--store-deadline", "10s")
"""On a busy machine a late response of Redis must not change a decision."""
_HEAD_FIELDS = 3
"""Fields of the hash of a service's live Pods beside one of each Pod."""
_CREATED = frozenset({200, 201})


@dataclass
class LargeCluster:
    """A running cluster; `pods` counts those that were created in it."""

    size: Size
    installation: Installation
    redis: RedisServer
    pods: int = 0
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_CLIENTS))

    @property
    def plane(self) -> ControlPlane:
        return self.installation.plane

    @property
    def controller(self) -> Server:
        return self.installation.controllers[0]

    def post_all(self, requests: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Create objects, several at once. SystemExit if one is refused."""

        def post(request: tuple[str, dict[str, Any]]) -> None:
            status, answer = self.plane.api.request("POST", *request)
            if status not in _CREATED:
                raise SystemExit(f"error: {request[0]}: {status}: {answer}")

        deque(self._pool.map(post, requests), maxlen=0)

    def create_pods(self, until: int) -> float:
        """Create Pods of all services in turn until there are so many; return the seconds."""
        numbers, self.pods = range(self.pods, until), until
        began = time.monotonic()
        self.post_all(self._build_pod(number) for number in numbers)
        return time.monotonic() - began

    def _build_pod(self, number: int) -> tuple[str, dict[str, Any]]:
        namespace, app = self.size.find_place(number % self.size.services)
        pod = build_pod(f"web-{number}", {"app": app}, nodeName=f"node-{number % self.size.nodes}")
        return f"/api/v1/namespaces/{namespace}/pods", pod

    def wait_for_pods(self) -> None:
        """Wait until the controller knows all Pods, and the store which of them live."""
        self.plane.wait(lambda: self.count_seen() >= self.pods, f"{self.pods} live Pods", self.controller.name)

    def count_seen(self) -> int:
        """Return how many live Pods of all services the controller has seen and told the store of."""
        with self.redis.client() as client, client.pipeline(transaction=False) as pipeline:
            for number in range(self.size.services):
                pipeline.hlen(live_key(f"s{number}")).zcard(unseen_key(f"s{number}"))
            found = pipeline.execute()
        return sum(max(0, fields - _HEAD_FIELDS) for fields in found[::2]) - sum(found[1::2])

    def read(self) -> dict[str, float]:
        """Return the CPU seconds of each part so far."""
        running = self.plane.processes
        parts = {name: [running.pid(name)] for name in (API_SERVER, ETCD)}
        parts[SERVERS] = [running.pid(server.name) for server in self.installation.servers]
        parts[CONTROLLER] = [running.pid(server.name) for server in self.installation.controllers]
        parts[REDIS] = [self.redis.pid]
        return {name: sum(map(cpu_seconds, pids)) for name, pids in parts.items()}

    def find_resident_bytes(self, server: Server) -> tuple[int, int]:
        """Return the resident memory of a process, and the most that it ever had."""
        return memory_bytes(self.plane.processes.pid(server.name))


def live_key(service: str) -> str:
    """Return the key of the live Pods of a service."""
    return f"podgate:{{{service}}}:v1:default:live:{service}"


def unseen_key(service: str) -> str:
    """Return the key of a service's Pods that were admitted and that the controller has not seen yet."""
    return f"podgate:{{{service}}}:v1:default:pending:{service}"


def build_pod(name: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]
    metadata = {"name": name, "labels": labels}
    body = {"containers": containers, "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


@contextmanager
def run_large_cluster(size: Size) -> Iterator[LargeCluster]:
    """Run everything until the block ends; no Pod is created yet but those that wait."""
    with (
        tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder,
        pin_to(*CORES),
        real_redis() as redis,
    ):
        identities = Identities.create(Path(folder))
        good = {"good": identities.callers["good"]}
        with ControlPlane(good, components=_COMPONENTS, flags=_FLAGS) as plane:
            plane.apply(*stand_in_service())
            install = install_podgate(plane, identities.files, size.build_policy(), [WAITING], servers=0)
            with install as installation:
                installation.python = Path(sys.executable)  # not forked: what a start costs is all measured
                cluster = LargeCluster(size, installation, redis)
                _create_namespaces(cluster)
                store = ("--store", redis.url)
                for _ in range(2):
                    installation.start_server("--drain", "0s", *store, *_STORE_FLAGS)
                installation.start_controller(*store)
                installation.wait_for_calls()
                fills, *waits = _build_waiting(size)
                plane.processes.require("kwok")
                cluster.post_all([fills])  # else several would see room at once, and all but one be denied
                cluster.post_all(waits)
                yield cluster
                cluster._pool.shutdown()


def _create_namespaces(cluster: LargeCluster) -> None:
    """Create nodes, namespaces and their accounts, for which no controller runs."""
    size = cluster.size
    cluster.post_all(("/api/v1/nodes", node(f"node-{number}")) for number in range(size.nodes))
    names = [f"n{number}" for number in range(size.namespaces)]
    for path, name_of in (("/api/v1/namespaces", None), ("/api/v1/namespaces/{}/serviceaccounts", "default")):
        kind = "ServiceAccount" if name_of else "Namespace"
        cluster.post_all(
            (path.format(name), {"apiVersion": "v1", "kind": kind, "metadata": {"name": name_of or name}})
            for name in names
        )


def _build_waiting(size: Size) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the request for the Pod that fills the quota, and those for the Pods that wait."""
    for number in range(size.waiting + 1):
        yield f"/api/v1/namespaces/{WAITING}/pods", build_pod(f"waits-{number}", {"app": "waits"})
