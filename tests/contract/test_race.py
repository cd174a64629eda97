"""Four processes on one Redis or Cluster with disturbances: never more than the limit in any window.

Redis loses its scripts and its connections at random, and once it is killed and comes back with what it had written
down (`appendfsync always`: whatever it acknowledged).

An answer that is lost with its connection tells nobody whether the Pod was charged. So what counts here is what Redis
has recorded of each Pod in the script that charged it: all that was acknowledged must be among that, and all of it that
was not refunded must keep to the limits, acknowledged or not, and be what the rings hold in the end: a Pod asked for
again, since its answer was lost, is charged once. Moments are Redis' own.
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

from tests.contract.race_worker import CLUSTER, PLANS, cost_of
from tests.redis_servers import RedisCluster, RedisProgram, RedisServer, program, usual_names
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.quota import Holder, Limit, WindowPlan
from webhook.ports import WatchReports

pytest_plugins = ("tests.redis_servers.fixtures",)

PROCESSES = 4
SECONDS = float(os.environ.get("PODGATE_TEST_RACE_SECONDS", "3"))
"""`make soak` races for 60."""
PLACE = b"x/"
"""What stands behind each record: the racers' one namespace, and no name."""
_PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")


class Recorded(msgspec.Struct, frozen=True, array_like=True):
    """What Redis has of a Pod that was admitted: the first fields of the record, as the script writes them."""

    expires_us: float
    charged_at_us: float
    generation: int
    probe: bool
    refunded: bool
    service: str


def recorded(servers: Iterable[RedisServer]) -> dict[str, Recorded]:
    """Return what they have of every Pod, by uid."""
    found = {}
    for server in servers:
        with server.client() as client:
            for key in client.scan_iter(f"podgate:{{*}}:v1:{CLUSTER}:pod:*", count=1000):
                packed = client.get(key)
                assert isinstance(packed, bytes)
                found[key.decode().rpartition(":")[2]] = msgspec.msgpack.decode(
                    packed.removesuffix(PLACE), type=Recorded
                )
    return found


def most_in_any(charges: Iterable[tuple[int, int]], window_us: int) -> int:
    """Return how much at most lies in one trailing window of (moment, amount), wherever it ends; both ends count in."""
    ordered = sorted(charges)
    most = inside = first = 0
    for moment, amount in ordered:
        inside += amount
        while ordered[first][0] < moment - window_us:
            inside -= ordered[first][1]
            first += 1
        most = max(most, inside)
    return most


def charges_by_limit(pods: dict[str, Recorded]) -> Iterator[tuple[str, WindowPlan, Limit, list[tuple[int, int]]]]:
    """Yield every limit that the processes race for, with what was charged against it."""
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
                    (int(pod.charged_at_us), cost_of(uid)[limit.counts])
                    for uid, pod in pods.items()
                    if pod.service in members
                ],
            )


async def used(url: str) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Return what the store says that each limit holds, and when it said so."""
    store = RedisStore(open_transport(url), CLUSTER, SystemClock(), WatchReports(int, str, str), deadline_seconds=30)
    found = {}
    for plan in PLANS:
        look = await store.snapshot(plan)
        for use in (*look.uses[""], *look.pool):
            found[use.name or plan.service, use.window, use.resource] = use.used, look.at_us
    await store.close()
    return found


def disturbed(racers: Sequence["subprocess.Popen[bytes]"], servers: Sequence[RedisServer]) -> int:
    """Disturb the servers until the racers have ended; return how often."""
    chosen, times = Random(1), 0  # noqa: S311  it guards nothing
    begun, restarted = 0.0, False
    while any(racer.poll() is None for racer in racers):
        time.sleep(chosen.uniform(0.02, 0.2))
        server = chosen.choice(servers)
        if not begun and all(each.cli("DBSIZE") for each in servers):
            begun = time.monotonic()  # processes take their time to start, and there must be something to lose
        if begun and not restarted and time.monotonic() - begun > SECONDS / 2:
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


def raced(url: str, servers: Sequence[RedisServer], folder: Path) -> None:
    """Let the processes race, each writing into a file of the folder, and see that they kept to every limit."""
    command = [sys.executable, "-m", "tests.contract.race_worker", url, str(SECONDS)]
    files = [folder / f"racer-{number}.json" for number in range(PROCESSES)]
    with ExitStack() as stack:
        outputs = [stack.enter_context(path.open("wb")) for path in files]
        racers = [subprocess.Popen(command, stdout=output) for output in outputs]
    try:
        times = disturbed(racers, servers)
        assert [racer.wait() for racer in racers] == [0] * PROCESSES
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    assert times > 10
    told = [json.loads(path.read_bytes()) for path in files]
    pods = recorded(servers)
    _nothing_acknowledged_is_lost(told, pods)
    standing = {uid: pod for uid, pod in pods.items() if not pod.refunded}
    full, holds = 0, asyncio.run(used(url))
    for name, window, limit, charges in charges_by_limit(standing):
        most = most_in_any(charges, window.seconds * 1_000_000)
        assert most <= limit.hard, f"{name} {window.name} {limit.resource}: {most} of {limit.hard}"
        full += most > limit.hard * 9 // 10
        held, at_us = holds[name, window.name, limit.resource]
        least, at_most = (
            sum(amount for moment, amount in charges if at_us - moment <= window.seconds * length_us)
            for length_us in (1_000_000, 1_015_625)
        )
        assert least <= held <= at_most, f"{name} {window.name} {limit.resource}: of what is recorded"
    lost, refused = (sum(one[what] for one in told) for what in ("lost", "refused"))
    print(  # noqa: T201  what `make soak` is asked for
        f"\n{SECONDS:g} s: {len(pods)} Pods charged, {len(pods) - len(standing)} of them refunded, {refused} refused, "
        f"{lost} answers lost, {times} disturbances; {full} limits were reached"
    )
    assert lost, "no answer was lost: nobody was disturbed"
    assert full, "no limit was nearly reached: nobody raced for anything"


def _nothing_acknowledged_is_lost(told: Sequence[Any], pods: dict[str, Recorded]) -> None:
    for one in told:
        assert one["charged"], "each of them has admitted some"
        for uid, at_us in one["charged"].items():
            assert pods[uid].charged_at_us == at_us
        for uid in one["refunded"]:
            assert pods[uid].refunded


def test_an_overfull_window_would_be_seen() -> None:
    charges = [(0, 1), (1_000_001, 2), (500_000, 4), (1_500_001, 8)]
    assert most_in_any(charges, 1_000_000) == 10
    assert most_in_any(charges, 1_000_001) == 14
    assert most_in_any([], 1) == 0


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
def test_four_processes_never_admit_more_than_the_limit_in_any_trailing_window(
    redis_program: RedisProgram, tmp_path: Path
) -> None:
    with RedisServer(redis_program, tmp_path / "redis", *_PERSISTENT) as server:
        raced(server.url, [server], tmp_path)


@pytest.mark.parametrize("name", ["redis-8.2"])
def test_four_processes_never_admit_more_than_the_limit_on_a_cluster(name: str, tmp_path: Path) -> None:
    with RedisCluster(program(name), tmp_path / "cluster", *_PERSISTENT) as cluster:
        assert {cluster.owner(plan.tag) for plan in PLANS} == set(cluster.nodes), "all masters take part"
        raced(cluster.url, cluster.nodes, tmp_path)
