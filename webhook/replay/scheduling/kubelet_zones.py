"""NUMA zones of simulated nodes, as their Topology Managers fill them."""

from collections.abc import Sequence

from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.numa import Amounts, NumaDemand, NumaZones
from webhook.replay.scheduling.nodes import SimulatedNode


class KubeletZones:
    """What is available in each zone. Nodes whose Topology Manager refuses no Pod have none."""

    def __init__(self, nodes: Sequence[SimulatedNode]) -> None:
        self._zones = {simulated.node.name: simulated.zones for simulated in nodes if simulated.zones is not None}
        self._taken: dict[str, tuple[Amounts, ...]] = {}
        """By the uid of a Pod, from each zone."""
        self._changed: set[str] = set()

    def admits(self, pod: Pod, node: str) -> bool:
        """Take a Pod's share of its zones; False if the kubelet refuses it for good: TopologyAffinityError."""
        before = self._zones.get(node)
        demand = NumaDemand.from_pod(pod)
        if before is None or not demand.total:
            return True
        after = demand.fill_zones(before)
        if after is None:
            return False
        self._taken[pod.metadata.uid] = tuple(map(_subtract, before.zones, after.zones))
        self._zones[node] = after
        self._changed.add(node)
        return True

    def release(self, uid: str, node: str) -> None:
        """Give back what a Pod took, if anything."""
        taken = self._taken.pop(uid, None)
        if taken is not None:
            zones = self._zones[node]
            self._zones[node] = NumaZones(tuple(map(_add, zones.zones, taken)), zones.is_by_pod, zones.whole)
            self._changed.add(node)

    def take_reports(self) -> dict[str, NumaZones]:
        """Return the zones of the nodes on which they have changed since the last reports."""
        found = {node: self._zones[node] for node in self._changed}
        self._changed.clear()
        return found


def _subtract(zone: Amounts, other: Amounts) -> Amounts:
    return {name: amount - other[name] for name, amount in zone.items()}


def _add(zone: Amounts, other: Amounts) -> Amounts:
    return {name: amount + other[name] for name, amount in zone.items()}
