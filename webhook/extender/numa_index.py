"""NUMA index: the zones of nodes as last reported, less the Pods that were assigned since the report."""

from collections.abc import Callable, Mapping
from math import inf

from msgspec import Struct

from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.assumed.assumed_load import CONFIRMED_SECONDS
from webhook.core.scheduling.numa import Amounts, NumaZones, asked_by, is_guaranteed


class _Reserved(Struct, frozen=True):
    """What a Pod takes of each zone of its node, until a time if the watch has not shown it there."""

    amounts: Amounts
    until_seconds: float


class NumaIndex:
    """A `ports.NumaEventHandler`.

    A report lags behind assignments, and a kubelet's refusal of a Pod is final. So a new Guaranteed Pod is subtracted
    from each zone of its node until the next report.
    """

    def __init__(self, now_seconds: Callable[[], float], on_changed: Callable[[str], None]) -> None:
        """Create it. `on_changed` is called with each node that has a new report, or none any more."""
        self._now_seconds = now_seconds
        self._on_changed = on_changed
        self._reported: dict[str, tuple[NumaZones, float]] = {}
        self._node_of: dict[str, str] = {}
        self._pods: dict[str, dict[str, _Reserved]] = {}
        """By node, then by uid."""
        self._left: dict[str, tuple[NumaZones, float]] = {}
        """What is left of the zones of nodes with reservations, until a reservation ends; absent after a change."""

    def of(self, node: str) -> NumaZones | None:
        """Return what is available in the zones of a node, None if it binds no Pods to zones."""
        found = self._reported.get(node)
        if found is None:
            return None
        pods = self._pods.get(node)
        if not pods:
            return found[0]
        left, now_seconds = self._left.get(node), self._now_seconds()
        if left is None or now_seconds > left[1]:
            for uid in [uid for uid, pod in pods.items() if now_seconds > pod.until_seconds]:
                self.gone(uid)
            until_seconds = min((pod.until_seconds for pod in pods.values()), default=inf)
            left = self._left[node] = found[0].less(pod.amounts for pod in pods.values()), until_seconds
        return left[0]

    def numa_listed(self, zones: Mapping[str, NumaZones]) -> None:
        for node in self._reported.keys() - zones.keys():
            self.numa_changed(node, None)
        for node, found in zones.items():
            self.numa_changed(node, found)

    def numa_changed(self, node: str, zones: NumaZones | None) -> None:
        self._left.pop(node, None)
        for uid in self._pods.pop(node, ()):
            del self._node_of[uid]
        if zones is None:
            self._reported.pop(node, None)
        else:
            self._reported[node] = zones, self._now_seconds()
        self._on_changed(node)

    def assign(self, uid: str, pod: Pod, node: str) -> None:
        """Reserve for a Pod that may be assigned to a node now."""
        before = self._node_of.get(uid)
        if before is None or self._pods[before][uid].until_seconds < inf:
            self._reserve(uid, pod, node, self._now_seconds() + CONFIRMED_SECONDS)

    def withdraw(self, uid: str) -> None:
        """Reserve no more for a Pod that the watch has not shown on its node."""
        node = self._node_of.get(uid)
        if node is not None and self._pods[node][uid].until_seconds < inf:
            self.gone(uid)

    def hosted(self, uid: str, pod: Pod, node: str, since_seconds: float) -> None:
        """Reserve for a Pod that was assigned to a node after its last report."""
        self.gone(uid)
        reported = self._reported.get(node)
        if reported is not None and since_seconds >= int(reported[1]):
            self._reserve(uid, pod, node, inf)

    def gone(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]
            self._left.pop(node, None)

    def _reserve(self, uid: str, pod: Pod, node: str, until_seconds: float) -> None:
        self.gone(uid)
        if node in self._reported and is_guaranteed(pod):
            self._node_of[uid] = node
            self._left.pop(node, None)
            self._pods.setdefault(node, {})[uid] = _Reserved(asked_by(pod), until_seconds)
