"""Judges of a storm: what its logs of Pods and charges must not show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.cluster.gang_storm import Storm
from tests.cluster.gangs import CLASSES, Gang
from tests.cluster.ledger_log import LedgerState
from tests.cluster.pod_log import PodEvent

RETRIES_SECONDS = 5.0
"""Gates are removed again each second, and the watch of a busy machine is late."""
TAKEOVER_SECONDS = 30.0
"""After a kill: until another controller leads, or Redis is trusted again, and until calls have timed out."""
_SEEN_SECONDS = 5.0
"""How late a leader may see what the log shows."""
_CLASS_SECONDS = 4.0
"""How long a gang waits before it is surely in the order: its size is read each half second."""


@dataclass
class Story:
    """What the log tells of one gang."""

    gang: Gang
    alive: dict[str, str] = field(default_factory=dict)
    """Index of each Pod that exists, by uid."""
    released: dict[str, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    complete_at: float = 0.0
    """Since when all members are there, 0 while some are missing."""
    whole_until: float = 0.0
    """When all members were there last."""
    first_at: float = 0.0
    """When the first gate was removed."""
    last_at: float = 0.0
    """When the last one of as many members as the gang has was released."""
    flaws: list[str] = field(default_factory=list)

    def add(self, event: PodEvent) -> None:
        if event.kind == "DELETED":
            self.alive.pop(event.uid, None)
        else:
            self.alive[event.uid] = event.index
        is_complete = len(set(self.alive.values())) >= self.gang.size
        if is_complete:
            self.whole_until = event.at
        self.complete_at = (self.complete_at or event.at) if is_complete else 0.0
        if event.kind == "DELETED":
            return
        if not event.gated and event.uid not in self.released:
            self._release(event)
        if event.phase in {"Running", "Succeeded"}:
            self.started.add(event.index)

    def _release(self, event: PodEvent) -> None:
        if event.kind == "ADDED":
            self.flaws.append(f"{event.name} was created without a gate")
        if not self.first_at:
            self.first_at = event.at
            if not self.whole_until or event.at - self.whole_until > _SEEN_SECONDS:
                count = len(set(self.alive.values()))
                self.flaws.append(f"{event.name} was released when {count} of {self.gang.size} members were there")
        self.released[event.uid] = event.index
        if not self.last_at and len(set(self.released.values())) >= self.gang.size:
            self.last_at = event.at


def tell_stories(storm: Storm) -> list[Story]:
    stories = {gang.name: Story(gang) for gang in storm.gangs}
    for event in tuple(storm.log.events):
        stories[event.group].add(event)
    return list(stories.values())


def find_lost(stories: Sequence[Story]) -> list[str]:
    """Return the gangs of which not all members have run."""
    return [
        f"{story.gang}: {len(story.started)} of its members have run, {len(set(story.released.values()))} are released"
        for story in stories
        if len(story.started) < story.gang.size
    ]


def find_halves(stories: Sequence[Story], storm: Storm) -> list[str]:
    """Return the gangs that were released in part for longer than the retries take."""
    return [
        describe_span(story, storm)
        for story in stories
        if story.last_at - story.first_at > RETRIES_SECONDS + TAKEOVER_SECONDS * len(_list_disturbances(story, storm))
    ]


def describe_span(story: Story, storm: Storm) -> str:
    """Return how long the removal of the gates of a gang took, and what happened meanwhile."""
    return f"{story.gang}: {story.last_at - story.first_at:.1f} s; {', '.join(_list_disturbances(story, storm))}"


def _list_disturbances(story: Story, storm: Storm) -> list[str]:
    """Return what may have delayed the removal of the gates of a gang, and when, from its first removal on."""
    first_at, last_at = story.first_at, story.last_at
    kills = [(at, what) for at, until, what in storm.kills if first_at - TAKEOVER_SECONDS < until and at < last_at]
    deletions = [at for at, name in storm.deleted if name == story.gang.name and first_at - 2 < at < last_at]
    return [f"{what} at {at - first_at:.1f}" for at, what in (*kills, *((at, "deletion") for at in deletions))]


def find_overtakers(stories: Sequence[Story], storm: Storm) -> list[str]:
    """Return the gangs that were released before one of a higher class that is no larger and waited in the same pool.

    Times in which a new leader reads what waits are left out.
    """
    pauses = [(at - 1, until + _CLASS_SECONDS + 10 * (what == "redis")) for at, until, what in storm.kills]
    return [
        f"{low.gang} at {low.first_at:.2f} before {high.gang} at {high.first_at:.2f}"
        for low in stories
        if not any(begun < low.first_at < ended for begun, ended in pauses)
        for high in stories
        if _is_passed(high, low)
    ]


def _is_passed(high: Story, low: Story) -> bool:
    """Return whether a gang of a higher class waited for a while, and beyond the release of one of a lower class."""
    is_higher = CLASSES.index(high.gang.sla_class) < CLASSES.index(low.gang.sla_class)
    fits = high.gang.pool == low.gang.pool and high.gang.size <= low.gang.size
    waited = bool(high.complete_at) and high.complete_at + _CLASS_SECONDS < low.first_at
    return is_higher and fits and waited and high.first_at > low.first_at + _SEEN_SECONDS


def find_part_charges(storm: Storm, states: Sequence[LedgerState]) -> list[str]:
    """Return the gangs of which a part was charged: from nothing, or for longer than refunds take."""
    found = list[str]()
    group_of = {event.uid: event.group for event in storm.log.events}
    for gang in storm.gangs:
        counts = [
            (state.at, sum(group_of.get(uid) == gang.name for uid in state.charges))
            for state in states
            if state.tag == gang.pool
        ]
        for (_, before), (at, after) in pairwise([(0.0, 0), *counts]):
            if not before and 0 < after < gang.size:
                found.append(f"{gang}: {after} of its Pods were charged at {at:.2f}")
        found += [f"{gang}: {part}" for part in _list_parts(counts, gang.size, storm)]
    return found


def _list_parts(counts: Sequence[tuple[float, int]], size: int, storm: Storm) -> Iterator[str]:
    """Yield the times in which a part of a gang was charged for too long."""
    since = 0.0
    for at, count in counts:
        if 0 < count < size:
            since = since or at
        elif since:
            disturbed = sum(since - TAKEOVER_SECONDS < until and begun < at for begun, until, _ in storm.kills)
            disturbed += sum(since - TAKEOVER_SECONDS < deleted < at for deleted, _ in storm.deleted)
            if at - since > RETRIES_SECONDS + TAKEOVER_SECONDS * disturbed:
                yield f"a part was charged for {at - since:.1f} s"
            since = 0.0
    if since:
        yield f"a part is charged in the end, since {since:.2f}"


def find_excess(states: Sequence[LedgerState], hard: int, window_seconds: int) -> list[str]:
    """Return the moments whose window has more charges than a pool has."""
    found = set[str]()
    for state in states:
        times = sorted(state.charges.values())
        for position in range(len(times) - hard):
            if times[position + hard] - times[position] < window_seconds * 1_000_000:
                found.add(f"{state.tag}: more than {hard} charges in {window_seconds} s from {times[position]} on")
    return sorted(found)
