"""Node document: the load of nodes as an extender knows it, its source, and the services' thresholds below it."""

from msgspec import Struct

from webhook.core.scheduling.measured_load import NodeLoad


class ShownNode(Struct, frozen=True, rename="camel"):
    """One node. Shares are of the allocatable amount, with the assumed load, and None if unknown."""

    name: str
    cpu_share: float | None
    memory_share: float | None
    assumed_cpu_millis: float
    assumed_memory_bytes: float
    load: NodeLoad | None
    numa_cpu_millis: tuple[int, ...] | None
    """Millicores available in each NUMA zone, None if the node binds no Pods to zones."""
    allocatable_cpu_millis: float = 0.0
    allocatable_memory_bytes: float = 0.0
    assumed_pods: int = 0
    """Pods whose load is not measured yet, or in part."""
    age_seconds: float | None = None
    """Since the load was measured."""
    is_silent: bool = False
    """Other nodes are measured now, and this one is not: its last load counts for a while, and it scores last."""
    exceeds: dict[str, str] = {}
    """By service, the first rule that the node breaks, enforced or not. Zones are left out: they depend on the Pod."""

    @property
    def hottest_share(self) -> float:
        """The larger share of cpu and memory, -1 if neither is known."""
        return max((share for share in (self.cpu_share, self.memory_share) if share is not None), default=-1.0)


class NodeDocument(Struct, frozen=True):
    """Nodes, how many there are in all, and the objects and values that cannot be read, each with the reason."""

    nodes: tuple[ShownNode, ...]
    count: int = 0
    unread: tuple[str, ...] = ()
