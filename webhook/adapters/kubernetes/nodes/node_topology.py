"""Watch of NodeResourceTopology objects (topology.node.k8s.io), which report the NUMA zones of nodes."""

import re

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct, field

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed, ObjectVersion
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.kubernetes import pod_requests
from webhook.core.scheduling.numa import NumaZones
from webhook.ports import WatchReports
from webhook.ports.scheduling import NumaEventHandler

_POLICY, _SCOPE = "topologyManagerPolicy", "topologyManagerScope"
_SINGLE, _BY_POD = "single-numa-node", "pod"
_OLD_POLICIES = {"SingleNUMANodeContainerLevel": False, "SingleNUMANodePodLevel": True}
"""The deprecated field of older exporters: whether its policy is by Pod."""
_NUMBER = re.compile(r"\d+")


class _Resource(Struct, frozen=True):
    name: str = ""
    available: str | int = "0"


class _Zone(Struct, frozen=True):
    name: str = ""
    type: str = ""
    resources: tuple[_Resource, ...] | None = None


class _Attribute(Struct, frozen=True):
    name: str = ""
    value: str = ""


class _Topology(Struct, frozen=True):
    metadata: ObjectVersion
    zones: tuple[_Zone, ...] | None = None
    attributes: tuple[_Attribute, ...] | None = None
    policies: tuple[str, ...] | None = field(default=None, name="topologyPolicies")


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
            found = {item.metadata.name: zones for item in snapshot.items if (zones := _zones(item)) is not None}
            handler.numa_listed(found)

        async def one(item: _Topology, gone: bool) -> None:  # noqa: FBT001  signature of WatchHandler.one
            handler.numa_changed(item.metadata.name, None if gone else _zones(item))

        self.run = Watch(client, _TOPOLOGIES, WatchHandler(everything, one), reports=reports, timing=timing).run


def _zones(item: _Topology) -> NumaZones | None:
    """Return the zones of a node, None unless its Topology Manager admits only Pods that fit into single zones."""
    attributes = {attribute.name: attribute.value for attribute in item.attributes or ()}
    if _POLICY in attributes:
        is_single, is_by_pod = attributes[_POLICY] == _SINGLE, attributes.get(_SCOPE) == _BY_POD
    else:
        old = next(iter(item.policies or ()), "")
        is_single, is_by_pod = old in _OLD_POLICIES, _OLD_POLICIES.get(old, False)
    if not is_single:
        return None
    zones = sorted((zone for zone in item.zones or () if zone.type == "Node"), key=_number)
    return NumaZones(tuple(_amounts(zone) for zone in zones), is_by_pod)


def _number(zone: _Zone) -> tuple[int, str]:
    """Return the number in a name such as node-10: zones are filled in its order."""
    found = _NUMBER.search(zone.name)
    return (int(found[0]) if found else 0), zone.name


def _amounts(zone: _Zone) -> dict[str, int]:
    return {resource.name: pod_requests.nano(str(resource.available)) for resource in zone.resources or ()}
