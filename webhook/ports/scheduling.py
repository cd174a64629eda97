"""Ports of the scheduler extender: Nodes, sources of their load, and the wake of kube-scheduler."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode
from webhook.core.scheduling.numa import NumaZones


class NodeEventHandler(Protocol):
    """Receiver of a Node watch's events."""

    def on_nodes_listed(self, nodes: Iterable[KnownNode]) -> None:
        """Handle a list: Nodes that are not in it are gone."""
        ...

    def on_node_changed(self, known: KnownNode, *, gone: bool) -> None: ...


class NumaEventHandler(Protocol):
    """Receiver of a watch's events on the NUMA zones of nodes."""

    def on_numa_listed(self, zones: Mapping[str, NumaZones]) -> None:
        """Handle a list, by node: other nodes bind no Pods to zones."""
        ...

    def on_numa_changed(self, node: str, zones: NumaZones | None) -> None: ...


class NodeLoads(Protocol):
    """One source, such as a Prometheus."""

    @property
    def name(self) -> str:
        """Name for people and metrics."""
        ...

    async def measure(self, now_seconds: float) -> Mapping[str, NodeLoad]:
        """Return the measured loads by a node's name or one of its addresses. LoadSourceError without an answer."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class SchedulerWake(Protocol):
    """Makes the scheduler try refused Pods again."""

    async def wake(self) -> None:
        """Wake it now. SchedulerWakeError: the API server did not do it."""
        ...
