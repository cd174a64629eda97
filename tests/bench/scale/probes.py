"""Probes of a large cluster: how late the controller learns of a change, and how long a process answers nobody."""

import http.client
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.bench.scale.cluster import LargeCluster, build_pod, live_key
from tests.cluster.server import Server
from tests.timeouts import HANG_SECONDS

_PROBED = "s0"
_POLL_SECONDS = 0.001
_ASK_SECONDS, ASK_SELDOM_SECONDS = 0.005, 0.05
"""Intervals of the question; seldom where CPU is measured meanwhile."""


class Lag(NamedTuple):
    """Seconds from the API server's answer until the store has been told: median, and the longest."""

    median: float
    longest: float


def measure_lag(cluster: LargeCluster, probes: int, pause_seconds: float = 0.0) -> Lag:
    """Delete Pods one after another; each is away when the controller has seen it and told the store."""
    lags = []
    namespace, app = cluster.size.find_place(0)
    path, key = f"/api/v1/namespaces/{namespace}/pods", live_key(_PROBED)
    with cluster.redis.client() as client:
        for number in range(probes):
            name = f"probe-{number}-{time.monotonic_ns()}"
            status, pod = cluster.plane.api.request("POST", path, build_pod(name, {"app": app}, nodeName="node-0"))
            assert status == 201, pod
            field, until = f"u:{pod['metadata']['uid']}", time.monotonic() + HANG_SECONDS
            while not client.hexists(key, field):
                assert time.monotonic() < until, "the store is not told of a new Pod"
                time.sleep(_POLL_SECONDS)
            status, answer = cluster.plane.api.request("DELETE", f"{path}/{name}?gracePeriodSeconds=0")
            assert status == 200, answer
            began = time.monotonic()
            while client.hexists(key, field):
                assert time.monotonic() < until, "the store is not told of a deleted Pod"
                time.sleep(_POLL_SECONDS)
            lags.append(time.monotonic() - began)
            time.sleep(pause_seconds)
    return Lag(statistics.median(lags), max(lags))


@dataclass
class Stall:
    """The longest time that a process took to answer `/healthz`, which needs one turn of its loop."""

    longest_seconds: float = 0.0
    answers: int = 0
    pause_seconds: float = _ASK_SECONDS
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self, server: Server) -> None:
        host, _, port = server.plain.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=HANG_SECONDS)
        while not self._ended.is_set():
            began = time.monotonic()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            self.answers += 1
            time.sleep(self.pause_seconds)
        connection.close()


@contextmanager
def watch_stalls(server: Server, pause_seconds: float = _ASK_SECONDS) -> Iterator[Stall]:
    """Ask a process all the time until the block ends."""
    stall = Stall(pause_seconds=pause_seconds)
    thread = threading.Thread(target=stall.watch, args=(server,))
    thread.start()
    try:
        yield stall
    finally:
        stall._ended.set()
        thread.join()


class Command(NamedTuple):
    """What a command has cost: CPU seconds of its process, and the length of its output."""

    cpu_seconds: float
    seconds: float
    output_bytes: int


def measure_command(*arguments: str) -> Command:
    """Run `podgate` as a process of its own. SystemExit if it fails."""
    before, began = os.times(), time.monotonic()
    command = [sys.executable, "-m", "webhook", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    seconds, after = time.monotonic() - began, os.times()
    if done.returncode != 0:
        raise SystemExit(f"error: podgate {' '.join(arguments)}: {done.returncode}: {done.stderr.decode()}")
    used = after.children_user - before.children_user + after.children_system - before.children_system
    return Command(used, seconds, len(done.stdout))


def measure_commands(cluster: LargeCluster) -> dict[str, Command]:
    """Return what the commands of an operator cost, by name."""
    [server, *_], leader = cluster.installation.servers, cluster.controller
    namespace, _ = cluster.size.find_place(0)
    urls: Sequence[str] = ("--server", f"http://{server.decisions}", "--leader", f"http://{leader.plain}")
    user = ("--kubeconfig", str(cluster.plane.kubeconfig), "--status", f"http://{server.plain}")
    explained = ("explain", "pod", f"{namespace}/web-0", *urls, *user, "--extender", "http://127.0.0.1:1")
    return {
        "status": measure_command("status", "--server", f"http://{server.plain}"),
        "status SERVICE": measure_command("status", _PROBED, "--server", f"http://{server.plain}"),
        "queue": measure_command("queue", "--server", f"http://{leader.plain}"),
        "explain pod": measure_command(*explained),
    }
