"""Cost of many Pods that wait, and how soon each is released once it may be.

The limit admits a few each time; until then their controller has nothing to do but to know when.
"""

import time
from typing import Any

from tests.bench.pods import memory_bytes
from tests.bench.releases.waiting_pods import (
    CONTROLLER,
    REDIS,
    TIME,
    WAITING,
    RunningController,
    parts,
    policy,
    read_figures,
    subtract,
    wait,
)
from tests.harness.server_process import TREE

PODS, HARD, WINDOW = 10_000, 5, "1s"
_BYTES = 2_000
_SETTLE_SECONDS, _SECONDS = 5.0, 20.0
_LATENCY = "podgate_queue_release_duration_seconds"
_WITHIN_MS = 50, 100, 250
_NAME = "waits"


def measure(pods: int = PODS) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of the output, and the figures."""
    with parts() as its:
        with its.controller(TREE, policy(_NAME, HARD, WINDOW)) as controller:
            time.sleep(_SETTLE_SECONDS)
            empty_bytes, _ = memory_bytes(controller.pid)
        its.create(_NAME, pods, _BYTES)
        with its.controller(TREE, policy(_NAME, HARD, WINDOW)) as controller:
            wait(lambda: its.count_waiting(_NAME) > pods // 2, "the Pods to be registered")
            time.sleep(_SETTLE_SECONDS)
            processes = its.processes(**{CONTROLLER: controller.pid, REDIS: its.redis.pid})
            then = {**_latencies(controller), **read_figures(processes, its.count_waiting(_NAME))}
            time.sleep(_SECONDS)
            took = subtract(then, {**read_figures(processes, its.count_waiting(_NAME)), **_latencies(controller)})
            full_bytes, peak_bytes = memory_bytes(controller.pid)
    figures = {
        "pods": pods,
        "cpu_ms_a_second": {name: took[name] / took[TIME] * 1e3 for name in processes},
        "bytes_a_pod": (full_bytes - empty_bytes) / pods,
        "peak_bytes": peak_bytes,
        "released_a_second": -took[WAITING] / took[TIME],
        "latency_ms": took["sum"] / took["count"] * 1e3,
        **{f"within_{ms}_ms": took[_format_limit(ms)] / took["count"] for ms in _WITHIN_MS},
    }
    cpu = ", ".join(f"{name} {ms:.1f}" for name, ms in figures["cpu_ms_a_second"].items())
    within = ", ".join(f"{figures[f'within_{ms}_ms']:.0%} within {ms} ms" for ms in _WITHIN_MS)
    lines = [
        f"{pods} waiting Pods of 2 KB, {HARD} released in {WINDOW}",
        f"  CPU, ms a second: {cpu}",
        f"  memory of the controller: {figures['bytes_a_pod']:.0f} bytes a Pod, at most {peak_bytes >> 20} MiB in all",
        f"  latency of {took['count']:.0f} releases: mean {figures['latency_ms']:.0f} ms, {within}",
    ]
    return lines, figures


def _latencies(controller: RunningController) -> dict[str, float]:
    """Return number and sum of the latencies, and how many are within each bound."""
    buckets = {_format_limit(ms): controller.total(f"{_LATENCY}_bucket", f'le="{ms / 1e3:g}"') for ms in _WITHIN_MS}
    return {**buckets, **{name: controller.total(f"{_LATENCY}_{name}") for name in ("count", "sum")}}


def _format_limit(ms: int) -> str:
    return f"within {ms}"
