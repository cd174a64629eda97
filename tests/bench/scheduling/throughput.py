"""Scheduling with the extender: Pods a second of a real kube-scheduler, and what the extender costs for each Pod.

Without an extender, with `podgate extender` under a policy without the stanza `scheduling`, which passes all nodes on
the same listener, and with all its rules. All processes run in all rounds, and both extenders watch Nodes and Pods: the
ways differ in their calls only. A scheduler is stopped while its Pods are created; the time is from its continuation
until the last Pod is bound.
"""

import os
import re
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from tests.bench.cpu import cpu_seconds
from tests.bench.pods import memory_bytes
from tests.bench.scheduling.cluster import (
    ALL_RULES,
    EXTENDERS,
    NONE,
    PASS_ALL,
    PODS_PATH,
    WAYS,
    SchedulingCluster,
    pod,
    profile,
    run_scheduling_cluster,
)
from tests.bench.scheduling.opcodes import measure_opcodes
from tests.bench.spread import Spread

PODS = 200
QUIET_SECONDS = 10.0
SIZES = ((100, 100), (1_000, 100), (5_000, 0))
"""Numbers of nodes, and the percentage of them that is asked, 0 for the scheduler's own choice: 10 of 5,000."""
_OWN_CHOICE_PERCENT = 10
_VERBS = ("filter", "prioritize")
_POLL_SECONDS = 0.02


@dataclass
class Scheduled:
    """The rounds of one way."""

    way: str
    pods_per_second: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """CPU of the extender for each Pod."""


def measure(
    nodes: int, percentage: int, rounds: int, pods: int, quiet_seconds: float
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of the output, and the figures."""
    with run_scheduling_cluster(nodes, percentage) as cluster:
        ways = [Scheduled(way) for way in WAYS]
        for scheduled in ways:
            _round(cluster, Scheduled(scheduled.way), pods)  # connections are opened, and caches filled
        before = cluster.metrics(ALL_RULES)
        for number in range(rounds):
            for scheduled in ways if number % 2 else reversed(ways):
                _round(cluster, scheduled, pods)
        quantiles = _quantiles(before, cluster.metrics(ALL_RULES))
        pid = cluster.plane.processes.pid(profile(ALL_RULES))
        started, spent = time.monotonic(), cpu_seconds(pid)
        time.sleep(quiet_seconds)
        idle_ms = (cpu_seconds(pid) - spent) * 1e3 / (time.monotonic() - started)
        resident_bytes, _ = memory_bytes(pid)
    rates = {scheduled.way: scheduled.pods_per_second for scheduled in ways}
    own = ways[-1]
    opcodes = measure_opcodes(nodes, nodes * (percentage or _OWN_CHOICE_PERCENT) // 100)
    figures = {
        "nodes": nodes,
        "percentage": percentage,
        "pods_per_second": {way: Spread.from_values(found) for way, found in rates.items()},
        "passes_all_by_none": Spread.from_ratios(rates[PASS_ALL], rates[NONE]),
        "all_rules_by_passes_all": Spread.from_ratios(rates[ALL_RULES], rates[PASS_ALL]),
        "cpu_ms": Spread.from_values(own.cpu_ms),
        "passes_all_cpu_ms": Spread.from_values(ways[1].cpu_ms),
        "opcodes": opcodes,
        "quantiles_ms": quantiles,
        "idle_ms": idle_ms,
        "rss_mib": resident_bytes >> 20,
    }
    return _lines(figures, rounds, pods), figures


def _lines(figures: dict[str, Any], rounds: int, pods: int) -> list[str]:
    asked = f"{figures['percentage']} % asked" if figures["percentage"] else "asked by the scheduler's own choice"
    rates = ", ".join(f"{way} {rate:.0f}" for way, rate in figures["pods_per_second"].items())
    opcodes = figures["opcodes"]
    quantiles = ", ".join(f"{name} {value:.2f}" for name, value in figures["quantiles_ms"].items())
    return [
        f"{figures['nodes']} nodes, {asked}; {rounds} interleaved rounds of {pods} Pods",
        f"  Pods a second: {rates}",
        f"  {PASS_ALL} by {NONE}: {figures['passes_all_by_none']:.2f}",
        f"  {ALL_RULES} by {PASS_ALL}: {figures['all_rules_by_passes_all']:.2f} (target: at least 0.6)",
        f"  CPU of the extender for each Pod, ms: {figures['cpu_ms']:.2f} (target: at most 3)",
        f"  the same of {PASS_ALL}: {figures['passes_all_cpu_ms']:.2f}",
        f"  opcodes for each Pod: {ALL_RULES} {opcodes[ALL_RULES]:.0f}, {PASS_ALL} {opcodes[PASS_ALL]:.0f}",
        f"  answer, ms: {quantiles}",
        f"  without calls: CPU {figures['idle_ms']:.1f} ms a second; RSS {figures['rss_mib']} MiB",
    ]


def _round(cluster: SchedulingCluster, scheduled: Scheduled, pods: int) -> None:
    """Schedule this many Pods one way, and delete them."""
    processes, api = cluster.plane.processes, cluster.plane.api
    scheduler = processes.pid(f"{profile(scheduled.way)}-scheduler")
    extender = processes.pid(profile(scheduled.way)) if scheduled.way in EXTENDERS else None
    os.kill(scheduler, signal.SIGSTOP)
    try:
        for number in range(pods):
            status, answer = api.request("POST", PODS_PATH, pod(f"{profile(scheduled.way)}-{number}", scheduled.way))
            assert status == 201, answer
    finally:
        spent = cpu_seconds(extender) if extender else 0.0
        started = time.monotonic()
        os.kill(scheduler, signal.SIGCONT)
    while api.get(f"{PODS_PATH}?fieldSelector=spec.nodeName%3D&limit=1")["items"]:
        processes.require(f"{profile(scheduled.way)}-scheduler")
        time.sleep(_POLL_SECONDS)
    scheduled.pods_per_second.append(pods / (time.monotonic() - started))
    if extender:
        scheduled.cpu_ms.append((cpu_seconds(extender) - spent) * 1e3 / pods)
    api.request("DELETE", f"{PODS_PATH}?gracePeriodSeconds=0")
    while api.get(f"{PODS_PATH}?limit=1")["items"]:
        time.sleep(_POLL_SECONDS)


def _quantiles(before: str, after: str) -> dict[str, float]:
    """Return p50 and p99 of each verb in milliseconds, interpolated within their buckets as Prometheus does."""
    found = {}
    for verb in _VERBS:
        first, last = _buckets(before, verb), _buckets(after, verb)
        counts = {bound: count - first.get(bound, 0.0) for bound, count in last.items()}
        for quantile in (0.5, 0.99):
            found[f"{verb} p{quantile * 100:g}"] = _quantile(counts, quantile) * 1e3
    return found


def _buckets(text: str, verb: str) -> dict[float, float]:
    pattern = rf'^podgate_extender_duration_seconds_bucket\{{(?=[^}}]*verb="{verb}")[^}}]*le="([^"]+)"[^}}]*\}} (\S+)'
    return {float(bound): float(count) for bound, count in re.findall(pattern, text, re.MULTILINE)}


def _quantile(counts: dict[float, float], quantile: float) -> float:
    """Return a quantile in seconds of cumulative counts by upper bound."""
    bounds = sorted(counts)
    wanted = quantile * counts[bounds[-1]]
    lower, below = 0.0, 0.0
    for bound in bounds[:-1]:
        if counts[bound] >= wanted:
            return lower + (bound - lower) * (wanted - below) / max(1.0, counts[bound] - below)
        lower, below = bound, counts[bound]
    return lower


def measure_sizes(rounds: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures, of all sizes."""
    lines, figures = [], []
    for nodes, percentage in SIZES:
        found = measure(nodes, percentage, rounds, PODS, QUIET_SECONDS)
        lines += found[0]
        figures.append(found[1])
    return lines, figures
