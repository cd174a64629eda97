"""Release order of one queue: SLA class, then turns of its services, then priority and age. Ageing lifts Pods.

Why: docs/design/release-order.md.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from math import inf

from msgspec import Struct

from webhook.core.controller.lane import PodLane
from webhook.core.controller.sequence import QueuedPod, compute_release_sequence
from webhook.core.controller.service_lanes import NextPod, ServiceLanes
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder


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
      of its service and scope, or those of the whole queue if a limit of the pool blocks it.
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
        self._lanes = {name: ServiceLanes(member) for name, member in self._members.items()}
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
            self._insert(pod, self._lanes[pod.service].find_lane(pod))

    def remove(self, uid: str) -> None:
        """Remove a Pod that no longer waits, if it is known; if it is being released, forget that."""
        if (lane := self._waiting.pop(uid, None)) is not None:
            self._drop_if_empty(self._lanes[lane.member.service].remove(uid, lane), lane)
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
            self._lanes[taken.pod.service].note_fit(taken.lane)
            self._drop_if_empty(taken.pod, taken.lane)

    def count_lanes(self, service: str) -> int:
        """Return how many kinds of Pods of a service wait, each of which the store is asked for by itself."""
        return len(self._lanes[service])

    def find_due_us(self, uid: str) -> int:
        """Return since when a Pod which `take` returned was expected to fit; 0 if it was never blocked."""
        return self._taken[uid].lane.due_us

    def put_back(self, uid: str, now_us: int, until_us: int, by: str) -> None:
        """Put a Pod back that does not fit before `until_us`, because of a limit of the holder `by`, or UNANSWERED."""
        if (taken := self._taken.pop(uid, None)) is None:
            return
        self._insert(taken.pod, taken.lane)
        self._lanes[taken.pod.service].block(taken.lane, now_us, until_us, by)
        is_native = taken.lane.member.rank == taken.rank
        self._natives[taken.rank] = max(self._natives[taken.rank] - 1, 0) if is_native else taken.natives
        self._move_turn(taken.lane.member, to_front=True)

    def retry(self, but: AbstractSet[str] = frozenset()) -> None:
        """Forget which Pods did not fit, except those of the services `but`: there may be room now."""
        for service, lanes in self._lanes.items():
            if service not in but:
                lanes.retry()

    def find_next_us(self, now_us: int) -> int | None:
        """Return when the first of the blocked Pods may fit; None if none is blocked."""
        times = (lanes.find_next_us(now_us) for lanes in self._lanes.values())
        return min((time for time in times if time is not None), default=None)

    def compute_sequence(self, now_us: int) -> list[QueuedPod]:
        """Return the waiting Pods in the order in which they are released, if each of them fits.

        Those that `take` has returned are the first: they wait until the store answers.
        """
        taken = [QueuedPod(each.pod, each.lane.member.rank != each.rank) for each in self._taken.values()]
        pods = (pod for lanes in self._lanes.values() for lane in lanes for pod in lane)
        return [*taken, *compute_release_sequence(self._members, self._turns, self._natives, pods, now_us)]

    def find_oldest_us(self) -> dict[str, int]:
        """Return since when the oldest Pod of each service waits, also one that `take` has returned."""
        firsts = {name: [lane.find_oldest() for lane in lanes if len(lane)] for name, lanes in self._lanes.items()}
        for taken in self._taken.values():
            firsts[taken.pod.service].append(taken.pod)
        return {name: min(pod.since_us for pod in pods) for name, pods in firsts.items() if pods}

    def find_blocking_holder(self, uid: str) -> str | None:
        """Return whose limit has no room for a waiting Pod, or UNANSWERED; None if it only waits for others."""
        taken = self._taken.get(uid)
        lane = self._waiting.get(uid) if taken is None else taken.lane
        return lane.blocked_by if lane is not None and lane.is_passed else None

    def _find_native(self, rank: int, now_us: int) -> NextPod | None:
        """Return the next of a class's own Pods: of the first service in turn that has one."""
        for service in self._turns[rank]:
            found = self._lanes[service].find_candidate(now_us)
            if found is not None and self._may_release(service):
                return found
        return None

    def _find_lifted(self, rank: int, now_us: int) -> NextPod | None:
        """Return the Pod of a lower class that was lifted to this class first."""
        found, first = None, (now_us + 1, "")
        for member, steps in self._below[rank]:
            lifts_us = steps * member.ageing_us
            older = self._lanes[member.service].find_oldest_candidate(now_us, (first[0] - lifts_us, first[1]))
            if older is not None and self._may_release(member.service):
                found, first = older, (older.pod.since_us + lifts_us, older.pod.uid)
        return found

    def _list_members_below(self, rank: int) -> list[tuple[Member, int]]:
        steps = {below: sum(rank < other <= below for other in self._turns) for below in self._turns}
        return [(member, steps[member.rank]) for member in self._members.values() if member.rank > rank]

    def _may_release(self, service: str) -> bool:
        """Return whether Pods of a service may be released, as far as other Pods do not matter."""
        is_stopped = self._members[service].is_paused or service in self.held_services
        keeping = (taken.pod.service for taken in self._taken.values() if taken.kept_for)
        return not is_stopped and service not in keeping

    def _take_out(self, chosen: NextPod, rank: int, now_us: int, *, has_native: bool) -> WaitingPod:
        pod, lane, natives = chosen.pod, chosen.lane, self._natives[rank]
        self._lanes[pod.service].remove(pod.uid, lane)
        del self._waiting[pod.uid]
        kept_for = lane.blocked_by if now_us >= lane.find_keeping_us() else None
        self._taken[pod.uid] = _Taken(pod, lane, rank, natives, kept_for)
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
        self._lanes[pod.service].add(pod, lane)
        self._waiting[pod.uid] = lane

    def _drop_if_empty(self, pod: WaitingPod, lane: PodLane) -> None:
        is_used = len(lane) or any(taken.lane is lane for taken in self._taken.values())
        if not is_used:
            self._lanes[pod.service].drop(pod)
