"""Watch of NodeResourceTopology objects (topology.node.k8s.io), which report the NUMA zones of nodes."""

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed, ObjectVersion
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.scheduling.topology_report import TopologyReport
from webhook.ports import WatchReports
from webhook.ports.scheduling import NumaEventHandler


class _Topology(TopologyReport, frozen=True, kw_only=True):
    metadata: ObjectVersion


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
            found = {item.metadata.name: zones for item in snapshot.items if (zones := item.bound_zones()) is not None}
            handler.numa_listed(found)

        async def one(item: _Topology, gone: bool) -> None:  # noqa: FBT001  signature of WatchHandler.one
            handler.numa_changed(item.metadata.name, None if gone else item.bound_zones())

        self.run = Watch(client, _TOPOLOGIES, WatchHandler(everything, one), reports=reports, timing=timing).run
