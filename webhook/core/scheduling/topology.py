"""Nearness of a node to the Pods that a service wants to be near to: in the same rack, zone or region."""

from collections.abc import Iterable, Mapping

from webhook.core.policy_spec.scheduling import NEAR_LABELS, Near, NearLevel
from webhook.core.scheduling.node_table import SchedulableNode


class Nearness:
    """Places of the Pods that are wanted near, by level. A node is as near as the nearest level that it shares.

    With three levels, sharing the first counts 1, the second 2/3, the third 1/3; sharing none counts 0.
    """

    def __init__(self, near: Near, hosts: Iterable[SchedulableNode]) -> None:
        """Create it from the nodes on which such Pods run."""
        keys = [_label(near, level) for level in near.levels]
        nodes = list(hosts)
        self._levels = [
            (key, frozenset(value for node in nodes if (value := node.labels.get(key))), 1 - index / len(keys))
            for index, key in enumerate(keys)
        ]

    def of(self, labels: Mapping[str, str]) -> float:
        """Return how near a node with these labels is, from 0 to 1."""
        for key, places, value in self._levels:
            if labels.get(key) in places:
                return value
        return 0.0


def _label(near: Near, level: NearLevel) -> str:
    return near.rack_label if level is NearLevel.RACK else NEAR_LABELS[level]
