"""Node table: what the extender knows of each node when it is asked, prepared so that a call only looks it up."""

from collections.abc import Mapping

from msgspec import Struct

from webhook.core.scheduling.node_load import NodeLoad
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.pod_load import NO_LOAD, PodLoad


class SchedulableNode(Struct, frozen=True, gc=False):
    """A Node object: its allocatable amounts and its labels."""

    name: str
    cpu_millis: float
    memory_bytes: float
    labels: Mapping[str, str] = {}


class KnownNode(Struct, frozen=True):
    """A Node, and the addresses by which sources of load may name it."""

    node: SchedulableNode
    addresses: tuple[str, ...] = ()


class NodeRow(Struct, frozen=True, gc=False):
    """A node with its fresh load, and what is assumed of new Pods.

    `load` is None, or of the source `requests`, if nothing fresh was measured.
    """

    node: SchedulableNode
    load: NodeLoad | None = None
    assumed: PodLoad = NO_LOAD
    numa: NumaZones | None = None
    """None unless the node's Topology Manager refuses Pods that fit into no single zone."""

    def cpu_used(self, more: float = 0.0) -> float | None:
        """Return the used share of the allocatable cpu, with so many millicores more; None if it is unknown."""
        used = None if self.load is None else self.load.cpu_millis
        return None if used is None else share(used + self.assumed.cpu_millis + more, self.node.cpu_millis)

    def memory_used(self, more: float = 0.0) -> float | None:
        """Return the used share of the allocatable memory, with so many bytes more; None if it is unknown."""
        used = None if self.load is None else self.load.memory_bytes
        return None if used is None else share(used + self.assumed.memory_bytes + more, self.node.memory_bytes)


def share(used: float, allocatable: float) -> float:
    """Return a used share; a node without any of the resource is used up."""
    return used / allocatable if allocatable > 0 else 1.0
