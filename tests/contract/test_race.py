"""Four processes on one Redis, which loses its scripts and its connections meanwhile: never more than the limit."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable

from tests.contract.racing import HARD, LONG_HARD, LONG_SECONDS, WINDOW_SECONDS
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

PROCESSES = 4
SECONDS = float(os.environ.get("PODGATE_TEST_RACE_SECONDS", "8"))
"""`make soak` races for 30."""


def most_in_any(moments_us: Iterable[int], window_seconds: int) -> int:
    """Return how many at most lie in one trailing window, wherever it ends."""
    inside: list[int] = []
    most = 0
    for moment in sorted(moments_us):
        inside = [earlier for earlier in inside if earlier > moment - window_seconds * 1_000_000]
        inside.append(moment)
        most = max(most, len(inside))
    return most


def test_an_overfull_window_would_be_seen() -> None:
    assert most_in_any([0, 999_999, 500_000, 1_000_000], 1) == 3
    assert most_in_any([], 1) == 0


def test_four_processes_never_admit_more_than_the_limit_in_any_trailing_window(redis_server: RedisServer) -> None:
    chosen = random.Random(1)  # noqa: S311  it guards nothing
    command = [sys.executable, "-m", "tests.contract.racing", redis_server.url, str(SECONDS)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(PROCESSES)]
    disturbed = 0
    while any(racer.poll() is None for racer in racers):
        time.sleep(chosen.uniform(0.02, 0.2))
        if chosen.random() < 0.5:
            redis_server.cli("SCRIPT", "FLUSH")
        else:
            redis_server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        disturbed += 1
    found = [json.loads(racer.communicate()[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * PROCESSES
    assert disturbed > 10
    admitted = [moment for moments in found for moment in moments]
    assert all(found), "each of them has admitted some"
    assert most_in_any(admitted, WINDOW_SECONDS) <= HARD
    assert most_in_any(admitted, LONG_SECONDS) <= LONG_HARD
    # What a killed connection has swallowed is counted and not known here; but the quota must have been of use.
    assert len(admitted) > LONG_HARD
