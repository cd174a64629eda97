"""Near index: how near each node is to the Pods that a service wants to be near to, kept current by the watches."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from msgspec import Struct

from webhook.core.kubernetes.selector_match import selects
from webhook.core.policy_fields.scheduling import Near
from webhook.core.scheduling.node_table import KnownNode
from webhook.core.scheduling.topology import Nearness

Labels = Mapping[str, str]
_SETS_MAX = 256
"""Sets of Pods that are kept. With one more all are forgotten, and counted again on demand."""


class HostedPod(Struct, frozen=True, gc=False):
    """A Pod on a node, as far as decisions about other Pods need it. Amounts are in billionths of their unit."""

    node: str
    namespace: str
    labels: dict[str, str]
    requested_cpu: int
    requested_memory: int
    generation: int = 0
    """As of its metadata when its requests were counted; 0 before Kubernetes 1.33."""
    is_resizing: bool = False
    """Whether its status showed other amounts than its spec then."""


class _NearPods:
    """The Pods of one namespace that are wanted near, counted by node, and the places of those nodes."""

    def __init__(self, near: Near) -> None:
        self.near = near
        self.by_node: Counter[str] = Counter()
        self.nearness = Nearness(near)


class NearIndex:
    """One set of Pods for each service and namespace that asked for it."""

    def __init__(self, nodes: Mapping[str, KnownNode]) -> None:
        """Create it. `nodes` are the cluster's, as of each call."""
        self._nodes = nodes
        self._kept: dict[str, dict[str, _NearPods]] = {}
        """By namespace, then by service."""

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def keep_only(self, services: Container[str]) -> None:
        """Forget the sets of other services."""
        for kept in self._kept.values():
            for service in [name for name in kept if name not in services]:
                del kept[service]

    def find_nearness(self, namespace: str, service: str, near: Near, pods: Iterable[HostedPod]) -> Nearness:
        """Return the nearness of nodes. `pods` are all Pods on nodes; read only if these rules are new."""
        found = self._kept.get(namespace, {}).get(service)
        if found is None or found.near != near:
            if len(self) >= _SETS_MAX:  # of namespaces that are gone, too
                self._kept.clear()
            found = self._kept.setdefault(namespace, {})[service] = _NearPods(near)
            for pod in pods:
                if pod.namespace == namespace:
                    self._count(found, pod, 1)
        return found.nearness

    def add_pod(self, pod: HostedPod) -> None:
        for found in self._kept.get(pod.namespace, {}).values():
            self._count(found, pod, 1)

    def remove_pod(self, pod: HostedPod) -> None:
        for found in self._kept.get(pod.namespace, {}).values():
            self._count(found, pod, -1)

    def relabel_node(self, name: str, before: Labels | None, after: Labels | None) -> None:
        """Apply the new labels of a node; None: there is no such node."""
        for services in self._kept.values():
            for found in services.values():
                found.nearness.forget_node(name)
                if name in found.by_node:
                    if before is not None:
                        found.nearness.remove(before)
                    if after is not None:
                        found.nearness.add(after)

    def _count(self, found: _NearPods, pod: HostedPod, count: int) -> None:
        if not selects(found.near.to, pod.labels):
            return
        known, name = self._nodes.get(pod.node), pod.node
        found.by_node[name] += count
        if count > 0 and found.by_node[name] == 1 and known is not None:
            found.nearness.add(known.node.labels)
        elif not found.by_node[name]:
            del found.by_node[name]
            if known is not None:
                found.nearness.remove(known.node.labels)
