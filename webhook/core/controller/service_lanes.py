"""Lanes of one service, sorted: which Pod is next is known without a look at all lanes."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from webhook.core.controller.lane import PodLane
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

_LaneKey = tuple[str, int, frozenset[tuple[str, int]]]
_POOL = None
"""In place of a scope: the room of the pool."""


class NextPod(Struct, frozen=True):
    """The next Pod of a service. If it is blocked, room is kept for it: no Pod behind it may be released."""

    lane: PodLane
    pod: WaitingPod
    is_blocked: bool = False


class _SortedLanes:
    """Lanes by a key that is unique among them."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, PodLane]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[Any, PodLane]]:
        return iter(self._entries)

    def add(self, key: Any, lane: PodLane) -> None:
        insort(self._entries, (key, lane))

    def remove(self, key: Any) -> None:
        """Remove the lane with this key, if there is one."""
        place = bisect_left(self._entries, (key,))
        if place < len(self._entries) and self._entries[place][0] == key:
            del self._entries[place]

    def find_first(self) -> tuple[Any, PodLane] | None:
        return self._entries[0] if self._entries else None


class _KeptRoom:
    """Lanes that keep the room of a scope or of the pool, and what was found behind the first of them."""

    def __init__(self) -> None:
        self.lanes = _SortedLanes()
        self.behind: set[PodLane] = set()
        self._behind_key: Any = ()
        """The place behind which all of them are."""

    def put_behind(self, lane: PodLane) -> bool:
        """Put a lane aside if it is behind one of these; return whether it is."""
        first = self.lanes.find_first()
        if first is None or lane.find_oldest().order_key <= first[0]:
            return False
        self._behind_key = min(first[0], self._behind_key) if self.behind else first[0]
        self.behind.add(lane)
        return True

    def take_passed(self) -> set[PodLane]:
        """Return those put aside if they may no longer be behind the first of these; they are forgotten here."""
        first = self.lanes.find_first()
        if first is not None and first[0] <= self._behind_key:
            return set()
        taken, self.behind = self.behind, set()
        return taken


class ServiceLanes:
    """The lanes that have waiting Pods. Each is ready, or blocked: the store had no room for its Pods.

    A lane that is blocked for a whole ageing period keeps room: the lanes behind it are not released. These are the
    lanes of its scope, or all of them if a limit of the pool blocks it.
    """

    def __init__(self, member: Member) -> None:
        self.member = member
        self._lanes: dict[_LaneKey, PodLane] = {}
        self._ready = _SortedLanes()
        """In the order of their release, as the oldest Pod of each."""
        self._ready_by_age = _SortedLanes()
        self._blocked = _SortedLanes()
        """By the moment until which they are blocked."""
        self._passed = _SortedLanes()
        """Blocked ones that keep no room yet, by the moment from which they do."""
        self._kept: defaultdict[str | None, _KeptRoom] = defaultdict(_KeptRoom)
        """Blocked ones that keep room, in the order of their release, by scope, or `_POOL`."""
        self._given_up: set[str | None] = set()
        """Where a lane keeps room no longer."""

    def __len__(self) -> int:
        return len(self._lanes)

    def __iter__(self) -> Iterator[PodLane]:
        return iter(self._lanes.values())

    def find_lane(self, pod: WaitingPod) -> PodLane:
        """Return the lane of a Pod; it is made if there is none."""
        key = _make_lane_key(pod)
        if key not in self._lanes:
            self._lanes[key] = PodLane(self.member)
        return self._lanes[key]

    def drop(self, pod: WaitingPod) -> None:
        """Forget the lane of a Pod, which was its last one."""
        self._lanes.pop(_make_lane_key(pod), None)

    def add(self, pod: WaitingPod, lane: PodLane) -> None:
        self._unlist(lane)
        lane.add(pod)
        self._list(lane)

    def remove(self, uid: str, lane: PodLane) -> WaitingPod:
        self._unlist(lane)
        removed = lane.remove(uid)
        self._list(lane)
        return removed

    def note_fit(self, lane: PodLane) -> None:
        """As `PodLane.note_fit`."""
        self._unlist(lane)
        lane.note_fit()
        self._list(lane)

    def block(self, lane: PodLane, now_us: int, until_us: int, by: str) -> None:
        """As `PodLane.block`."""
        self._unlist(lane)
        lane.block(now_us, until_us, by)
        self._list(lane)

    def retry(self) -> None:
        """Forget which lanes are blocked."""
        for _, lane in (*self._blocked,):
            self._unblock(lane)

    def find_next_us(self, now_us: int) -> int | None:
        """Return until when the first of the blocked lanes is blocked; None without one."""
        if not self._blocked:
            return None
        self._update(now_us)
        first = self._blocked.find_first()
        return None if first is None else first[1].blocked_until_us

    def find_candidate(self, now_us: int) -> NextPod | None:
        """Return the next Pod in the service's order, None if there is none that may be released."""
        if not (self._blocked or self._given_up):
            first = self._ready.find_first()
            return NextPod(first[1], first[1].find_oldest()) if first is not None else None
        return min(self._list_candidates(self._ready, now_us), key=lambda found: found.pod.order_key, default=None)

    def find_oldest_candidate(self, now_us: int, before: tuple[int, str]) -> NextPod | None:
        """Return the oldest Pod that may be released, if it is older than `before`: a moment and a uid."""
        if not (self._blocked or self._given_up):  # as most services of a pool, of which few have the oldest Pods
            first = self._ready_by_age.find_first()
            return NextPod(first[1], first[1].find_oldest()) if first is not None and first[0] < before else None
        candidates = self._list_candidates(self._ready_by_age, now_us)
        oldest = min(candidates, key=lambda found: _age_of(found.pod), default=None)
        return oldest if oldest is not None and _age_of(oldest.pod) < before else None

    def _list_candidates(self, ready: _SortedLanes, now_us: int) -> list[NextPod]:
        """Return the Pod for which room of the pool is kept, and the first one of the ready lanes."""
        is_complete = False
        while not is_complete:
            self._update(now_us)
            kept, first = self._find_first(self._kept[_POOL].lanes), self._find_first(ready)
            is_complete = not self._given_up  # else those behind a lane that was put aside are candidates, too
        found = [(kept, True), (first, False)]
        return [NextPod(lane, lane.find_oldest(), is_blocked) for lane, is_blocked in found if lane is not None]

    def _find_first(self, lanes: _SortedLanes) -> PodLane | None:
        """Return the first lane that is behind none that keeps room; put those before it aside."""
        while (first := lanes.find_first()) is not None:
            lane, scope = first[1], first[1].find_oldest().scope
            if not any(self._kept[where].put_behind(lane) for where in (_POOL, scope) if where in self._kept):
                return lane
            self._unlist_candidate(lane)
        return None

    def _update(self, now_us: int) -> None:
        """Find out what has changed by time, or since a lane keeps room no longer."""
        while (first := self._blocked.find_first()) is not None and first[0][0] <= now_us:
            self._unblock(first[1])
        while (first := self._passed.find_first()) is not None and first[0][0] <= now_us:
            key, lane = first
            self._passed.remove(key)
            self._list_candidate(lane)
        while self._given_up:
            where = self._given_up.pop()
            for lane in self._kept[where].take_passed():
                self._list_candidate(lane)
            if self._kept[where].lanes.find_first() is None:
                del self._kept[where]

    def _unblock(self, lane: PodLane) -> None:
        self._unlist(lane)
        lane.blocked_until_us = 0
        self._list(lane)

    def _list(self, lane: PodLane) -> None:
        if len(lane) and lane.blocked_until_us:
            uid = lane.find_oldest().uid
            self._blocked.add((lane.blocked_until_us, uid), lane)
            self._passed.add((lane.find_keeping_us(), uid), lane)
        elif len(lane):
            self._list_candidate(lane)

    def _list_candidate(self, lane: PodLane) -> None:
        """List a lane that is ready or keeps room."""
        oldest = lane.find_oldest()
        if lane.blocked_until_us:
            self._kept[_find_kept(lane)].lanes.add(oldest.order_key, lane)
        else:
            self._ready.add(oldest.order_key, lane)
            self._ready_by_age.add(_age_of(oldest), lane)

    def _unlist(self, lane: PodLane) -> None:
        if not len(lane):
            return
        oldest = lane.find_oldest()
        if lane.blocked_until_us:
            self._blocked.remove((lane.blocked_until_us, oldest.uid))
            self._passed.remove((lane.find_keeping_us(), oldest.uid))
        self._unlist_candidate(lane)
        for kept in (self._kept.get(_POOL), self._kept.get(oldest.scope)):
            if kept is not None:
                kept.behind.discard(lane)

    def _unlist_candidate(self, lane: PodLane) -> None:
        oldest = lane.find_oldest()
        if lane.blocked_until_us:
            where = _find_kept(lane)
            self._kept[where].lanes.remove(oldest.order_key)
            self._given_up.add(where)
        else:
            self._ready.remove(oldest.order_key)
            self._ready_by_age.remove(_age_of(oldest))


def _find_kept(lane: PodLane) -> str | None:
    """Return whose room a blocked lane keeps: that of its scope, or of the pool."""
    return _POOL if lane.blocked_by is Holder.POOL else lane.find_oldest().scope


def _age_of(pod: WaitingPod) -> tuple[int, str]:
    return pod.since_us, pod.uid


def _make_lane_key(pod: WaitingPod) -> _LaneKey:
    return pod.scope, pod.priority, frozenset(pod.cost.items())
