"""Lanes of one service, sorted: which Pod is next is known without a look at all lanes."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from webhook.core.controller.lane import PodLane
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

_LaneKey = tuple[str, int, frozenset[tuple[str, int]]]


class NextPod(Struct, frozen=True):
    """The next Pod of a service. If it is blocked, room is kept for it: no Pod behind it may be released."""

    lane: PodLane
    pod: WaitingPod
    is_blocked: bool = False


class _SortedLanes:
    """Lanes by a key that is unique among them."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, PodLane]] = []

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


class ServiceLanes:
    """The lanes that have waiting Pods. Each is ready, or blocked: the store had no room for its Pods.

    A lane that is blocked for a whole ageing period keeps room: the lanes behind it are not released.
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
        self._keeping = _SortedLanes()
        """Blocked ones that keep room, in the order of their release."""

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
        self._update(now_us)
        first = self._blocked.find_first()
        return None if first is None else first[1].blocked_until_us

    def find_candidate(self, now_us: int) -> NextPod | None:
        """Return the next Pod in the service's order, None if there is none that may be released."""
        self._update(now_us)
        ready, keeping = self._ready.find_first(), self._keeping.find_first()
        if ready is not None and (keeping is None or ready[0] < keeping[0]):
            return NextPod(ready[1], ready[1].find_oldest())
        return None if keeping is None else _keep_room(keeping[1])

    def find_oldest_candidate(self, now_us: int, before: tuple[int, str]) -> NextPod | None:
        """Return the oldest Pod that may be released, if it is older than `before`: a moment and a uid."""
        self._update(now_us)
        keeping = self._keeping.find_first()
        kept = None if keeping is None else _keep_room(keeping[1])
        if kept is not None and _age_of(kept.pod) < before:
            before = _age_of(kept.pod)
        else:
            kept = None
        for age, lane in self._ready_by_age:
            if age >= before:
                break
            if keeping is None or lane.find_oldest().order_key < keeping[0]:
                return NextPod(lane, lane.find_oldest())
        return kept

    def _update(self, now_us: int) -> None:
        """Find out what time has changed."""
        while (first := self._blocked.find_first()) is not None and first[0][0] <= now_us:
            self._unblock(first[1])
        while (first := self._passed.find_first()) is not None and first[0][0] <= now_us:
            key, lane = first
            self._passed.remove(key)
            self._keeping.add(lane.find_oldest().order_key, lane)

    def _unblock(self, lane: PodLane) -> None:
        self._unlist(lane)
        lane.blocked_until_us = 0
        self._list(lane)

    def _list(self, lane: PodLane) -> None:
        if not len(lane):
            return
        oldest = lane.find_oldest()
        if lane.blocked_until_us:
            self._blocked.add((lane.blocked_until_us, oldest.uid), lane)
            self._passed.add((lane.find_keeping_us(), oldest.uid), lane)
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
            self._keeping.remove(oldest.order_key)
        else:
            self._ready.remove(oldest.order_key)
            self._ready_by_age.remove(_age_of(oldest))


def _keep_room(lane: PodLane) -> NextPod | None:
    """Return what a lane that keeps room keeps it for: room of a pool is kept from other services, too."""
    return NextPod(lane, lane.find_oldest(), is_blocked=True) if lane.blocked_by is Holder.POOL else None


def _age_of(pod: WaitingPod) -> tuple[int, str]:
    return pod.since_us, pod.uid


def _make_lane_key(pod: WaitingPod) -> _LaneKey:
    return pod.scope, pod.priority, frozenset(pod.cost.items())
