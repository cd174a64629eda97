"""NUMA index: the zones of nodes as last reported, less the Pods that the reports may not contain yet."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.assumed_load import CONFIRMED_SECONDS
from webhook.core.scheduling.numa import Amounts, NumaZones, compute_zone_share
from webhook.core.scheduling.pod_fingerprint import PodIdentity, find_contained
from webhook.extender.zone_shares import ZoneShares

_STARTED_SECONDS = 10.0
"""How long a Pod has run when a report without fingerprint that differs from the last one contains it."""
_LONGEST_SECONDS = 300.0
"""Whatever is reported, a reservation of a Pod on its node ends after this time."""


class NumaIndex:
    """A `ports.NumaEventHandler`.

    A report lags behind assignments, and a kubelet's refusal of a Pod is final. So what a Pod takes is subtracted from
    each zone of its node from its scoring on, until a report contains it. The fingerprint of a report tells with which
    Pods it was made. One without is taken to contain a Pod that has run for a while, unless it repeats the last one.

    Why: docs/design/zone-reports.md.
    """

    def __init__(self, now_seconds: Callable[[], float], on_changed: Callable[[str], None]) -> None:
        """Create it. `on_changed` is called with each node that has a new report, or no longer has one."""
        self._now_seconds = now_seconds
        self._on_changed = on_changed
        self._reported: dict[str, NumaZones] = {}
        self._received_seconds: dict[str, float] = {}
        """When the report of each node came."""
        self._pods: dict[str, dict[str, PodIdentity]] = {}
        """Pods on nodes, by node and uid: all of them once it `counts_pods`, and they were listed since then."""
        self.counts_pods = False
        """Whether fingerprints are compared. Without reports they would be kept for nothing."""
        self._node_of: dict[str, str] = {}
        self._started_seconds: dict[str, float | None] = {}
        """Since when Pods on their nodes run; None while they are Pending. Others may be assigned elsewhere."""
        self._reserved: dict[str, ZoneShares] = {}
        """By node. Nodes without reservations are not in it."""
        self._left: dict[str, NumaZones] = {}
        """What is left of the zones of nodes with reservations; absent after a change."""

    def find_zones(self, node: str) -> NumaZones | None:
        """Return what is available in the zones of a node, None if it binds no Pods to zones."""
        reported, reserved, now_seconds = self._reported.get(node), self._reserved.get(node), self._now_seconds()
        if reserved is not None and now_seconds > reserved.ends_seconds:
            for uid in reserved.list_expired(now_seconds):
                self.release(uid)
            reserved = self._reserved.get(node)
        if reported is None or reserved is None:
            return reported
        left = self._left.get(node)
        if left is None:
            left = self._left[node] = reported.subtract(reserved.taken)
        return left

    def find_zones_without(self, node: str, uids: Iterable[str]) -> NumaZones | None:
        """Return what is available once these Pods are gone. What a report contains is free only in the next one."""
        reported, reserved = self._reported.get(node), self._reserved.get(node)
        if reported is None or reserved is None:
            return reported
        taken = reserved.taken.copy()
        for uid in uids:
            taken.subtract(reserved.pods.get(uid, {}))
        return reported.subtract(taken)

    def on_numa_listed(self, zones: Mapping[str, NumaZones], unread: AbstractSet[str] = frozenset()) -> None:
        for node in self._reported.keys() - zones.keys() - unread:
            self.on_numa_changed(node, None)
        for node, found in zones.items():
            if self._reported.get(node) != found:  # a list shows former reports again
                self._put(node, found, is_new=node in self._reported)  # nobody knows how old the first one is

    def on_numa_changed(self, node: str, zones: NumaZones | None) -> None:
        if zones is not None:
            self._put(node, zones, is_new=self._reported.get(node) != zones)
            return
        self._reported.pop(node, None)
        self._received_seconds.pop(node, None)
        self._left.pop(node, None)
        self._on_changed(node)

    def _put(self, node: str, zones: NumaZones, *, is_new: bool) -> None:
        """Set the report of a node. One that is not new may be older than the Pods there."""
        self._reported[node] = zones
        self._received_seconds[node] = self._now_seconds()
        self._left.pop(node, None)
        if zones.fingerprint is not None:
            self._release_matched(node, is_new=is_new)
        elif is_new:
            self._release_contained(node, self._reserved.get(node, ZoneShares()).pods)
        self._on_changed(node)

    def _release_matched(self, node: str, *, is_new: bool) -> None:
        """End the reservations of the Pods with which the report of a node was made, by its fingerprint."""
        zones, pods = self._reported.get(node), self._pods.get(node, {})
        reserved = self._reserved[node].pods.keys() & pods.keys() if node in self._reserved else set()
        if zones is None or zones.fingerprint is None or not reserved:
            return
        contained = find_contained(pods, zones.fingerprint, zones.resources)
        if contained is None:
            return
        received_seconds = self._received_seconds[node]
        for uid in contained & reserved:
            if pods[uid].since_seconds <= received_seconds:  # else the Pod before it had its name
                self.release(uid)
        if is_new and zones.fingerprint.is_exclusive:  # without a Memory Manager these are in no report
            self._release_contained(node, [uid for uid in reserved if not pods[uid].is_exclusive(zones.resources)])

    def _release_contained(self, node: str, uids: Iterable[str]) -> None:
        """End the reservations of those of these Pods on a node that have run for a while when its report came."""
        since_seconds = self._received_seconds[node] - _STARTED_SECONDS
        for uid in tuple(uids):
            started_seconds = self._started_seconds.get(uid)
            if started_seconds is not None and started_seconds <= since_seconds:
                self.release(uid)

    def assign(self, uid: str, taken: Amounts, node: str, kept_seconds: float = CONFIRMED_SECONDS) -> None:
        """Reserve what a Pod takes of its zone: it may be assigned to the node now."""
        if uid not in self._started_seconds:
            self._reserve(uid, taken, node, self._now_seconds() + kept_seconds)

    def nominate(self, uid: str, pod: Pod, node: str, kept_seconds: float) -> None:
        """Reserve for a Pod that the scheduler will bind to a node."""
        taken = compute_zone_share(pod)
        if taken is not None:
            self.assign(uid, taken, node, kept_seconds)

    def withdraw(self, uid: str) -> None:
        """End the reservation of a Pod that the watch has not shown on its node."""
        if uid not in self._started_seconds:
            self.release(uid)

    def confirm(self, uid: str, pod: Pod, node: str, since_seconds: float) -> None:
        """Reserve for a Pod that is on a node since then, unless the report of the node contains it by now."""
        self.release(uid)
        now_seconds = self._now_seconds()
        since_seconds = min(since_seconds, now_seconds)  # the clocks may differ
        self.count(uid, pod, node, since_seconds)
        if now_seconds - since_seconds > _LONGEST_SECONDS:
            return
        taken = compute_zone_share(pod)
        if taken is not None:
            self._reserve(uid, taken, node, since_seconds + _LONGEST_SECONDS)
            self._started_seconds[uid] = None if pod.is_pending else since_seconds
            self._release_matched(node, is_new=False)  # the watches are not in step

    def count(self, uid: str, pod: Pod, node: str, since_seconds: float) -> None:
        """Take in that a Pod is on a node since then: fingerprints of reports count it."""
        if self.counts_pods and uid not in self._pods.setdefault(node, {}):
            self._pods[node][uid] = PodIdentity.from_pod(pod, since_seconds)

    def compare_reports(self) -> None:
        """Compare the fingerprints of the reports anew, after Pods were listed."""
        for node in tuple(self._reserved):
            self._release_matched(node, is_new=False)
            self._on_changed(node)

    def start(self, uid: str) -> None:
        """Record that a Pod on its node is no longer Pending."""
        node = self._node_of.get(uid)
        if node is not None and uid in self._started_seconds:
            now_seconds = self._now_seconds()
            self._started_seconds[uid] = now_seconds
            self._reserved[node].prolong(uid, now_seconds + _LONGEST_SECONDS)

    def drop(self, uid: str, node: str) -> None:
        """Forget a Pod that is no longer on a node."""
        self.release(uid)
        pods = self._pods.get(node, {})
        pods.pop(uid, None)
        if not pods:
            self._pods.pop(node, None)

    def release(self, uid: str) -> None:
        """End the reservation of a Pod, if there is one."""
        self._started_seconds.pop(uid, None)
        node = self._node_of.pop(uid, None)
        if node is not None:
            reserved = self._reserved[node]
            reserved.remove(uid)
            if not reserved.pods:
                del self._reserved[node]
            self._left.pop(node, None)

    def _reserve(self, uid: str, taken: Amounts, node: str, until_seconds: float) -> None:
        self.release(uid)
        self._node_of[uid] = node
        self._left.pop(node, None)
        self._reserved.setdefault(node, ZoneShares()).add(uid, taken, until_seconds)
