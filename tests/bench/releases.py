"""Releases of waiting Pods at a real API server: their rate, and CPU time of all that take part.

In each round the Pods of 6 KB wait in a paused queue whose limits have room for all of them; then the pause ends.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.cpu import CORES, cpu_seconds, running_on
from tests.bench.real_redis import real_redis
from tests.bench.spread import Spread
from tests.bench.traffic import Workload, user_pod
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.harness.revisions import checked_out
from tests.harness.server_process import TREE
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.core.admission.mutation import QUEUE_GATE

ROUNDS, PODS = 3, 900
RATES = {"--release-rate 300": "300", "unbounded": "100000"}
AIM = "aim: 300 Pods/s, 2 ms of the controller for each"
CONTROLLER, API_SERVER, ETCD, REDIS = "controller", "kube-apiserver", "etcd", "Redis"
TIME, WAITING = "time", "waiting"
_MEASURED = 0.1, 0.9
"""From and up to which part of the Pods: the first ones leave in a burst, the last ones one by one."""
_POLL_SECONDS = 0.02
_SETTLE_SECONDS = 3.0
"""Until the store has received all Pods; then so long again is measured how much CPU is used without releases."""
_CLIENTS = 8
_POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: {name}
  match: {{namespaces: [{name}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000}}}}], whenExceeded: Queue, queue: {{maxPods: 10000}}}}
"""
_PAUSE = "- {{service: {name}, queue: Paused, until: 2100-01-01T00:00:00Z, reason: bench, by: bench}}\n"


@dataclass
class Releases:
    """A controller at one rate, and the measurements of its rounds."""

    name: str
    tree: Path
    rate: str
    per_second: list[float] = field(default_factory=list)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    """Of each Pod, beyond what is used while they wait."""

    def figures(self) -> dict[str, Any]:
        cpu_us = {name: Spread.of(values) for name, values in self.cpu_us.items()}
        return {"name": self.name, "per_second": Spread.of(self.per_second), "cpu_us": cpu_us}

    def __str__(self) -> str:
        cpu = ", ".join(f"{name} {Spread.of(values):.0f}" for name, values in self.cpu_us.items())
        return f"  {self.name:28} {Spread.of(self.per_second):.0f} Pods/s; CPU us for each: {cpu}"


def measured(rounds: int, revision: str | None = None, pods: int = PODS) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures; `revision` adds the controller of another commit."""
    trees = {"": TREE, **({"before: ": checked_out(revision)} if revision else {})}
    rows = [Releases(f"{when}{rate}", tree, value) for rate, value in RATES.items() for when, tree in trees.items()]
    with ExitStack() as stack:
        stack.enter_context(running_on(*CORES))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podgate-bench-")))
        redis = stack.enter_context(real_redis())
        plane = stack.enter_context(ControlPlane(components=API_ALONE, environment={}))
        plane.create_namespace(NAMESPACE)
        for number in range(rounds):
            for row in rows if number % 2 else reversed(rows):
                _round(row, f"queue-{number}-{rows.index(row)}", _Parts(plane, redis, folder), pods)
    title = f"releases of {pods} waiting Pods of 6 KB, {rounds} interleaved rounds; {AIM}"
    return [title, *map(str, rows)], [row.figures() for row in rows]


@dataclass(frozen=True)
class _Parts:
    plane: ControlPlane
    redis: RedisServer
    folder: Path


def _round(row: Releases, name: str, parts: _Parts, pods: int) -> None:
    plane, redis = parts.plane, parts.redis
    plane.create_namespace(name)
    _create(plane, name, pods)
    policy, overrides = parts.folder / "policy.yaml", parts.folder / "overrides.yaml"
    policy.write_text(_POLICY.format(name=name))
    overrides.write_text(_PAUSE.format(name=name))
    flags = ("--policy", policy, "--overrides", overrides, "--store", redis.url, "--release-rate", row.rate)
    with _controller(row.tree, plane, parts.folder, *map(str, flags)) as pid, redis.client() as client:
        key = f"podgate:{{{name}}}:v1:default:q:{name}"

        def waiting() -> int:
            return int(client.zcard(key))

        processes = {CONTROLLER: pid, **{one: plane.processes.pid(one) for one in API_ALONE[::-1]}, REDIS: redis.pid}
        _wait(lambda: waiting() == pods, "the Pods to be registered")
        time.sleep(_SETTLE_SECONDS)
        waited = _reading(processes, pods)
        time.sleep(_SETTLE_SECONDS)
        paused = _since(waited, _reading(processes, pods))
        first, last = (round(pods * (1 - part)) for part in _MEASURED)
        draft = overrides.with_suffix(".new")
        draft.write_text("[]\n")
        draft.rename(overrides)
        _wait(lambda: waiting() <= first, "the first releases")
        then = _reading(processes, waiting())
        _wait(lambda: waiting() <= last, "the releases")
        now = _reading(processes, waiting())
        _wait(lambda: not waiting(), "the last releases")
    _check(plane, name, pods)
    took, released = _since(then, now), then[WAITING] - now[WAITING]
    row.per_second.append(released / took[TIME])
    for process in processes:
        used_seconds = took[process] - paused[process] * took[TIME] / paused[TIME]
        row.cpu_us.setdefault(process, []).append(used_seconds / released * 1e6)
    plane.empty_namespace(name)


def _reading(processes: Mapping[str, int], waiting: int) -> dict[str, float]:
    """Return the CPU time of each process, in seconds, the time, and the number of waiting Pods."""
    return {**{name: cpu_seconds(pid) for name, pid in processes.items()}, TIME: time.monotonic(), WAITING: waiting}


def _since(then: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {name: value - then[name] for name, value in now.items()}


def _create(plane: ControlPlane, namespace: str, count: int) -> None:
    pod = user_pod(Workload())
    pod["metadata"] |= {"namespace": namespace}
    pod["spec"]["schedulingGates"] = [{"name": QUEUE_GATE}]

    def create(_: int) -> None:
        status, answer = plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        if status != 201:
            raise SystemExit(f"error: {status}: {json.dumps(answer)}")

    with ThreadPoolExecutor(_CLIENTS) as pool:
        list(pool.map(create, range(count)))


def _check(plane: ControlPlane, namespace: str, pods: int) -> None:
    found = plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    gated = sum("schedulingGates" in pod["spec"] for pod in found)
    if len(found) != pods or gated:
        raise SystemExit(f"error: {len(found)} Pods, {gated} of them with a gate; expected {pods} without")


@contextmanager
def _controller(tree: Path, plane: ControlPlane, folder: Path, *flags: str) -> Iterator[int]:
    """Run a controller of this tree; yield its pid."""
    user = plane.kubeconfig_for("podgate-bench", "system:masters")
    command = [sys.executable, "-m", "webhook", "controller", "--kubeconfig", str(user), *flags]
    with (folder / "controller.log").open("wb") as log:
        listen = ("--plain-listen", "127.0.0.1:0")
        process = subprocess.Popen([*command, *listen], stdout=log, stderr=log, cwd=tree, env={**os.environ})
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


def _wait(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + HANG_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"error: timed out waiting for {what}")
        time.sleep(_POLL_SECONDS)
