"""Release order of one queue: SLA class, then turns of its services, then priority and age. Ageing lifts Pods.

Why: docs/design/release-order.md.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from math import inf

from msgspec import Struct

from webhook.core.controller.lane import PodLane
from webhook.core.controller.sequence import QueuedPod, compute_release_sequence
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

_LaneKey = tuple[str, int, frozenset[tuple[str, int]]]


class _Candidate(Struct, frozen=True):
    """The next Pod of a service. If it is blocked, room is kept for it: no Pod behind it may be released."""

    lane: PodLane
    pod: WaitingPod
    is_blocked: bool = False


class _Taken(Struct, frozen=True):
    """A Pod that is being released; `natives` restores the count of its class."""

    pod: WaitingPod
    lane: PodLane
    rank: int
    natives: int
    kept_for: str | None
    """Room was kept for it because of a limit of this holder: until the store answers, the Pods behind it wait."""


class ReleaseOrder:
    """The waiting Pods of one service, or of the services of one pool. It proposes Pods; the store decides.

    `take` proposes a Pod. The caller charges it, and then calls `confirm`, or `put_back` if it does not fit yet. It
    may take several Pods first; it then puts the last of them back first.

    - A class releases its own Pods first. Its services take turns.
    - After each `ageing` period, a waiting Pod also belongs to the next higher class, as a lifted Pod. While that class
      has Pods of its own, lifted Pods take `liftedShare` of its releases, in the order in which they were lifted.
    - A Pod that does not fit is passed. After one `ageing` period room is kept for it: the Pods behind it wait, those
      of its service, or those of the whole queue if a limit of the pool blocks it.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        self._members = {member.service: member for member in members}
        self._turns: dict[int, list[str]] = {
            rank: [] for rank in sorted({member.rank for member in self._members.values()})
        }
        """The services of each class, in the order of their turns."""
        for member in self._members.values():
            self._turns[member.rank].append(member.service)
        self._natives = dict.fromkeys(self._turns, 0)
        """For each class, how many of its own Pods were released since the last lifted one."""
        self._below = {rank: self._list_members_below(rank) for rank in self._turns}
        """For each class, the members of lower ones, and how many periods lift their Pods to it."""
        self._natives_min = {
            rank: min((member.natives_per_lifted for member, _ in below), default=inf)
            for rank, below in self._below.items()
        }
        """For each class, how many of its own Pods are released between two lifted ones at least."""
        self._lanes: dict[str, dict[_LaneKey, PodLane]] = {name: {} for name in self._members}
        self.held_services: AbstractSet[str] = frozenset()
        """Services whose Pods may not be released now."""
        self._waiting: dict[str, PodLane] = {}
        self._taken: dict[str, _Taken] = {}

    def __len__(self) -> int:
        """Return the number of waiting Pods, without those that `take` has returned."""
        return len(self._waiting)

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiting or uid in self._taken

    def add(self, pod: WaitingPod) -> None:
        """Add a Pod of a member, unless its uid is known."""
        if pod.uid not in self:
            lanes, key = self._lanes[pod.service], _make_lane_key(pod)
            if key not in lanes:
                lanes[key] = PodLane(self._members[pod.service])
            self._insert(pod, lanes[key])

    def remove(self, uid: str) -> None:
        """Remove a Pod that no longer waits, if it is known; if it is being released, forget that."""
        if (lane := self._waiting.pop(uid, None)) is not None:
            self._drop_if_empty(lane.remove(uid), lane)
        elif (taken := self._taken.pop(uid, None)) is not None:
            self._drop_if_empty(taken.pod, taken.lane)

    def take(self, now_us: int) -> WaitingPod | None:
        """Return the Pod to release next, and take it out; None if no Pod may be released now."""
        if any(taken.kept_for is Holder.POOL for taken in self._taken.values()):
            return None
        for rank, natives in self._natives.items():
            native = self._find_native(rank, now_us)
            may_lift = native is None or natives >= self._natives_min[rank]
            lifted = self._find_lifted(rank, now_us) if may_lift else None
            is_lifted = lifted is not None and (native is None or natives >= lifted.lane.member.natives_per_lifted)
            chosen = lifted if is_lifted else native
            if chosen is not None:
                return (
                    None if chosen.is_blocked else self._take_out(chosen, rank, now_us, has_native=native is not None)
                )
        return None

    def confirm(self, uid: str) -> None:
        """Note that a Pod which `take` returned is charged."""
        if (taken := self._taken.pop(uid, None)) is not None:
            taken.lane.note_fit()
            self._drop_if_empty(taken.pod, taken.lane)

    def find_due_us(self, uid: str) -> int:
        """Return since when a Pod which `take` returned was expected to fit; 0 if it was never blocked."""
        return self._taken[uid].lane.due_us

    def put_back(self, uid: str, now_us: int, until_us: int, by: str) -> None:
        """Put a Pod back that does not fit before `until_us`, because of a limit of the holder `by`, or UNANSWERED."""
        if (taken := self._taken.pop(uid, None)) is None:
            return
        self._insert(taken.pod, taken.lane)
        taken.lane.block(now_us, until_us, by)
        is_native = taken.lane.member.rank == taken.rank
        self._natives[taken.rank] = max(self._natives[taken.rank] - 1, 0) if is_native else taken.natives
        self._move_turn(taken.lane.member, to_front=True)

    def retry(self) -> None:
        """Forget which Pods did not fit: there may be room now."""
        for lanes in self._lanes.values():
            for lane in lanes.values():
                lane.blocked_until_us = 0

    def find_next_us(self, now_us: int) -> int | None:
        """Return when the first of the blocked Pods may fit; None if none is blocked."""
        times = [lane.blocked_until_us for lanes in self._lanes.values() for lane in lanes.values() if len(lane)]
        return min((time for time in times if time > now_us), default=None)

    def compute_sequence(self, now_us: int) -> list[QueuedPod]:
        """Return the waiting Pods in the order in which they are released, if each of them fits.

        Those that `take` has returned are the first: they wait until the store answers.
        """
        taken = [QueuedPod(each.pod, each.lane.member.rank != each.rank) for each in self._taken.values()]
        pods = (pod for lanes in self._lanes.values() for lane in lanes.values() for pod in lane)
        return [*taken, *compute_release_sequence(self._members, self._turns, self._natives, pods, now_us)]

    def find_oldest_us(self) -> dict[str, int]:
        """Return since when the oldest Pod of each service waits, also one that `take` has returned."""
        firsts = {
            name: [lane.find_oldest() for lane in lanes.values() if len(lane)] for name, lanes in self._lanes.items()
        }
        for taken in self._taken.values():
            firsts[taken.pod.service].append(taken.pod)
        return {name: min(pod.since_us for pod in pods) for name, pods in firsts.items() if pods}

    def find_blocking_holder(self, uid: str) -> str | None:
        """Return whose limit has no room for a waiting Pod, or UNANSWERED; None if it only waits for others."""
        taken = self._taken.get(uid)
        lane = self._waiting.get(uid) if taken is None else taken.lane
        return lane.blocked_by if lane is not None and lane.is_passed else None

    def _find_native(self, rank: int, now_us: int) -> _Candidate | None:
        """Return the next of a class's own Pods: of the first service in turn that has one."""
        for service in self._turns[rank]:
            for candidate in self._list_candidates(service, now_us):
                return candidate
        return None

    def _find_lifted(self, rank: int, now_us: int) -> _Candidate | None:
        """Return the Pod of a lower class that was lifted to this class first."""
        found, first = None, (now_us + 1, "")
        for member, steps in self._below[rank]:
            lifts_us, lanes = steps * member.ageing_us, self._lanes[member.service].values()
            if not any(len(lane) and lane.find_oldest().since_us + lifts_us <= first[0] for lane in lanes):
                continue  # of hundreds of services in a pool, few have the oldest Pods
            for candidate in self._list_candidates(member.service, now_us):
                lifted = candidate.pod.since_us + lifts_us, candidate.pod.uid
                if lifted < first:
                    found, first = candidate, lifted
        return found

    def _list_members_below(self, rank: int) -> list[tuple[Member, int]]:
        steps = {below: sum(rank < other <= below for other in self._turns) for below in self._turns}
        return [(member, steps[member.rank]) for member in self._members.values() if member.rank > rank]

    def _list_candidates(self, service: str, now_us: int) -> Iterator[_Candidate]:
        """Yield the first Pod of each lane that may be released, in the service's order."""
        if self._members[service].is_paused or service in self.held_services:
            return
        if any(taken.kept_for and taken.pod.service == service for taken in self._taken.values()):
            return
        lanes = [lane for lane in self._lanes[service].values() if len(lane)]
        for lane in sorted(lanes, key=lambda lane: lane.find_oldest().order_key):
            if not lane.is_blocked(now_us):
                yield _Candidate(lane, lane.find_oldest())
            elif lane.keeps_room(now_us):
                if lane.blocked_by is Holder.POOL:
                    yield _Candidate(lane, lane.find_oldest(), is_blocked=True)
                return

    def _take_out(self, chosen: _Candidate, rank: int, now_us: int, *, has_native: bool) -> WaitingPod:
        pod, lane, natives = chosen.pod, chosen.lane, self._natives[rank]
        lane.remove(pod.uid)
        del self._waiting[pod.uid]
        self._taken[pod.uid] = _Taken(pod, lane, rank, natives, lane.blocked_by if lane.keeps_room(now_us) else None)
        if lane.member.rank == rank:
            self._natives[rank] += 1
            self._move_turn(lane.member, to_front=False)
        elif has_native:
            self._natives[rank] = 0
        return pod

    def _move_turn(self, member: Member, *, to_front: bool) -> None:
        turns = self._turns[member.rank]
        turns.remove(member.service)
        turns.insert(0 if to_front else len(turns), member.service)

    def _insert(self, pod: WaitingPod, lane: PodLane) -> None:
        lane.add(pod)
        self._waiting[pod.uid] = lane

    def _drop_if_empty(self, pod: WaitingPod, lane: PodLane) -> None:
        is_used = len(lane) or any(taken.lane is lane for taken in self._taken.values())
        if not is_used:
            self._lanes[pod.service].pop(_make_lane_key(pod), None)


def _make_lane_key(pod: WaitingPod) -> _LaneKey:
    return pod.scope, pod.priority, frozenset(pod.cost.items())
