"""`python -m tests.bench --only scale`: what servers, controller, Redis and commands cost in a growing cluster.

At each step Pods are created until there are so many. Then, without other load: the lag of the watch, a change of the
policy, a server and a controller that start, and the commands of an operator.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.request import urlopen

from tests.bench.cpu import cpu_seconds
from tests.bench.scale.cluster import (
    API_SERVER,
    CONTROLLER,
    ETCD,
    REDIS,
    SERVERS,
    LargeCluster,
    run_large_cluster,
)
from tests.bench.scale.probes import ASK_SELDOM_SECONDS, Lag, measure_commands, measure_lag, watch_stalls
from tests.bench.scale.size import LARGE, WAITING, Size
from tests.cluster.controller_fixture import leads
from tests.cluster.server import Server
from tests.timeouts import HANG_SECONDS
from webhook.core.document import Purpose, load

_MIB = 1 << 20
_POLL_SECONDS = 0.05

Figures = dict[str, Any]


def measure(
    size: Size = LARGE, on_step: Callable[[str, list[Figures]], None] = lambda _, __: None
) -> tuple[list[str], list[Figures]]:
    """Return the lines of the output, and the figures of each step; `on_step` receives them as they are found."""
    rows: list[Figures] = []
    began = time.monotonic()
    title = f"{size.nodes} nodes, {size.namespaces} namespaces, {size.services} services"
    with run_large_cluster(size) as cluster:
        on_step(f"{title}: {_since(began)}", rows)
        for step in size.steps:
            rows.append(_measure_step(cluster, step))
            on_step(f"{_format(rows[-1])}\n    after {_since(began)}", rows)
    return [title, *map(_format, rows)], rows


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"


def _measure_step(cluster: LargeCluster, step: int) -> Figures:
    created = step - cluster.pods
    figures: Figures = {"pods": step, "nodes": cluster.size.nodes, "services": cluster.size.services}
    before = cluster.read()
    first, seldom = cluster.installation.servers[0], ASK_SELDOM_SECONDS
    with watch_stalls(first, seldom) as server, watch_stalls(cluster.controller, seldom) as controller:
        seconds = cluster.create_pods(step)
        cluster.wait_for_pods()
    after = cluster.read()
    figures["per_second"] = created / seconds
    figures["cpu_s_per_1000"] = {name: (after[name] - before[name]) / created * 1000 for name in after}
    figures["busy_stall_ms"] = _format_stalls(server.longest_seconds, controller.longest_seconds)
    figures |= _measure_quiet(cluster)
    figures |= _measure_memory(cluster)
    figures["swap"] = _measure_swap(cluster, step)
    figures["start"] = {SERVERS: _measure_server_start(cluster), CONTROLLER: _measure_controller_start(cluster)}
    figures["commands"] = {
        name: {"cpu_s": command.cpu_seconds, "seconds": command.seconds, "bytes": command.output_bytes}
        for name, command in measure_commands(cluster).items()
    }
    figures["counts"] = _count(cluster)
    return figures


def _format_stalls(server_seconds: float, controller_seconds: float) -> dict[str, float]:
    return {SERVERS: server_seconds * 1e3, CONTROLLER: controller_seconds * 1e3}


def _measure_quiet(cluster: LargeCluster) -> Figures:
    """Return CPU per second without load, the longest stalls meanwhile, and the lag of the watch."""
    before, began = cluster.read(), time.monotonic()
    time.sleep(cluster.size.quiet_seconds)
    after, seconds = cluster.read(), time.monotonic() - began
    with watch_stalls(cluster.installation.servers[0]) as server, watch_stalls(cluster.controller) as controller:
        lag = measure_lag(cluster, cluster.size.probes)
    return {
        "idle_ms_per_second": {name: (after[name] - before[name]) / seconds * 1e3 for name in after},
        "quiet_stall_ms": _format_stalls(server.longest_seconds, controller.longest_seconds),
        "lag_ms": Lag(*(seconds * 1e3 for seconds in lag))._asdict(),
    }


def _measure_memory(cluster: LargeCluster) -> Figures:
    servers = [cluster.find_resident_bytes(server)[0] for server in cluster.installation.servers]
    resident, peak = cluster.find_resident_bytes(cluster.controller)
    with cluster.redis.client() as client:
        used, keys, clients = client.info("memory")["used_memory"], client.dbsize(), client.info("clients")
    return {
        "rss_mib": {SERVERS: max(servers) / _MIB, CONTROLLER: resident / _MIB, "controller, peak": peak / _MIB},
        "redis_mib": used / _MIB,
        "redis_keys": keys,
        "redis_connections": clients["connected_clients"],
    }


def _measure_swap(cluster: LargeCluster, number: int) -> Figures:
    """Change one service, and then all of them; return seconds until servers and controller act on it, and CPU."""
    found = {}
    for name, changed in (("one service", 1), ("all services", cluster.size.services)):
        text = cluster.size.build_policy(2_000_000 + number, changed)
        policy_hash = load(text.encode(), Purpose.SERVE).policy.hash
        before, began = cluster.read(), time.monotonic()
        with watch_stalls(cluster.installation.servers[0]) as server, watch_stalls(cluster.controller) as controller:
            cluster.installation.apply_policy(text)
            while not all(_has_policy(cluster, process, policy_hash) for process in _list_processes(cluster)):
                time.sleep(_POLL_SECONDS)
            seconds = time.monotonic() - began
            time.sleep(cluster.size.quiet_seconds / 5)
        after = cluster.read()
        found[name] = {
            "seconds": seconds,
            "cpu_s": {part: after[part] - before[part] for part in (SERVERS, CONTROLLER, REDIS)},
            "stall_ms": _format_stalls(server.longest_seconds, controller.longest_seconds),
        }
    return found


def _list_processes(cluster: LargeCluster) -> list[Server]:
    return [*cluster.installation.servers, *cluster.installation.controllers]


def _has_policy(cluster: LargeCluster, process: Server, policy_hash: str) -> bool:
    """Return whether a process has logged that it acts by a policy: to read its status page would cost it CPU."""
    lines = cluster.installation.log(process).splitlines()
    return any('"policy loaded"' in line and policy_hash in line for line in lines)


def _measure_server_start(cluster: LargeCluster) -> Figures:
    """Start a further server, and end it once it is ready."""
    installation = cluster.installation
    began = time.monotonic()
    server = installation.start_server("--drain", "0s", "--store", cluster.redis.url, "--store-deadline", "10s")
    cluster.plane.wait(lambda: is_ready(server), "the server to be ready", server.name)
    figures = _read_start(cluster, server, time.monotonic() - began)
    installation.stop_server(server)
    return figures


def is_ready(server: Server) -> bool:
    try:
        with urlopen(f"http://{server.plain}/readyz", timeout=HANG_SECONDS) as response:
            return bool(response.status == HTTPStatus.OK)
    except OSError:
        return False


def _measure_controller_start(cluster: LargeCluster) -> Figures:
    """Start the controller anew; it is ready when it has listed all Pods."""
    installation = cluster.installation
    installation.stop_controller(cluster.controller)
    began = time.monotonic()
    controller = installation.start_controller("--store", cluster.redis.url)
    cluster.plane.wait(lambda: _knows_all(cluster, controller), "the controller to know all Pods", controller.name)
    return _read_start(cluster, controller, time.monotonic() - began)


def _knows_all(cluster: LargeCluster, controller: Server) -> bool:
    return leads(controller) and controller.total("podgate_watched_pods") >= cluster.pods


def _read_start(cluster: LargeCluster, server: Server, seconds: float) -> Figures:
    resident, peak = cluster.find_resident_bytes(server)
    used = cpu_seconds(cluster.plane.processes.pid(server.name))
    return {"seconds": seconds, "cpu_s": used, "rss_mib": resident / _MIB, "peak_mib": peak / _MIB}


def _count(cluster: LargeCluster) -> dict[str, float]:
    """Return counts by which a test judges the run."""
    statuses = [server.status() for server in cluster.installation.servers]
    used = [
        row["used"]
        for service in statuses[0]["services"]
        for row in service["windows"]
        if service["name"] != WAITING and (row["window"], row["resource"]) == ("1h", "pods")
    ]
    return {
        "charged": sum(used),
        "seen": cluster.count_seen(),
        "watched": cluster.controller.total("podgate_watched_pods"),
        "charged_afterwards": cluster.controller.total("podgate_charged_afterwards_total"),
        "waiting": cluster.controller.total("podgate_queue_pods", f'service="{WAITING}"'),
        "refunded": cluster.controller.total("podgate_quota_refunds_total"),
    }


def _format(row: Figures) -> str:
    cpu = ", ".join(
        f"{name} {row['cpu_s_per_1000'][name]:.2f}" for name in (SERVERS, CONTROLLER, REDIS, API_SERVER, ETCD)
    )
    idle = ", ".join(f"{name} {row['idle_ms_per_second'][name]:.1f}" for name in (SERVERS, CONTROLLER, REDIS))
    memory = ", ".join(f"{name} {value:.0f}" for name, value in row["rss_mib"].items())
    swaps = "; ".join(
        f"{name} {swap['seconds']:.1f} s, CPU s {swap['cpu_s'][SERVERS]:.2f} and {swap['cpu_s'][CONTROLLER]:.2f},"
        f" stalls ms {swap['stall_ms'][SERVERS]:.0f} and {swap['stall_ms'][CONTROLLER]:.0f}"
        for name, swap in row["swap"].items()
    )
    starts = "; ".join(
        f"{name} {start['seconds']:.1f} s, CPU {start['cpu_s']:.2f} s, {start['peak_mib']:.0f} MiB at most"
        for name, start in row["start"].items()
    )
    commands = ", ".join(f"{name} {command['cpu_s']:.2f}" for name, command in row["commands"].items())
    return "\n".join(
        [
            f"  {row['pods']:,} Pods, created at {row['per_second']:.0f} a second; CPU s for 1,000: {cpu}",
            f"    idle, CPU ms a second: {idle}; lag of the watch ms {row['lag_ms']}",
            f"    stalls ms, quiet {row['quiet_stall_ms']}, under load {row['busy_stall_ms']}",
            f"    MiB: {memory}; Redis {row['redis_mib']:.1f}, {row['redis_keys']} keys",
            f"    policy changed: {swaps}",
            f"    start: {starts}",
            f"    commands, CPU s: {commands}; counts {row['counts']}",
        ]
    )
