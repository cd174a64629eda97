"""Lane: the waiting Pods of one service with the same cost, scope and priority. Either all fit, or none."""

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf

from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

UNANSWERED = "unanswered"
"""In place of a `Holder`: the store gave no answer, so it is unknown which limit has no room."""


class PodLane:
    """Pods by age, and the store's last answer for one of them."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.blocked_until_us = 0
        """When its Pods fit, by the last answer of the store."""
        self.blocked_by: str = Holder.SERVICE
        self.due_us = 0
        """As `blocked_until_us`, also after `retry`."""
        self._passed_since_us: int | None = None
        self._pods: dict[str, WaitingPod] = {}
        self._by_age: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(self._pods.values())

    def add(self, pod: WaitingPod) -> None:
        self._pods[pod.uid] = pod
        heappush(self._by_age, (pod.since_us, pod.uid))
        if len(self._by_age) > 2 * len(self._pods):  # those removed would stay until they are the first
            self._by_age = sorted((pod.since_us, pod.uid) for pod in self._pods.values())

    def remove(self, uid: str) -> WaitingPod:
        """Remove a Pod. The order never begins with a removed Pod; others leave it when they are its first."""
        removed = self._pods.pop(uid)
        while self._by_age and self._by_age[0][1] not in self._pods:
            heappop(self._by_age)
        return removed

    def find_oldest(self) -> WaitingPod:
        """Return the oldest Pod."""
        return self._pods[self._by_age[0][1]]

    def block(self, now_us: int, until_us: int, by: str) -> None:
        """Pass these Pods until `until_us`: a limit of the holder `by` has no room for them, or UNANSWERED."""
        self.blocked_until_us, self.blocked_by = until_us, by
        self.due_us = until_us
        if self._passed_since_us is None:
            self._passed_since_us = now_us

    def note_fit(self) -> None:
        """Note that one of its Pods fits: no room needs to be kept any longer."""
        self._passed_since_us = None

    @property
    def is_passed(self) -> bool:
        """Whether its Pods did not fit when the last of them was tried."""
        return self._passed_since_us is not None

    def find_keeping_us(self) -> float:
        """Return from when on it keeps room: others have passed its Pods for a whole ageing period."""
        return inf if self._passed_since_us is None else self._passed_since_us + self.member.ageing_us
