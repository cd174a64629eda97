"""NUMA index: the zones of nodes as last reported, less the Pods that the reports may not contain yet."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.assumed_load import CONFIRMED_SECONDS, NOMINATED_SECONDS
from webhook.core.scheduling.numa import Amounts, NumaZones, compute_zone_share
from webhook.extender.zone_shares import ZoneShares

_CHANGED_SECONDS, _REPEATED_SECONDS = 10.0, 60.0
"""How long a Pod has run when a report that differs from the last one contains it, and one that repeats it.

Exporters look once a minute, and some send what they saw before.
"""
_LISTED_SECONDS = _CHANGED_SECONDS + _REPEATED_SECONDS
"""Age from which a Pod that the first list shows is contained in the report that is listed then."""
_LONGEST_SECONDS = 300.0
"""Whatever is reported, a reservation of a Pod on its node ends after this time."""


class NumaIndex:
    """A `ports.NumaEventHandler`.

    A report lags behind assignments, and a kubelet's refusal of a Pod is final. So what a Pod takes is subtracted from
    each zone of its node from its scoring on, until a report contains it. Reports do not say which Pods they contain:
    one is taken to contain a Pod that has run for a while.
    """

    def __init__(self, now_seconds: Callable[[], float], on_changed: Callable[[str], None]) -> None:
        """Create it. `on_changed` is called with each node that has a new report, or no longer has one."""
        self._now_seconds = now_seconds
        self._on_changed = on_changed
        self._reported: dict[str, NumaZones] = {}
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

    def on_numa_listed(self, zones: Mapping[str, NumaZones], unread: AbstractSet[str] = frozenset()) -> None:
        for node in self._reported.keys() - zones.keys() - unread:
            self.on_numa_changed(node, None)
        for node, found in zones.items():
            if node not in self._reported:
                self._put(node, found, _REPEATED_SECONDS)  # nobody knows how old it is
            elif self._reported[node] != found:  # a list shows former reports again
                self.on_numa_changed(node, found)

    def on_numa_changed(self, node: str, zones: NumaZones | None) -> None:
        if zones is not None:
            is_repeated = self._reported.get(node) == zones
            self._put(node, zones, _REPEATED_SECONDS if is_repeated else _CHANGED_SECONDS)
            return
        self._reported.pop(node, None)
        self._left.pop(node, None)
        self._on_changed(node)

    def _put(self, node: str, zones: NumaZones, running_seconds: float) -> None:
        """Set the report of a node; it contains the Pods there that have run for so long."""
        self._reported[node] = zones
        self._left.pop(node, None)
        self._release_contained(node, running_seconds)
        self._on_changed(node)

    def _release_contained(self, node: str, running_seconds: float) -> None:
        """End the reservations of Pods on a node that have run for so long."""
        reserved = self._reserved.get(node)
        since_seconds = self._now_seconds() - running_seconds
        for uid in () if reserved is None else tuple(reserved.pods):
            started_seconds = self._started_seconds.get(uid)
            if started_seconds is not None and started_seconds <= since_seconds:
                self.release(uid)

    def assign(self, uid: str, taken: Amounts, node: str, kept_seconds: float = CONFIRMED_SECONDS) -> None:
        """Reserve what a Pod takes of its zone: it may be assigned to the node now."""
        if uid not in self._started_seconds:
            self._reserve(uid, taken, node, self._now_seconds() + kept_seconds)

    def nominate(self, uid: str, pod: Pod, node: str) -> None:
        """Reserve for a Pod that the scheduler will bind to a node."""
        taken = compute_zone_share(pod)
        if taken is not None:
            self.assign(uid, taken, node, NOMINATED_SECONDS)

    def withdraw(self, uid: str) -> None:
        """End the reservation of a Pod that the watch has not shown on its node."""
        if uid not in self._started_seconds:
            self.release(uid)

    def confirm(self, uid: str, pod: Pod, node: str, since_seconds: float) -> None:
        """Reserve for a Pod that is on a node since then, unless the report of the node contains it by now."""
        self.release(uid)
        age_seconds = self._now_seconds() - since_seconds
        is_pending = pod.is_pending
        if age_seconds > (_LONGEST_SECONDS if is_pending else _LISTED_SECONDS):
            return
        taken = compute_zone_share(pod)
        if taken is not None:
            self._reserve(uid, taken, node, since_seconds + _LONGEST_SECONDS)
            self._started_seconds[uid] = None if is_pending else since_seconds

    def start(self, uid: str) -> None:
        """Record that a Pod on its node is no longer Pending."""
        node = self._node_of.get(uid)
        if node is not None and uid in self._started_seconds:
            now_seconds = self._now_seconds()
            self._started_seconds[uid] = now_seconds
            self._reserved[node].prolong(uid, now_seconds + _LONGEST_SECONDS)

    def release(self, uid: str) -> None:
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
