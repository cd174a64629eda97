"""Ports of the scheduler extender: Nodes, sources of their load, and the wake of kube-scheduler."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from webhook.core.scheduling.claims import SelectedClaim
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.unschedulable_pods import PodReference


class NodeEventHandler(Protocol):
    """Receiver of a Node watch's events."""

    def on_nodes_listed(self, nodes: Iterable[KnownNode], unread: AbstractSet[str] = frozenset()) -> None:
        """Handle a list: Nodes that are not in it are gone, but for those `unread`: they stay as they were."""
        ...

    def on_node_changed(self, known: KnownNode) -> None: ...
    def on_node_gone(self, name: str) -> None: ...


class NumaEventHandler(Protocol):
    """Receiver of a watch's events on the NUMA zones of nodes."""

    def on_numa_listed(self, zones: Mapping[str, NumaZones], unread: AbstractSet[str] = frozenset()) -> None:
        """Handle a list, by node: others bind no Pods to zones, but for those `unread`: they stay as they were."""
        ...

    def on_numa_changed(self, node: str, zones: NumaZones | None) -> None: ...


class ClaimEventHandler(Protocol):
    """Receiver of a watch's events on PersistentVolumeClaims."""

    def on_claims_listed(self, claims: Iterable[SelectedClaim], unread: AbstractSet[str] = frozenset()) -> None:
        """Handle a list, of which only the awaited claims are handed on: those `unread` stay as they were."""
        ...

    def on_claim_changed(self, claim: SelectedClaim) -> None: ...
    def on_claim_gone(self, key: str) -> None: ...


class NodeLoads(Protocol):
    """One source, such as a Prometheus."""

    @property
    def name(self) -> str:
        """Name for people and metrics."""
        ...

    @property
    def unread(self) -> Mapping[str, str]:
        """What of the last answer could not be read, such as one node's value, with the reason."""
        ...

    async def measure(self, now_seconds: float) -> Mapping[str, NodeLoad]:
        """Return the measured loads by a node's name or one of its addresses. LoadSourceError without an answer."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class SchedulerWake(Protocol):
    """Makes the scheduler try all Pods again that wait."""

    async def wake(self) -> None:
        """Wake it now. SchedulerWakeError: the API server did not do it."""
        ...


class PodWakeRequests(Protocol):
    """Asks the leading controller to wake Pods: it may change them, the extender may not."""

    async def request(self, pods: Sequence[PodReference]) -> None:
        """Ask for these Pods; nobody may be there to do it. SchedulerWakeError: the API server did not take it."""
        ...


class PodWakeHandler(Protocol):
    """Receiver of such requests."""

    async def on_wake_requested(self, pods: Sequence[PodReference]) -> None: ...


class PodWakes(Protocol):
    """The requests, and what fulfils them."""

    async def run(self, handler: PodWakeHandler) -> None:
        """Pass each request on, until cancelled."""
        ...

    async def wake(self, pod: PodReference, at_us: int) -> bool:
        """Make the scheduler try a Pod again, at a time in microseconds since the Unix epoch.

        False: the Pod is bound or gone. SchedulerWakeError: the API server did not do it.
        """
        ...
