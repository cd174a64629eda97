"""Schedules of the light stage: which fault when, moved a little by the seed."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from tests.chaos.history import TAG, PlannedFault
from tests.chaos.shards import SHARDS, find_shard

PAUSE, FLUSH, EMPTY, KILL = "pause", "redis-flush", "redis-restart-empty", "kill"
DISK_FULL, SLOT_MOVED = "redis-disk-full", "redis-slot-moved"
REDIS, SERVERS = "redis", ("server-1", "server-2")
NODES = tuple(f"redis-{shard + 1}" for shard in range(SHARDS))
"""Of a Cluster, each with a shard."""
MOVED_TAG = "local"
_OWNER = NODES[find_shard(MOVED_TAG)]
_MOVED_SECONDS = 0.3


class Schedule(NamedTuple):
    """`seconds` of traffic, then `rest_seconds` until the end is read."""

    seconds: float
    rest_seconds: float
    faults: Sequence[tuple[str, str, float, float]] = ()
    """Kind, part, and seconds from begin to end."""
    is_cluster: bool = False

    def draw(self, seed: int) -> list[PlannedFault]:
        random = Random(f"{seed} light")  # noqa: S311  the same faults again
        planned = []
        for number, (kind, part, after, until) in enumerate(self.faults, 1):
            moved = round(random.uniform(-_MOVED_SECONDS, _MOVED_SECONDS), 3)
            details = {TAG: MOVED_TAG} if kind == SLOT_MOVED else {}
            planned.append(PlannedFault(number, kind, (part,), after + moved, until + moved, details))
        return planned


SCHEDULES: Mapping[str, Schedule] = {
    "calm": Schedule(6.0, 4.5),
    "breaker": Schedule(11.0, 1.0),
    "away": Schedule(8.0, 5.5, ((PAUSE, REDIS, 2.5, 5.0),)),
    "rest": Schedule(6.0, 12.5, ((PAUSE, REDIS, 2.0, 4.0),)),
    "flush": Schedule(6.0, 2.0, ((FLUSH, REDIS, 3.0, 3.0),)),
    "empty": Schedule(8.0, 2.0, ((EMPTY, REDIS, 3.0, 4.5),)),
    "full": Schedule(8.0, 5.5, ((DISK_FULL, REDIS, 2.5, 5.0),)),
    "moved": Schedule(6.0, 12.5, ((SLOT_MOVED, _OWNER, 2.5, 2.5),), is_cluster=True),
    "node": Schedule(10.0, 12.5, ((PAUSE, NODES[0], 2.5, 7.0),), is_cluster=True),
    "nodes": Schedule(
        20.0,
        12.5,
        (
            (PAUSE, NODES[0], 2.5, 4.5),
            (SLOT_MOVED, _OWNER, 8.0, 8.0),
            (EMPTY, NODES[2], 10.0, 11.0),
            (PAUSE, SERVERS[1], 14.0, 15.0),
            (PAUSE, NODES[1], 17.0, 18.0),
        ),
        is_cluster=True,
    ),
    "kill": Schedule(7.0, 2.0, ((KILL, SERVERS[1], 2.5, 3.5),)),
    "all": Schedule(
        14.0,
        5.5,
        (
            (PAUSE, REDIS, 2.5, 4.5),
            (FLUSH, REDIS, 8.0, 8.0),
            (KILL, SERVERS[1], 10.5, 11.2),
        ),
    ),
    "long": Schedule(
        40.0,
        6.0,
        (
            (PAUSE, REDIS, 3.0, 5.5),
            (FLUSH, REDIS, 11.0, 11.0),
            (KILL, SERVERS[0], 14.0, 15.0),
            (PAUSE, SERVERS[1], 18.0, 19.0),
            (EMPTY, REDIS, 22.0, 24.0),
            (PAUSE, REDIS, 29.0, 29.6),
            (KILL, SERVERS[1], 34.0, 35.0),
        ),
    ),
}
