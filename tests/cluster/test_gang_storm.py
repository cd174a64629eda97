"""Gangs on a real control plane in a storm of kills, deletions and a denial: all of a gang runs, or nothing of it.

Logs of a watch of Pods and of the charges in Redis, which the test keeps itself, are judged afterwards.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.custom_kinds import custom_kinds
from tests.cluster.gang_judge import (
    RETRIES_SECONDS,
    Story,
    describe_span,
    find_excess,
    find_halves,
    find_lost,
    find_overtakers,
    find_part_charges,
    tell_stories,
)
from tests.cluster.gang_storm import Storm
from tests.cluster.gangs import CLASSES, POOLS, build_namespace, build_policy, draw_gangs
from tests.cluster.groups import CRDS
from tests.cluster.identities import Identities
from tests.cluster.ledger_log import LedgerLog
from tests.cluster.pod_log import PodLog
from tests.redis_servers import RedisServer, names, program

SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))
IS_SOAK = os.environ.get("PODGATE_TEST_QUEUE") == "soak"
GANGS, SIZE_MAX, WINDOW_SECONDS, DELETIONS, PAUSE_SECONDS, SECONDS = (
    (40, 64, 20, 12, 2.0, 900) if IS_SOAK else (12, 16, 10, 3, 1.5, 240)
)
HARD = SIZE_MAX
"""The largest gang fills a pool."""
KILLS = ("controller",) * (8 if IS_SOAK else 2) + ("server", "redis") * (3 if IS_SOAK else 1)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Start a Redis that keeps its data when it is killed."""
    folder: Path = tmp_path_factory.mktemp("storm") / "redis"
    with RedisServer(program(names()[0]), folder, "--appendonly", "yes") as server:
        yield server


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, redis: RedisServer) -> Iterator[ControllerFixture]:
    namespaces = [build_namespace(pool, name) for pool in POOLS for name in CLASSES]
    policy = build_policy(HARD, WINDOW_SECONDS)
    with (
        custom_kinds(plane, CRDS),
        controller_fixture(plane, identities, policy, namespaces, redis.url) as fixture,
    ):
        fixture.start_server()
        fixture.start_controller()
        yield fixture


def test_no_gang_is_charged_or_released_in_part_and_none_is_lost(
    running: ControllerFixture, redis: RedisServer
) -> None:
    random = Random(SEED)  # noqa: S311  the same storm again
    gangs = draw_gangs(random, GANGS, SIZE_MAX)
    with PodLog(running.plane) as log, LedgerLog(redis, *POOLS) as ledger:
        storm = Storm(running, redis, log, gangs, random)
        try:
            storm.run(KILLS, DELETIONS, PAUSE_SECONDS)
            running.plane.wait(
                lambda: find_lost(tell_stories(storm)) == [], "all gangs to run", timeout_seconds=SECONDS
            )
        except AssertionError as error:
            for line in find_lost(tell_stories(storm)):
                error.add_note(line)
            raise
        log.require()
    stories = tell_stories(storm)
    print(f"\n{describe(stories, storm)}")  # noqa: T201  a measurement
    flaws = [flaw for story in stories for flaw in story.flaws]
    flaws += find_lost(stories) + find_halves(stories, storm) + find_overtakers(stories, storm)
    flaws += find_part_charges(storm, ledger.states) + find_excess(ledger.states, HARD, WINDOW_SECONDS)
    assert not flaws, "\n".join(flaws)


def describe(stories: list[Story], storm: Storm) -> str:
    """Return what happened, and how long the removal of the gates of a gang took, by its size."""
    spans = defaultdict[int, list[float]](list)
    for story in stories:
        spans[story.gang.size].append(story.last_at - story.first_at)
    pods, seconds = sum(story.gang.size for story in stories), storm.log.events[-1].at - storm.log.events[0].at
    kills = Counter(what for _, _, what in storm.kills)
    lines = [
        f"seed {SEED}: {len(stories)} gangs of {pods} Pods in {seconds:.0f} s",
        f"kills {dict(kills)}; {len(storm.deleted)} members deleted",
        *(f"{size} Pods: {', '.join(f'{span:.2f}' for span in sorted(its))} s" for size, its in sorted(spans.items())),
        *(describe_span(story, storm) for story in stories if story.last_at - story.first_at > RETRIES_SECONDS),
    ]
    return "\n".join(lines)
