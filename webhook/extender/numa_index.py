"""NUMA index: the zones of nodes as last reported, less the Pods that were assigned since the report."""

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from math import inf

from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.assumed_load import CONFIRMED_SECONDS
from webhook.core.scheduling.numa import Amounts, NumaZones, compute_zone_share


class _Reservations:
    """What new Pods take of each zone of one node, by uid and together."""

    def __init__(self) -> None:
        self.pods: dict[str, Amounts] = {}
        self.tentative: dict[str, float] = {}
        """Until when to reserve for Pods that the watch has not shown on the node."""
        self.taken = Counter[str]()

    def add(self, uid: str, amounts: Amounts, until_seconds: float | None) -> None:
        """Reserve for a Pod that has no reservation; without a time, until it is removed."""
        self.pods[uid] = amounts
        self.taken.update(amounts)
        if until_seconds is not None:
            self.tentative[uid] = until_seconds

    def remove(self, uid: str) -> None:
        self.taken.subtract(self.pods.pop(uid))
        self.tentative.pop(uid, None)

    def list_expired(self, now_seconds: float) -> list[str]:
        """Return the Pods for which the time is over."""
        return [uid for uid, until_seconds in self.tentative.items() if now_seconds > until_seconds]


class NumaIndex:
    """A `ports.NumaEventHandler`.

    A report lags behind assignments, and a kubelet's refusal of a Pod is final. So a new Guaranteed Pod is subtracted
    from each zone of its node until the next report.
    """

    def __init__(self, now_seconds: Callable[[], float], on_changed: Callable[[str], None]) -> None:
        """Create it. `on_changed` is called with each node that has a new report, or no longer has one."""
        self._now_seconds = now_seconds
        self._on_changed = on_changed
        self._reported: dict[str, tuple[NumaZones, float]] = {}
        self._node_of: dict[str, str] = {}
        self._reserved: dict[str, _Reservations] = {}
        """By node. Nodes without reservations are not in it."""
        self._left: dict[str, tuple[NumaZones, float]] = {}
        """What is left of the zones of nodes with reservations, until a reservation ends; absent after a change."""

    def find_zones(self, node: str) -> NumaZones | None:
        """Return what is available in the zones of a node, None if it binds no Pods to zones."""
        found = self._reported.get(node)
        if found is None:
            return None
        reserved = self._reserved.get(node)
        if reserved is None:
            return found[0]
        left, now_seconds = self._left.get(node), self._now_seconds()
        if left is None or now_seconds > left[1]:
            for uid in reserved.list_expired(now_seconds):
                self.release(uid)
            until_seconds = min(reserved.tentative.values(), default=inf)
            left = self._left[node] = found[0].subtract(reserved.taken), until_seconds
        return left[0]

    def on_numa_listed(self, zones: Mapping[str, NumaZones], unread: AbstractSet[str] = frozenset()) -> None:
        for node in self._reported.keys() - zones.keys() - unread:
            self.on_numa_changed(node, None)
        for node, found in zones.items():
            self.on_numa_changed(node, found)

    def on_numa_changed(self, node: str, zones: NumaZones | None) -> None:
        self._left.pop(node, None)
        reserved = self._reserved.pop(node, None)
        for uid in () if reserved is None else reserved.pods:
            del self._node_of[uid]
        if zones is None:
            self._reported.pop(node, None)
        else:
            self._reported[node] = zones, self._now_seconds()
        self._on_changed(node)

    def assign(self, uid: str, taken: Amounts, node: str) -> None:
        """Reserve what a Pod takes of its zone: it may be assigned to the node now."""
        if uid not in self._node_of or self._is_tentative(uid):
            self._reserve(uid, taken, node, self._now_seconds() + CONFIRMED_SECONDS)

    def withdraw(self, uid: str) -> None:
        """End the reservation of a Pod that the watch has not shown on its node."""
        if self._is_tentative(uid):
            self.release(uid)

    def confirm(self, uid: str, pod: Pod, node: str, since_seconds: float) -> None:
        """Reserve for a Pod that was assigned to a node after its last report."""
        self.release(uid)
        reported = self._reported.get(node)
        if reported is not None and since_seconds >= int(reported[1]):
            taken = compute_zone_share(pod)
            if taken is not None:
                self._reserve(uid, taken, node, None)

    def release(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            reserved = self._reserved[node]
            reserved.remove(uid)
            if not reserved.pods:
                del self._reserved[node]
            self._left.pop(node, None)

    def _is_tentative(self, uid: str) -> bool:
        node = self._node_of.get(uid)
        return node is not None and uid in self._reserved[node].tentative

    def _reserve(self, uid: str, taken: Amounts, node: str, until_seconds: float | None) -> None:
        self.release(uid)
        if node in self._reported:
            self._node_of[uid] = node
            self._left.pop(node, None)
            self._reserved.setdefault(node, _Reservations()).add(uid, taken, until_seconds)
