"""A simple model of the release order: lists of Pods, searched from the start for every question."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

Shape = tuple[str, str, int, tuple[tuple[str, int], ...]]
"""Pods of one shape are interchangeable for the store."""


def shape_of(pod: WaitingPod) -> Shape:
    return pod.service, pod.scope, pod.priority, tuple(sorted(pod.cost.items()))


@dataclass
class OrderModel:
    """The rules of the release order, one sentence each, in the order in which a person would apply them."""

    members: dict[str, Member]
    waiting: dict[str, list[WaitingPod]] = field(default_factory=lambda: defaultdict(list))
    """By service."""
    releasing: dict[str, tuple[WaitingPod, int, int, Holder | None]] = field(default_factory=dict)
    until: dict[Shape, tuple[int, Holder]] = field(default_factory=dict)
    passed: dict[Shape, int] = field(default_factory=dict)
    turn: dict[str, int] = field(default_factory=dict)
    own_since_lifted: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.turn = {service: number for number, service in enumerate(self.members)}
        self.own_since_lifted = {member.rank: 0 for member in self.members.values()}

    def add(self, pod: WaitingPod) -> None:
        self.waiting[pod.service].append(pod)

    def take(self, now_us: int) -> WaitingPod | None:
        if Holder.POOL in [kept for *_, kept in self.releasing.values()]:
            return None
        for rank in sorted(self.own_since_lifted):
            own, lifted = self.find_own(rank, now_us), self.find_lifted(rank, now_us)
            pod = own
            if lifted is not None:
                share = self.members[lifted.service].lifted_percent
                if own is None or share * (self.own_since_lifted[rank] + 1) >= 100:
                    pod = lifted
            if pod is None:
                continue
            if self.is_blocked(pod, now_us):
                return None
            self.release(pod, rank, now_us, is_own=pod is own, had_own=own is not None)
            return pod
        return None

    def find_own(self, rank: int, now_us: int) -> WaitingPod | None:
        services = [name for name, member in self.members.items() if member.rank == rank]
        for service in sorted(services, key=lambda name: self.turn[name]):
            for pod in self.list_releasable(service, now_us):
                return pod
        return None

    def find_lifted(self, rank: int, now_us: int) -> WaitingPod | None:
        ranks = sorted(self.own_since_lifted)
        found = []
        for service, member in self.members.items():
            above = ranks.index(member.rank) - ranks.index(rank)
            if above > 0:
                for pod in self.list_releasable(service, now_us):
                    lifted_us = pod.since_us + above * member.ageing_us
                    if lifted_us <= now_us:
                        found.append((lifted_us, pod.uid, pod))
        return min(found)[2] if found else None

    def list_releasable(self, service: str, now_us: int) -> Sequence[WaitingPod]:
        """Return a service's Pods in its order, without passed ones, up to one for which room is kept.

        Room in a limit of the service is kept from Pods of the same scope: others have limits of their own.
        """
        if any(kept is not None and pod.service == service for pod, *_, kept in self.releasing.values()):
            return []
        pods: list[WaitingPod] = []
        seen: set[Shape] = set()
        closed: set[str] = set()
        for pod in sorted(self.waiting[service], key=lambda pod: (-pod.priority, pod.since_us, pod.uid)):
            if shape_of(pod) in seen or pod.scope in closed:
                continue
            seen.add(shape_of(pod))
            if not self.is_blocked(pod, now_us):
                pods.append(pod)
            elif self.is_kept(pod, now_us):
                if self.until[shape_of(pod)][1] is Holder.POOL:
                    return [*pods, pod]
                closed.add(pod.scope)
        return pods

    def is_blocked(self, pod: WaitingPod, now_us: int) -> bool:
        return shape_of(pod) in self.until and now_us < self.until[shape_of(pod)][0]

    def is_kept(self, pod: WaitingPod, now_us: int) -> bool:
        since_us = self.passed.get(shape_of(pod))
        return since_us is not None and now_us - since_us >= self.members[pod.service].ageing_us

    def release(self, pod: WaitingPod, rank: int, now_us: int, *, is_own: bool, had_own: bool) -> None:
        kept = self.until[shape_of(pod)][1] if self.is_kept(pod, now_us) else None
        self.releasing[pod.uid] = (pod, rank, self.own_since_lifted[rank], kept)
        self.waiting[pod.service].remove(pod)
        if is_own:
            self.own_since_lifted[rank] += 1
            self.turn[pod.service] = max(self.turn.values()) + 1
        elif had_own:
            self.own_since_lifted[rank] = 0

    def confirm(self, uid: str) -> None:
        pod = self.releasing.pop(uid)[0]
        self.passed.pop(shape_of(pod), None)
        self.forget(pod)

    def put_back(self, uid: str, now_us: int, until_us: int, by: Holder) -> None:
        pod, rank, own, _ = self.releasing.pop(uid)
        self.waiting[pod.service].append(pod)
        self.until[shape_of(pod)] = (until_us, by)
        self.passed.setdefault(shape_of(pod), now_us)
        is_lifted = rank != self.members[pod.service].rank
        self.own_since_lifted[rank] = own if is_lifted else max(self.own_since_lifted[rank] - 1, 0)
        self.turn[pod.service] = min(self.turn.values()) - 1

    def remove(self, pod: WaitingPod) -> None:
        self.waiting[pod.service] = [waiting for waiting in self.waiting[pod.service] if waiting.uid != pod.uid]
        self.releasing.pop(pod.uid, None)
        self.forget(pod)

    def forget(self, pod: WaitingPod) -> None:
        """Forget a shape when its last Pod is gone."""
        others = [*self.waiting[pod.service], *(pod for pod, *_ in self.releasing.values())]
        if shape_of(pod) not in map(shape_of, others):
            self.until.pop(shape_of(pod), None)
            self.passed.pop(shape_of(pod), None)
