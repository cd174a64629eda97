"""Four processes on one Redis or Cluster with disturbances: never more than the limit in any window.

Redis loses its scripts and its connections at random, and is killed once and restarted with its file
(`appendfsync always`: all that it acknowledged).

A lost answer does not show whether the Pod was charged. So these tests use the record that the script writes with each
charge. The records must contain every acknowledged charge. All charges without a refund, acknowledged or not, must be
within the limits, and equal the final counters: a Pod that is asked for again after a lost answer is charged once.
Times are those of Redis.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from tests.contract.race_worker import CLUSTER, PLANS, compute_cost
from tests.redis_servers import RedisCluster, RedisProgram, RedisServer, program, usual_names
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.quota import Holder, Limit, WindowPlan
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

PROCESSES = 4
SECONDS = float(os.environ.get("PODGATE_TEST_RACE_SECONDS", "3"))
"""`make soak` races for 60."""
PLACE = b"x/"
"""The suffix of each record: the racers' only namespace, and no name."""
_PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")


class PodRecord(msgspec.Struct, frozen=True, array_like=True):
    """Redis' record of an admitted Pod: its first fields, as the script writes them."""

    expires_us: float
    charged_at_us: float
    generation: int
    probe: bool
    refunded: bool
    service: str


def read_pod_records(servers: Iterable[RedisServer]) -> dict[str, PodRecord]:
    """Return the record of every Pod, by uid."""
    found = {}
    for server in servers:
        with server.client() as client:
            for key in client.scan_iter(f"podgate:{{*}}:v1:{CLUSTER}:pod:*", count=1000):
                packed = client.get(key)
                assert isinstance(packed, bytes)
                found[key.decode().rpartition(":")[2]] = msgspec.msgpack.decode(
                    packed.removesuffix(PLACE), type=PodRecord
                )
    return found


def find_largest_sum(charges: Iterable[tuple[int, int]], window_us: int) -> int:
    """Return the largest sum of (time, amount) in a trailing window, including both ends."""
    ordered = sorted(charges)
    most = inside = first = 0
    for moment, amount in ordered:
        inside += amount
        while ordered[first][0] < moment - window_us:
            inside -= ordered[first][1]
            first += 1
        most = max(most, inside)
    return most


def list_charges_by_limit(pods: dict[str, PodRecord]) -> Iterator[tuple[str, WindowPlan, Limit, list[tuple[int, int]]]]:
    """Yield every limit that the processes race for, with its charges."""
    seen = set()
    for plan in PLANS:
        for holder, window, limit in plan.limits:
            name = plan.pool.name if holder is Holder.POOL and plan.pool else plan.service
            if (name, window.name, limit.resource) in seen:
                continue
            seen.add((name, window.name, limit.resource))
            members = {other.service for other in PLANS if other is plan or (holder is Holder.POOL and other.pool)}
            yield (
                name,
                window,
                limit,
                [
                    (int(pod.charged_at_us), compute_cost(uid)[limit.counts])
                    for uid, pod in pods.items()
                    if pod.service in members
                ],
            )


async def read_usage(url: str) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Return the stored use of each limit, and its time."""
    store = RedisStore(open_transport(url), CLUSTER, SystemClock(), StoreReports(int, str, str), deadline_seconds=30)
    found = {}
    for plan in PLANS:
        snapshot = await store.snapshot(plan)
        for use in (*snapshot.uses[""], *snapshot.pool):
            found[use.name or plan.service, use.window, use.resource] = use.used, snapshot.at_us
    await store.close()
    return found


def disturb(racers: Sequence["subprocess.Popen[bytes]"], servers: Sequence[RedisServer]) -> int:
    """Disturb the servers until the racers have ended; return how often."""
    chosen, times = Random(1), 0  # noqa: S311  not for security
    begun, restarted = 0.0, False
    while any(racer.poll() is None for racer in racers):
        time.sleep(chosen.uniform(0.02, 0.2))
        server = chosen.choice(servers)
        if not begun and all(each.cli("DBSIZE") for each in servers):
            begun = time.monotonic()  # processes need time to start, and there must be data to lose
        if begun and not restarted and time.monotonic() - begun > SECONDS / 6:
            server.kill()
            server.start()
            restarted = True
        elif chosen.random() < 0.5:
            server.cli("SCRIPT", "FLUSH")
        else:
            server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        times += 1
    assert restarted
    return times


def run_race(url: str, servers: Sequence[RedisServer], folder: Path) -> None:
    """Run the processes, each writing to a file of the folder, and check every limit."""
    command = [sys.executable, "-m", "tests.contract.race_worker", url, str(SECONDS)]
    files = [folder / f"racer-{number}.json" for number in range(PROCESSES)]
    with ExitStack() as stack:
        outputs = [stack.enter_context(path.open("wb")) for path in files]
        racers = [subprocess.Popen(command, stdout=output) for output in outputs]
    try:
        times = disturb(racers, servers)
        assert [racer.wait() for racer in racers] == [0] * PROCESSES
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    assert times > 10
    results = [json.loads(path.read_bytes()) for path in files]
    pods = read_pod_records(servers)
    _check_acknowledged(results, pods)
    kept = {uid: pod for uid, pod in pods.items() if not pod.refunded}
    full, use_by_limit = 0, asyncio.run(read_usage(url))
    for name, window, limit, charges in list_charges_by_limit(kept):
        most = find_largest_sum(charges, window.seconds * 1_000_000)
        assert most <= limit.hard, f"{name} {window.name} {limit.resource}: {most} of {limit.hard}"
        full += most > limit.hard * 9 // 10
        held, at_us = use_by_limit[name, window.name, limit.resource]
        least, at_most = (
            sum(amount for moment, amount in charges if at_us - moment <= window.seconds * length_us)
            for length_us in (1_000_000, 1_015_625)
        )
        assert least <= held <= at_most, f"{name} {window.name} {limit.resource}: of what is recorded"
    lost, refused = (sum(result[what] for result in results) for what in ("lost", "refused"))
    print(  # noqa: T201  `make soak` prints it
        f"\n{SECONDS:g} s: {len(pods)} Pods charged, {len(pods) - len(kept)} of them refunded, {refused} refused, "
        f"{lost} answers lost, {times} disturbances; {full} limits were reached"
    )
    assert lost, "no answer was lost: the disturbances had no effect"
    assert full, "no limit was nearly reached: there was no race"


def _check_acknowledged(results: Sequence[Any], pods: dict[str, PodRecord]) -> None:
    for result in results:
        assert result["charged"], "each process has admitted Pods"
        for uid, at_us in result["charged"].items():
            assert pods[uid].charged_at_us == at_us
        for uid in result["refunded"]:
            assert pods[uid].refunded


def test_overfull_window_is_detected() -> None:
    charges = [(0, 1), (1_000_001, 2), (500_000, 4), (1_500_001, 8)]
    assert find_largest_sum(charges, 1_000_000) == 10
    assert find_largest_sum(charges, 1_000_001) == 14
    assert find_largest_sum([], 1) == 0


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
def test_four_processes_never_admit_more_than_the_limit_in_any_trailing_window(
    redis_program: RedisProgram, tmp_path: Path
) -> None:
    with RedisServer(redis_program, tmp_path / "redis", *_PERSISTENT) as server:
        run_race(server.url, [server], tmp_path)


@pytest.mark.parametrize("name", ["redis-8.2"])
def test_four_processes_never_admit_more_than_the_limit_on_a_cluster(name: str, tmp_path: Path) -> None:
    with RedisCluster(program(name), tmp_path / "cluster", *_PERSISTENT) as cluster:
        assert {cluster.owner(plan.tag) for plan in PLANS} == set(cluster.nodes), "all masters take part"
        run_race(cluster.url, cluster.nodes, tmp_path)
