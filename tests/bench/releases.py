"""Releases of waiting Pods at a real API server: their rate, and CPU time of all that take part.

In each round the Pods of 6 KB wait in a paused queue whose limits have room for all of them; then the pause ends.
A client in Go that only sends the same patches shows what the API server can do: nobody watches, nothing is charged.
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
from tests.bench.programs import go_programs
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
BARE = "bare client"
RATES = {BARE: "", "--release-rate 300": "300", "unbounded": "100000"}
AIM = "aim: 300 Pods/s, or 0.9 of the bare client's; 2 ms of the controller for each"
CONTROLLER, API_SERVER, ETCD, REDIS = "controller", "kube-apiserver", "etcd", "Redis"
TIME, WAITING = "time", "waiting"
_MEASURED = 0.1, 0.9
"""From and up to which part of the Pods: the first ones leave in a burst, the last ones one by one."""
_POLL_SECONDS = 0.02
_SETTLE_SECONDS = 3.0
"""Until the store has received all Pods; then so long again is measured how much CPU is used without releases."""
_CLIENTS = 8
_AT_ONCE = 16
"""Patches at once of the bare client: those of the controller."""
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

    def figures(self, bare: "Releases") -> dict[str, Any]:
        cpu_us = {name: Spread.of(values) for name, values in self.cpu_us.items()}
        rates = {"per_second": Spread.of(self.per_second), "of_bare_client": self._of(bare)}
        return {"name": self.name, **rates, "cpu_us": cpu_us}

    def line(self, bare: "Releases") -> str:
        cpu = ", ".join(f"{name} {Spread.of(values):.0f}" for name, values in self.cpu_us.items())
        rate = f"{Spread.of(self.per_second):.0f} Pods/s, {self._of(bare):.2f} of the {BARE}'s"
        return f"  {self.name:28} {rate}; CPU us for each: {cpu}"

    def _of(self, bare: "Releases") -> Spread:
        return Spread.of_ratios(self.per_second, bare.per_second)


def measured(rounds: int, revision: str | None = None, pods: int = PODS) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures; `revision` adds the controller of another commit."""
    trees = {"": TREE, **({"before: ": checked_out(revision)} if revision else {})}
    rows = [
        Releases(f"{when}{name}", tree, rate)
        for name, rate in RATES.items()
        for when, tree in trees.items()
        if rate or not when
    ]
    patcher = go_programs().patcher
    with ExitStack() as stack:
        stack.enter_context(running_on(*CORES))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podgate-bench-")))
        redis = stack.enter_context(real_redis())
        plane = stack.enter_context(ControlPlane(components=API_ALONE, environment={}))
        plane.create_namespace(NAMESPACE)
        for number in range(rounds):
            for row in rows if number % 2 else reversed(rows):
                (_round if row.rate else _bare_round)(
                    row, f"queue-{number}-{rows.index(row)}", _Parts(plane, redis, folder, patcher), pods
                )
    title = f"releases of {pods} waiting Pods of 6 KB, {rounds} interleaved rounds; {AIM}"
    return [title, *(row.line(rows[0]) for row in rows)], [row.figures(rows[0]) for row in rows]


@dataclass(frozen=True)
class _Parts:
    plane: ControlPlane
    redis: RedisServer
    folder: Path
    patcher: Path

    def processes(self, **others: int) -> dict[str, int]:
        return {**others, **{one: self.plane.processes.pid(one) for one in API_ALONE[::-1]}}


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

        processes = parts.processes(**{CONTROLLER: pid, REDIS: redis.pid})
        _wait(lambda: waiting() == pods, "the Pods to be registered")
        time.sleep(_SETTLE_SECONDS)
        waited = _reading(processes, pods)
        time.sleep(_SETTLE_SECONDS)
        paused = _since(waited, _reading(processes, pods))
        first, last = _bounds(pods)
        draft = overrides.with_suffix(".new")
        draft.write_text("[]\n")
        draft.rename(overrides)
        _wait(lambda: waiting() <= first, "the first releases")
        then = _reading(processes, waiting())
        _wait(lambda: waiting() <= last, "the releases")
        now = _reading(processes, waiting())
        _wait(lambda: not waiting(), "the last releases")
    _check(plane, name, pods)
    _add(row, processes, paused, _since(then, now))
    plane.empty_namespace(name)


def _bare_round(row: Releases, name: str, parts: _Parts, pods: int) -> None:
    plane = parts.plane
    plane.create_namespace(name)
    _create(plane, name, pods)
    found = plane.api.get(f"/api/v1/namespaces/{name}/pods")["items"]
    user = plane.authority.user("podgate-bench", "system:masters")
    credentials = {"ca": plane.authority.certificate, "certificate": user[0], "key": user[1]}
    url = f"https://127.0.0.1:{plane.ports.apiserver}"
    plan = {"url": url, **{key: str(path) for key, path in credentials.items()}, "clients": _AT_ONCE}
    plan["requests"] = [_patch(pod["metadata"]) for pod in found]
    time.sleep(_SETTLE_SECONDS)
    processes = parts.processes()
    waited = _reading(processes, pods)
    time.sleep(_SETTLE_SECONDS)
    paused = _since(waited, _reading(processes, pods))
    readings = []
    with subprocess.Popen([parts.patcher], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(json.dumps(plan))
        client.stdin.close()
        for answered, _ in enumerate(client.stdout, 1):
            if pods - answered in _bounds(pods):
                readings.append(_reading(processes, pods - answered))
    _check(plane, name, pods)
    then, now = readings
    _add(row, processes, paused, _since(then, now))
    plane.empty_namespace(name)


def _patch(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that releases a Pod: the one of `PodGates`."""
    gate = "/spec/schedulingGates/0"
    body = [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": f"{gate}/name", "value": QUEUE_GATE},
        {"op": "remove", "path": gate},
    ]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    return {"method": "PATCH", "path": path, "content_type": "application/json-patch+json", "body": body}


def _bounds(pods: int) -> tuple[int, int]:
    """Return how many Pods wait at the beginning and at the end of the measurement."""
    first, last = (round(pods * (1 - part)) for part in _MEASURED)
    return first, last


def _add(row: Releases, processes: Mapping[str, int], paused: Mapping[str, float], took: Mapping[str, float]) -> None:
    released = -took[WAITING]
    row.per_second.append(released / took[TIME])
    for process in processes:
        used_seconds = took[process] - paused[process] * took[TIME] / paused[TIME]
        row.cpu_us.setdefault(process, []).append(used_seconds / released * 1e6)


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
