"""Nodes for the extender: the Nodes, their NUMA zones and metrics, and the wake of kube-scheduler."""

from datetime import UTC, datetime

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct, field

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed, ObjectVersion
from webhook.adapters.kubernetes.api.requests import ApiError, send_request
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Amounts
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.topology import TopologyReport
from webhook.errors import LoadSourceError, SchedulerWakeError
from webhook.ports import WatchReports
from webhook.ports.scheduling import NodeEventHandler, NumaEventHandler

_METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"
_RIGHT = "list nodes in metrics.k8s.io"
_REQUEST_SECONDS = 5.0


class NodeMetrics:
    """A client of the metrics API."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def list_metrics(self) -> bytes:
        """Return a NodeMetricsList as JSON. LoadSourceError: the API server did not answer, or has no such API."""
        try:
            return await send_request(self._client, "GET", _METRICS, _REQUEST_SECONDS)
        except ApiError as error:
            raise LoadSourceError(f"metricsAPI: {error.describe(_RIGHT)}") from error


class _TopologyMetadata(ObjectVersion, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None


class _Topology(TopologyReport, frozen=True, kw_only=True):
    """Its amounts are checked when it is decoded: its schema allows any text."""

    metadata: _TopologyMetadata

    def read_zones(self) -> NumaZones | None:
        return self.read_bound_zones(self.metadata.annotations)


_TOPOLOGIES = Collection(
    item=_Topology,
    items=Listed[_Topology],
    path="/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    name="noderesourcetopologies",
    right="list and watch noderesourcetopologies in topology.node.k8s.io",
)


class WatchedNumaTopologies:
    """Lists and watches the topologies, and passes on those by which a Topology Manager refuses Pods."""

    def __init__(
        self,
        client: ApiClient,
        handler: NumaEventHandler,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        async def everything(snapshot: ListSnapshot[_Topology]) -> None:
            found = {item.metadata.name: zones for item in snapshot.items if (zones := item.read_zones()) is not None}
            handler.on_numa_listed(found, frozenset(unread.name for unread in snapshot.unread))

        async def one(item: _Topology, gone: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
            handler.on_numa_changed(item.metadata.name, None if gone else item.read_zones())

        async def drop_if_gone(unread: UnreadObject, gone: bool) -> None:  # noqa: FBT001  as above
            if gone:
                handler.on_numa_changed(unread.name, None)

        watch_handler = WatchHandler(everything, one, on_unread=drop_if_gone)
        self.run = Watch(client, _TOPOLOGIES, watch_handler, reports=reports, timing=timing).run


NAME = "podgate-wake"
WOKEN_AT = "podgate.io/woken-at"
_STORAGE_CLASS = f"/apis/storage.k8s.io/v1/storageclasses/{NAME}"
_ANNOTATION = f"/metadata/annotations/{WOKEN_AT.replace('/', '~1')}"
"""As a JSON Pointer. The manifest of the StorageClass has annotations, so that this one can be added."""


class StorageClassWake:
    """A `ports.SchedulerWake`. The StorageClass provisions nothing; the right to it is bound to its name."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def wake(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        patch = [{"op": "add", "path": _ANNOTATION, "value": now}]
        try:
            await send_request(self._client, "PATCH", _STORAGE_CLASS, _REQUEST_SECONDS, body=patch)
        except ApiError as error:
            raise SchedulerWakeError(f"storageclass {NAME}: {error.describe(f'patch storageclass {NAME}')}") from error


_MILLI = pod_requests.NANO // 1000
_AMOUNT_MAX = 1e300
"""A larger one is no floating-point number."""


class _Address(Struct, frozen=True):
    type: str = ""
    address: str = ""


class _NodeStatus(Struct, frozen=True):
    allocatable: Amounts | None = None
    addresses: tuple[_Address, ...] | None = None

    def __post_init__(self) -> None:
        """ValueError: an amount is no quantity."""
        for name in ("cpu", "memory"):
            if (pod_requests.read_amount(self.allocatable, name) or 0) > _AMOUNT_MAX:
                raise ValueError(f"{name}: too large")


class _Node(Struct, frozen=True):
    metadata: ObjectVersion
    status: _NodeStatus = field(default_factory=_NodeStatus)


_NODES = Collection(item=_Node, items=Listed[_Node], path="/api/v1/nodes", name="nodes", right="list and watch nodes")


class WatchedNodes:
    """Lists and watches Nodes, and passes them on."""

    def __init__(
        self,
        client: ApiClient,
        handler: NodeEventHandler,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        async def everything(snapshot: ListSnapshot[_Node]) -> None:
            unread = frozenset(unread.name for unread in snapshot.unread)
            handler.on_nodes_listed([_make_known_node(node) for node in snapshot.items], unread)

        async def one(node: _Node, gone: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
            if gone:
                handler.on_node_gone(node.metadata.name)
            else:
                handler.on_node_changed(_make_known_node(node))

        async def drop_if_gone(unread: UnreadObject, gone: bool) -> None:  # noqa: FBT001  as above
            if gone:
                handler.on_node_gone(unread.name)

        watch_handler = WatchHandler(everything, one, on_unread=drop_if_gone)
        self.run = Watch(client, _NODES, watch_handler, reports=reports, timing=timing).run


def _make_known_node(node: _Node) -> KnownNode:
    amounts, name = node.status.allocatable, node.metadata.name
    return KnownNode(
        SchedulableNode(
            name,
            (pod_requests.read_amount(amounts, "cpu") or 0) / _MILLI,
            (pod_requests.read_amount(amounts, "memory") or 0) / pod_requests.NANO,
            node.metadata.labels or {},
        ),
        tuple(found.address for found in node.status.addresses or () if found.address != name),
    )
