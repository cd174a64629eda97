"""Rate of releases at a real API server, and CPU time of all that take part.

In each round the Pods wait in a paused queue whose limits have room for all of them; then the pause ends. A client in
Go that only sends the same patches shows what the API server can do: nobody watches, nothing is charged.
"""

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.programs import go_programs
from tests.bench.releases.waiting_pods import (
    CONTROLLER,
    REDIS,
    SETTLE_SECONDS,
    TIME,
    WAITING,
    Parts,
    parts,
    policy,
    read_figures,
    subtract,
    wait,
)
from tests.bench.spread import Spread
from tests.harness.revisions import check_out
from tests.harness.server_process import TREE
from webhook.core.admission.mutation import QUEUE_GATE

ROUNDS, PODS = 3, 900
BYTES = 2_000, 6_000
BARE = "bare client"
RATES = {BARE: "", "--release-rate 300": "300", "unbounded": "100000"}
AIM = "aim: 300 Pods/s, or 0.9 of the bare client's; 2 ms of the controller for each"
_MEASURED = 0.1, 0.9
"""From and up to which part of the Pods: the first ones leave in a burst, the last ones one by one."""
_RELEASES_IN_FLIGHT_MAX = 16
"""Patches at once of the bare client: those of the controller."""
_PAUSE = "- {{service: {name}, queue: Paused, until: 2100-01-01T00:00:00Z, reason: bench, by: bench}}\n"


_Readings = dict[str, float]


@dataclass
class Releases:
    """A controller at one rate, or the bare client, and the measurements of its rounds."""

    name: str
    tree: Path
    rate: str
    pod_bytes: int
    per_second: list[float] = field(default_factory=list)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    """Of each Pod, beyond what is used while they wait."""

    def add(self, paused: _Readings, took: _Readings) -> None:
        released = -took[WAITING]
        self.per_second.append(released / took[TIME])
        for process in took.keys() - {TIME, WAITING}:
            used_seconds = took[process] - paused[process] * took[TIME] / paused[TIME]
            self.cpu_us.setdefault(process, []).append(used_seconds / released * 1e6)

    def figures(self, bare: "Releases") -> dict[str, Any]:
        cpu_us = {name: Spread.from_values(values) for name, values in self.cpu_us.items()}
        rates = {"per_second": Spread.from_values(self.per_second), "of_bare_client": self._compare(bare)}
        return {"name": self.name, "pod_bytes": self.pod_bytes, **rates, "cpu_us": cpu_us}

    def line(self, bare: "Releases") -> str:
        cpu = ", ".join(f"{name} {Spread.from_values(values):.0f}" for name, values in sorted(self.cpu_us.items()))
        rate = f"{Spread.from_values(self.per_second):.0f} Pods/s, {self._compare(bare):.2f} of the {BARE}'s"
        return f"  {self.name:28} {rate}; CPU us for each: {cpu}"

    def _compare(self, bare: "Releases") -> Spread:
        return Spread.from_ratios(self.per_second, bare.per_second)


def measure_releases(
    rounds: int, revision: str | None = None, pods: int = PODS
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures; `revision` adds the controller of another commit."""
    trees = {"": TREE, **({"before: ": check_out(revision)} if revision else {})}
    named = [(when, name) for name in RATES for when in trees if name != BARE or not when]
    sizes = [
        [Releases(f"{when}{name}", trees[when], RATES[name], pod_bytes) for when, name in named] for pod_bytes in BYTES
    ]
    go_programs()  # built before anything is measured
    with parts() as its:
        for number in range(rounds):
            for rows in sizes:
                for row in rows if number % 2 else reversed(rows):
                    name = f"queue-{row.pod_bytes}-{number}-{rows.index(row)}"
                    its.create(name, pods, row.pod_bytes)
                    measure = _measure_controller if row.rate else _measure_bare_client
                    row.add(*measure(row, name, its, pods))
                    if its.count_gated(name) != (pods, 0):
                        raise SystemExit(
                            f"error: {its.count_gated(name)} Pods and gated Pods; expected {pods} without gates"
                        )
                    its.plane.empty_namespace(name)
    lines = [f"releases of {pods} waiting Pods, {rounds} interleaved rounds; {AIM}"]
    for pod_bytes, rows in zip(BYTES, sizes, strict=True):
        lines += [f"  Pods of {pod_bytes // 1000} KB", *(row.line(rows[0]) for row in rows)]
    return lines, [row.figures(rows[0]) for rows in sizes for row in rows]


def _measure_controller(row: Releases, name: str, its: Parts, pods: int) -> tuple[_Readings, _Readings]:
    overrides = its.folder / "overrides.yaml"
    overrides.write_text(_PAUSE.format(name=name))
    flags = ("--overrides", overrides, "--release-rate", row.rate)
    with its.controller(row.tree, policy(name, 100_000, "1h"), *flags) as controller:
        processes = its.processes(**{CONTROLLER: controller.pid, REDIS: its.redis.pid})
        wait(lambda: its.count_waiting(name) == pods, "the Pods to be registered")
        paused = _measure_paused(processes, pods)
        first, last = _bounds(pods)
        draft = overrides.with_suffix(".new")
        draft.write_text("[]\n")
        draft.rename(overrides)
        wait(lambda: its.count_waiting(name) <= first, "the first releases")
        then = read_figures(processes, its.count_waiting(name))
        wait(lambda: its.count_waiting(name) <= last, "the releases")
        now = read_figures(processes, its.count_waiting(name))
        wait(lambda: not its.count_waiting(name), "the last releases")
    return paused, subtract(then, now)


def _measure_bare_client(_: Releases, name: str, its: Parts, pods: int) -> tuple[_Readings, _Readings]:
    plane = its.plane
    found = plane.api.get(f"/api/v1/namespaces/{name}/pods")["items"]
    user = plane.authority.user("podgate-bench", "system:masters")
    credentials = {"ca": plane.authority.certificate, "certificate": user[0], "key": user[1]}
    url = f"https://127.0.0.1:{plane.ports.apiserver}"
    plan = {"url": url, **{key: str(path) for key, path in credentials.items()}, "clients": _RELEASES_IN_FLIGHT_MAX}
    plan["requests"] = [_patch(pod["metadata"]) for pod in found]
    processes = its.processes()
    paused = _measure_paused(processes, pods)
    readings = []
    with subprocess.Popen([go_programs().patcher], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(json.dumps(plan))
        client.stdin.close()
        for answered, _ in enumerate(client.stdout, 1):
            if pods - answered in _bounds(pods):
                readings.append(read_figures(processes, pods - answered))
    then, now = readings
    return paused, subtract(then, now)


def _measure_paused(processes: Mapping[str, int], pods: int) -> _Readings:
    """Return how much CPU is used without releases."""
    time.sleep(SETTLE_SECONDS)
    waited = read_figures(processes, pods)
    time.sleep(SETTLE_SECONDS)
    return subtract(waited, read_figures(processes, pods))


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
