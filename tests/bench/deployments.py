"""Cost of a Deployment's Pods on a real control plane: of a service with shares, beside the same service without.

Two servers and a controller share one Redis, as the manifests have it. kube-controller-manager may ask more often than
by default, so that the Pods come in a burst. What the processes use while nothing happens is subtracted.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.cpu import CORES, cpu_seconds, pin_to
from tests.bench.real_redis import real_redis
from tests.bench.spread import Spread
from tests.cluster.admission_configuration import stand_in_service
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.kwok import node
from tests.redis_servers import RedisServer
from webhook.core.placement import VARIANT_LABEL
from webhook.core.shares import SLOT_ANNOTATION, Split

ROUNDS, PODS = 3, 1_000
WITH, WITHOUT = "with-shares", "without-shares"
SPLIT = Split(("spot", "on-demand"), (4, 1), base_variant=1, base_pods=2)
SERVERS, CONTROLLER, REDIS = "servers", "controller", "Redis"
_SETTLE_SECONDS = 3.0
_QPS = 100
_KIND = "capacity"
_FLAGS = {"kube-controller-manager": (f"--kube-api-qps={_QPS}", f"--kube-api-burst={_QPS}")}
_TIME, _COMMANDS, _SCRIPTS, _GETS, _LISTS = "seconds", "commands", "scripts", "gets", "lists"
_TIMEOUT_SECONDS = 600.0

Readings = Counter[str]


def build_policy() -> str:
    """Return a policy with a service of each name, both with a quota; one divides its Pods."""
    weights = zip(SPLIT.names, SPLIT.weights, strict=True)
    variants = [{"name": name, "weight": weight, "nodeSelector": {_KIND: name}} for name, weight in weights]
    shares = {"shares": {"base": {"variant": "on-demand", "pods": SPLIT.base_pods}, "variants": variants}}
    services = [
        {
            "name": name,
            "failureMode": "Closed",
            "match": {"namespaces": [name]},
            "placement": {"nodeSelector": {"bench": "yes"}, **(shares if name == WITH else {})},
            "quota": {"windows": [{"window": "1h", "hard": {"pods": 100_000_000}}]},
        }
        for name in (WITHOUT, WITH)
    ]
    document = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": services}
    return msgspec.json.encode(document).decode()


@dataclass(frozen=True)
class Deployments:
    """An installation of Podgate, and Deployments in it."""

    installation: Installation
    redis: RedisServer

    @property
    def plane(self) -> ControlPlane:
        return self.installation.plane

    def measure(self, service: str, pods: int) -> dict[str, float]:
        """Create a Deployment of this many Pods; return what each of them has cost."""
        time.sleep(_SETTLE_SECONDS)
        before = self.read()
        time.sleep(_SETTLE_SECONDS)
        begun = self.read()
        self._create(service, pods)
        path = f"/apis/apps/v1/namespaces/{service}/deployments/web"
        self.plane.wait(
            lambda: self.plane.api.get(path)["status"].get("readyReplicas") == pods,
            f"{pods} Pods of {service}",
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        time.sleep(_SETTLE_SECONDS)  # the controller confirms their slots
        ended = self.read()
        self._check(service, pods)
        self.plane.delete(path)
        self.plane.empty_namespace(service)
        seconds = ended[_TIME] - begun[_TIME]
        quiet = {name: (begun[name] - before[name]) / (begun[_TIME] - before[_TIME]) for name in ended}
        used = {name: ended[name] - begun[name] - quiet[name] * seconds for name in ended}
        api = {name: ended[name] - begun[name] for name in (_GETS, _LISTS)}
        cpu_us = {name: used[name] * 1e6 / pods for name in (SERVERS, CONTROLLER, REDIS)}
        return {**cpu_us, _COMMANDS: used[_COMMANDS] / pods, _SCRIPTS: used[_SCRIPTS] / pods, **api, _TIME: seconds}

    def read(self) -> dict[str, float]:
        """Return CPU seconds by process, commands of Redis, and requests to the API server."""
        running = self.plane.processes
        servers, controllers = self.installation.servers, self.installation.controllers
        with self.redis.client() as client:
            stats = {name: found["calls"] for name, found in client.info("commandstats").items()}
        return {
            SERVERS: sum(cpu_seconds(running.pid(server.name)) for server in servers),
            CONTROLLER: sum(cpu_seconds(running.pid(controller.name)) for controller in controllers),
            REDIS: cpu_seconds(self.redis.pid),
            _COMMANDS: sum(stats.values()),
            _SCRIPTS: stats.get("cmdstat_evalsha", 0),
            _TIME: time.monotonic(),
            _GETS: self._count_requests("replicasets", "GET"),
            _LISTS: self._count_requests("pods", "LIST"),
        }

    def _count_requests(self, resource: str, verb: str) -> float:
        """Return how often the API server was asked, by anybody: controllers watch, and ask seldom."""
        _, text = self.plane.api.request("GET", "/metrics")
        lines = [line for line in str(text).splitlines() if line.startswith("apiserver_request_total{")]
        labels = f'resource="{resource}"', f'verb="{verb}"', 'subresource=""'
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))

    def _create(self, service: str, pods: int) -> None:
        labels = {"app": "web"}
        spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
        template = {"metadata": {"labels": labels}, "spec": spec}
        self.plane.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web", "namespace": service},
                "spec": {"replicas": pods, "selector": {"matchLabels": labels}, "template": template},
            }
        )

    def _check(self, service: str, pods: int) -> None:
        """Refuse to report figures of Pods that are not divided exactly."""
        if service != WITH:
            return
        metadata = [pod["metadata"] for pod in self.installation.pods(service)]
        variants = Counter(found["labels"][VARIANT_LABEL] for found in metadata)
        slots = sorted(int(found["annotations"][SLOT_ANNOTATION]) for found in metadata)
        if slots != [*range(1, pods + 1)] or variants != SPLIT.count_by_variant(pods):
            raise SystemExit(f"error: {len(set(slots))} slots of {pods}, {dict(variants)}")


@contextmanager
def run_deployments() -> Iterator[Deployments]:
    with (
        tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder,
        pin_to(*CORES),
        real_redis() as redis,
    ):
        identities = Identities.create(Path(folder))
        with ControlPlane({"good": identities.callers["good"]}, flags=_FLAGS) as plane:
            plane.apply(*stand_in_service())
            plane.add_nodes(
                *(node(f"{kind}-{number}", bench="yes", **{_KIND: kind}) for kind in SPLIT.names for number in range(4))
            )
            with install_podgate(plane, identities.files, build_policy(), [WITHOUT, WITH], servers=0) as installation:
                store = ("--store", redis.url)
                for _ in range(2):
                    installation.start_server("--drain", "0s", *store, "--store-deadline", "10s")
                installation.start_controller(*store)
                installation.wait_for_calls()
                yield Deployments(installation, redis)


def measure(rounds: int, pods: int = PODS) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    found: dict[str, list[dict[str, float]]] = {WITHOUT: [], WITH: []}
    with run_deployments() as deployments:
        for service in found:  # connections are opened, and caches fill
            deployments.measure(service, min(pods, 50))
        for number in range(rounds):
            for service in found if number % 2 else reversed(found):
                found[service].append(deployments.measure(service, pods))
    figures: list[dict[str, Any]] = [
        {
            "service": service,
            "pods": pods,
            **{name: Spread.from_values([costs[name] for costs in measured]) for name in measured[0]},
            "times_without": Spread.from_ratios(
                [costs[SERVERS] for costs in measured], [costs[SERVERS] for costs in found[WITHOUT]]
            ),
        }
        for service, measured in found.items()
    ]
    return [f"a Deployment of {pods} Pods, {rounds} rounds; CPU in us, for each Pod", *map(_format, figures)], figures


def _format(figures: dict[str, Any]) -> str:
    cpu = ", ".join(f"{name} {figures[name]:.0f}" for name in (SERVERS, CONTROLLER, REDIS))
    asked = f"{figures[_COMMANDS].median:.1f} commands, {figures[_SCRIPTS].median:.2f} calls of the script"
    api = f"GETs of ReplicaSets {figures[_GETS]:.0f}, LISTs of Pods {figures[_LISTS]:.0f}"
    return (
        f"  {figures['service']:16} servers {figures['times_without']:.2f} times without; {cpu};"
        f" Redis: {asked}; in all: {api}; {figures[_TIME].median:.0f} s"
    )
