"""Queued Pods of all services: counts, ages, groups, and when each has waited for `maxWait`."""

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from webhook.controller.release.actions import Released
from webhook.controller.release.gated_groups import GatedGroup, find_key
from webhook.controller.release.gated_pods import GatedPod


class QueuedPods:
    """The Pods that wait in a queue, alone or in a group."""

    def __init__(self) -> None:
        self._pods: dict[str, GatedPod] = {}
        self._counts: Counter[str] = Counter()
        self._deadline_of: dict[str, int] = {}
        self._deadlines: list[tuple[int, str]] = []
        """The same in a heap, with those that are no longer true."""
        self._kept: set[str] = set()
        """Pods that have waited for `maxWait`, and wait on."""
        self._apart: set[str] = set()
        """Pods that are not released by themselves: members of groups."""
        self.groups: dict[str, GatedGroup] = {}
        """Complete groups, by what stands for them in the order."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def list_pods(self) -> Collection[GatedPod]:
        return self._pods.values()

    def get(self, uid: str) -> GatedPod | None:
        return self._pods.get(uid)

    def is_apart(self, uid: str) -> bool:
        """Return whether a Pod is not released by itself."""
        return uid in self._apart

    def list_apart(self) -> list[GatedPod]:
        """Return the Pods whose group is not complete, the oldest first."""
        inside = {pod.waiting.uid for group in self.groups.values() for pod in group.members}
        found = [pod for uid in self._apart - inside if (pod := self._pods.get(uid)) is not None]
        return sorted(found, key=lambda pod: pod.waiting.since_us)

    def find_group(self, pod: GatedPod) -> GatedGroup | None:
        """Return the complete group that a Pod is released with; None without one."""
        key = find_key(pod)
        group = None if key is None else self.groups.get(key.uid)
        return group if group is not None and pod.waiting.uid in self._apart else None

    def find_whole(self, uid: str) -> Released:
        """Return what stands in the order under this uid. LookupError: nothing."""
        return self.groups[uid] if uid in self.groups else self._pods[uid]

    def add(self, pod: GatedPod, *, is_apart: bool = False) -> None:
        """Add a Pod that is not known."""
        self._pods[pod.waiting.uid] = pod
        self._counts[pod.waiting.service] += 1
        if is_apart:
            self._apart.add(pod.waiting.uid)

    def drop(self, uid: str) -> GatedPod | None:
        """Remove a Pod that may wait again, if it is known."""
        self._apart.discard(uid)
        self._deadline_of.pop(uid, None)
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._counts[pod.waiting.service] -= 1
        return pod

    def forget(self, uid: str) -> None:
        """Forget that a Pod is kept."""
        self._kept.discard(uid)

    def count(self, service: str) -> int:
        return self._counts[service]

    def count_by_service(self) -> Mapping[str, int]:
        return {service: count for service, count in self._counts.items() if count}

    def list_times_us(self) -> Mapping[str, Mapping[str, int]]:
        """Return the waiting Pods of each service that has some, and since when each of them waits."""
        found: dict[str, dict[str, int]] = {}
        for uid, pod in self._pods.items():
            found.setdefault(pod.waiting.service, {})[uid] = pod.waiting.since_us
        return found

    def clear_deadlines(self) -> None:
        self._deadline_of, self._deadlines = {}, []

    def set_deadline(self, uid: str, at_us: int) -> None:
        """Set when a Pod has waited for `maxWait`, or when it is tried again to delete it."""
        self._deadline_of[uid] = at_us
        heapq.heappush(self._deadlines, (at_us, uid))
        if len(self._deadlines) > 2 * len(self._deadline_of):
            self._deadlines = sorted((at_us, uid) for uid, at_us in self._deadline_of.items())

    def find_deadline_us(self) -> int | None:
        """Return the first deadline, None without any."""
        while self._deadlines and self._deadline_of.get(self._deadlines[0][1]) != self._deadlines[0][0]:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def take_expired(self, now_us: int) -> Iterator[GatedPod]:
        """Yield the Pods whose deadline has passed; they have none then."""
        while (first_us := self.find_deadline_us()) is not None and first_us <= now_us:
            _, uid = heapq.heappop(self._deadlines)
            del self._deadline_of[uid]
            yield self._pods[uid]

    def note_kept(self, uid: str) -> bool:
        """Note that a Pod waits on after its deadline; return whether that is new."""
        is_new = uid not in self._kept
        self._kept.add(uid)
        return is_new
