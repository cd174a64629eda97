"""Waiting Pods at a real API server, and the controller that releases them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from tests.bench.cpu import CORES, cpu_seconds, pin_to
from tests.bench.real_redis import real_redis
from tests.bench.traffic import Workload, user_pod
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.processes import find_free_ports
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.core.admission.mutation import QUEUE_GATE

TIME, WAITING = "time", "waiting"
CONTROLLER, REDIS = "controller", "Redis"
SETTLE_SECONDS = 3.0
"""Until the store has received all Pods."""
_POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: {name}
  match: {{namespaces: [{name}]}}
  quota: {{windows: [{{window: {window}, hard: {{pods: {hard}}}}}], whenExceeded: Queue, queue: {{maxPods: 10000}}}}
"""
_POLL_SECONDS = 0.02
_CLIENTS = 8


@dataclass(frozen=True)
class Parts:
    """An API server, etcd and Redis."""

    plane: ControlPlane
    redis: RedisServer
    folder: Path

    def processes(self, **others: int) -> dict[str, int]:
        return {**others, **{name: self.plane.processes.pid(name) for name in API_ALONE[::-1]}}

    def count_waiting(self, name: str) -> int:
        """Return how many Pods of a service are in the store's index."""
        with self.redis.client() as client:
            return int(client.zcard(f"podgate:{{{name}}}:v1:default:q:{name}"))

    def create(self, namespace: str, count: int, pod_bytes: int) -> None:
        """Create gated Pods in a new namespace."""
        self.plane.create_namespace(namespace)
        pod = user_pod(Workload(pod_bytes=pod_bytes, containers=1 + pod_bytes // 2000))
        pod["metadata"] |= {"namespace": namespace}
        pod["spec"]["schedulingGates"] = [{"name": QUEUE_GATE}]

        def create(_: int) -> None:
            status, answer = self.plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
            if status != 201:
                raise SystemExit(f"error: {status}: {json.dumps(answer)}")

        with ThreadPoolExecutor(_CLIENTS) as pool:
            list(pool.map(create, range(count)))

    def count_gated(self, namespace: str) -> tuple[int, int]:
        """Return how many Pods there are, and how many of them have a gate."""
        found = self.plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return len(found), sum("schedulingGates" in pod["spec"] for pod in found)

    @contextmanager
    def controller(self, tree: Path, document: str, *flags: str | Path) -> Iterator["RunningController"]:
        """Run a controller of a tree with a policy; it leads when the block begins."""
        path, user = self.folder / "policy.yaml", self.plane.write_kubeconfig("podgate-bench", "system:masters")
        path.write_text(document)
        listen = f"127.0.0.1:{find_free_ports(1)[0]}"
        command = (sys.executable, "-m", "webhook", "controller", "--kubeconfig", user, "--policy", path)
        others = ("--store", self.redis.url, "--plain-listen", listen, *flags)
        with (self.folder / "controller.log").open("wb") as log:
            process = subprocess.Popen([*command, *others], stdout=log, stderr=log, cwd=tree, env={**os.environ})
        try:
            controller = RunningController(process.pid, listen)
            wait(controller.leads, "the controller to lead")
            yield controller
        finally:
            process.terminate()
            process.wait(HANG_SECONDS)


@dataclass(frozen=True)
class RunningController:
    """A process of `podgate controller`."""

    pid: int
    listen: str

    def leads(self) -> bool:
        try:
            return self.total("podgate_leader") == 1
        except OSError:  # it does not listen yet
            return False

    def total(self, name: str, label: str = "") -> float:
        """Return the sum over all series of a metric that have a label."""
        with urlopen(f"http://{self.listen}/metrics", timeout=HANG_SECONDS) as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name) and label in line)


@contextmanager
def parts() -> Iterator[Parts]:
    with ExitStack() as stack:
        stack.enter_context(pin_to(*CORES))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="podgate-bench-")))
        redis = stack.enter_context(real_redis())
        plane = stack.enter_context(ControlPlane(components=API_ALONE, environment={}))
        plane.create_namespace(NAMESPACE)
        yield Parts(plane, redis, folder)


def policy(name: str, hard: int, window: str) -> str:
    """Return one whose only service, of the namespace of that name, has a queue."""
    return _POLICY.format(name=name, hard=hard, window=window)


def read_figures(processes: Mapping[str, int], waiting: int) -> dict[str, float]:
    """Return the CPU time of each process, in seconds, the time, and the number of waiting Pods."""
    return {**{name: cpu_seconds(pid) for name, pid in processes.items()}, TIME: time.monotonic(), WAITING: waiting}


def subtract(then: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {name: value - then[name] for name, value in now.items()}


def wait(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + HANG_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"error: timed out waiting for {what}")
        time.sleep(_POLL_SECONDS)
