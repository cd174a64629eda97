"""Watch of the cluster's Nodes: their allocatable amounts, labels and addresses."""

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct, field

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed, ObjectVersion
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Amounts
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.ports import WatchReports
from webhook.ports.scheduling import NodeEventHandler

_MILLI = pod_requests.NANO // 1000


class _Address(Struct, frozen=True):
    type: str = ""
    address: str = ""


class _NodeStatus(Struct, frozen=True):
    allocatable: Amounts | None = None
    addresses: tuple[_Address, ...] | None = None


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
            handler.nodes_listed([_known(node) for node in snapshot.items])

        async def one(node: _Node, gone: bool) -> None:  # noqa: FBT001  signature of WatchHandler.one
            handler.node_changed(_known(node), gone=gone)

        self.run = Watch(client, _NODES, WatchHandler(everything, one), reports=reports, timing=timing).run


def _known(node: _Node) -> KnownNode:
    amounts, name = node.status.allocatable, node.metadata.name
    return KnownNode(
        SchedulableNode(
            name,
            (pod_requests.amount_of(amounts, "cpu") or 0) / _MILLI,
            (pod_requests.amount_of(amounts, "memory") or 0) / pod_requests.NANO,
            node.metadata.labels or {},
        ),
        tuple(found.address for found in node.status.addresses or () if found.address != name),
    )
