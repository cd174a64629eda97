"""Report of a node's NUMA zones: a NodeResourceTopology (topology.node.k8s.io/v1alpha2), reduced to what is read."""

import re

from msgspec import Struct, field

from webhook.core.kubernetes import pod_requests
from webhook.core.scheduling.numa import NumaZones

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


class TopologyReport(Struct, frozen=True):
    """Zones with what is available in each, and the policy of the node's Topology Manager."""

    zones: tuple[_Zone, ...] | None = None
    attributes: tuple[_Attribute, ...] | None = None
    policies: tuple[str, ...] | None = field(default=None, name="topologyPolicies")

    def bound_zones(self) -> NumaZones | None:
        """Return the zones, None unless the Topology Manager admits only Pods that fit into single zones.

        ValueError: an amount is no quantity.
        """
        attributes = {attribute.name: attribute.value for attribute in self.attributes or ()}
        if _POLICY in attributes:
            is_single, is_by_pod = attributes[_POLICY] == _SINGLE, attributes.get(_SCOPE) == _BY_POD
        else:
            old = next(iter(self.policies or ()), "")
            is_single, is_by_pod = old in _OLD_POLICIES, _OLD_POLICIES.get(old, False)
        if not is_single:
            return None
        zones = sorted((zone for zone in self.zones or () if zone.type == "Node"), key=_number)
        return NumaZones(tuple(_amounts(zone) for zone in zones), is_by_pod)


def _number(zone: _Zone) -> tuple[int, str]:
    """Return the number in a name such as node-10: zones are filled in its order."""
    found = _NUMBER.search(zone.name)
    return (int(found[0]) if found else 0), zone.name


def _amounts(zone: _Zone) -> dict[str, int]:
    return {resource.name: pod_requests.nano(str(resource.available)) for resource in zone.resources or ()}
