"""Topology: the nearness of a node to Pods, by rack, zone or region, and the report of its NUMA zones."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, field

from webhook.core.kubernetes import pod_requests
from webhook.core.policy_fields.scheduling import NEAR_LABELS, Near, NearLevel
from webhook.core.scheduling.node_table import ChangeLog, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.core.scheduling.pod_fingerprint import read_fingerprint

_POLICY, _SCOPE = "topologyManagerPolicy", "topologyManagerScope"
_SINGLE, _BY_POD = "single-numa-node", "pod"
_OLD_POLICIES = {"SingleNUMANodeContainerLevel": False, "SingleNUMANodePodLevel": True}
"""The deprecated field of older exporters: whether its policy is by Pod."""
_NUMBER = re.compile(r"\d{1,18}")
"""Kubernetes limits no name of a zone, and Python the digits that it reads."""


class _Resource(Struct, frozen=True):
    name: str = ""
    available: str | int = "0"
    allocatable: str | int | None = None

    def __post_init__(self) -> None:
        """ValueError: the amount is no quantity."""
        try:
            pod_requests.parse_nano(str(self.available))
        except ValueError as error:
            raise ValueError(f"available: {pod_requests.shorten(str(self.available))!r}: {error}") from None


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

    def read_bound_zones(self, annotations: Mapping[str, str] | None = None) -> NumaZones | None:
        """Return the zones, None unless the Topology Manager admits only Pods that fit into single zones.

        `annotations` are the object's: older exporters write the fingerprint of the Pods there.
        """
        attributes = {attribute.name: attribute.value for attribute in self.attributes or ()}
        if _POLICY in attributes:
            is_single, is_by_pod = attributes[_POLICY] == _SINGLE, attributes.get(_SCOPE) == _BY_POD
        else:
            old = next(iter(self.policies or ()), "")
            is_single, is_by_pod = old in _OLD_POLICIES, _OLD_POLICIES.get(old, False)
        if not is_single:
            return None
        zones = sorted((zone for zone in self.zones or () if zone.type == "Node"), key=_parse_number)
        texts = tuple(
            tuple((amount.name, str(amount.allocatable)) for amount in zone.resources or ()) for zone in zones
        )
        whole, fingerprint = _parse_whole(texts, is_by_pod), read_fingerprint(attributes, annotations or {})
        return NumaZones(tuple(_parse_amounts(zone) for zone in zones), is_by_pod, whole, fingerprint)


def _parse_number(zone: _Zone) -> tuple[int, str]:
    """Return the number in a name such as node-10: zones are filled in its order."""
    found = _NUMBER.search(zone.name)
    return (int(found[0]) if found else 0), zone.name


def _parse_amounts(zone: _Zone) -> dict[str, int]:
    return {resource.name: pod_requests.parse_nano(str(resource.available)) for resource in zone.resources or ()}


@lru_cache(maxsize=64)
def _parse_whole(zones: tuple[tuple[tuple[str, str], ...], ...], is_by_pod: bool) -> NumaZones | None:  # noqa: FBT001  as NumaZones has it
    """Return zones by their allocatable amounts, None if one has none, or it is no quantity. Most nodes are alike."""
    if not zones:
        return None
    try:
        return NumaZones(
            tuple({name: pod_requests.parse_nano(text) for name, text in zone} for zone in zones), is_by_pod
        )
    except ValueError:
        return None


class Nearness:
    """Places of the nodes with Pods that are wanted near, by level. A node is as near as the nearest level it shares.

    With three levels, sharing the first counts 1, the second 2/3, the third 1/3; sharing none counts 0.
    """

    def __init__(self, near: Near) -> None:
        """Create it without places."""
        count = len(near.levels)
        self._levels = [
            (_find_label(near, level), Counter[str](), 1 - n / count) for n, level in enumerate(near.levels)
        ]
        self._found: dict[str, tuple[SchedulableNode, float]] = {}
        """Nearness by node, until one of its places is added or removed."""
        self.changes = ChangeLog()
        """Nodes whose nearness has changed, except by a change of their own labels."""

    def rate_node(self, node: SchedulableNode) -> float:
        """Return how near a node is, from 0 to 1."""
        found = self._found.get(node.name)
        if found is None:
            found = self._found[node.name] = node, self._rate_labels(node.labels)
        return found[1]

    def add(self, labels: Mapping[str, str]) -> None:
        """Add a node with such Pods."""
        added = []
        for key, places, _ in self._levels:
            place = labels.get(key)
            if place:
                places[place] += 1
                if places[place] == 1:
                    added.append((key, place))
        self._forget_places(added)

    def remove(self, labels: Mapping[str, str]) -> None:
        """Undo `add`."""
        removed = []
        for key, places, _ in self._levels:
            place = labels.get(key)
            if place:
                places[place] -= 1
                if not places[place]:
                    del places[place]
                    removed.append((key, place))
        self._forget_places(removed)

    def _forget_places(self, places: Sequence[tuple[str, str]]) -> None:
        """Forget what was found of the nodes there. `places` are keys and values of labels."""
        if not places:
            return
        known = self._found.items()
        there = [name for name, (node, _) in known if any(node.labels.get(key) == place for key, place in places)]
        self.changes.record(there, len(self._found))
        for name in there:
            del self._found[name]

    def forget_node(self, node: str) -> None:
        """Forget what was found of a node whose labels have changed."""
        self._found.pop(node, None)

    def _rate_labels(self, labels: Mapping[str, str]) -> float:
        for key, places, value in self._levels:
            if labels.get(key) in places:
                return value
        return 0.0


def _find_label(near: Near, level: NearLevel) -> str:
    return near.rack_label if level is NearLevel.RACK else NEAR_LABELS[level]
