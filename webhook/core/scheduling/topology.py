"""Nearness of a node to the Pods that a service wants to be near to: in the same rack, zone or region."""

from collections import Counter
from collections.abc import Mapping

from webhook.core.policy_spec.scheduling import NEAR_LABELS, Near, NearLevel
from webhook.core.scheduling.node_table import SchedulableNode


class Nearness:
    """Places of the nodes with Pods that are wanted near, by level. A node is as near as the nearest level it shares.

    With three levels, sharing the first counts 1, the second 2/3, the third 1/3; sharing none counts 0.
    """

    def __init__(self, near: Near) -> None:
        """Create it without places."""
        count = len(near.levels)
        self._levels = [(_label(near, level), Counter[str](), 1 - n / count) for n, level in enumerate(near.levels)]
        self._found: dict[str, float] = {}
        """Nearness by node, until a place is added or removed."""
        self.version = 0
        """The number of changes that may concern all nodes."""

    def of(self, node: SchedulableNode) -> float:
        """Return how near a node is, from 0 to 1."""
        found = self._found.get(node.name)
        if found is None:
            found = self._found[node.name] = self._of(node.labels)
        return found

    def add(self, labels: Mapping[str, str]) -> None:
        """Take in a node with such Pods."""
        for key, places, _ in self._levels:
            place = labels.get(key)
            if place:
                places[place] += 1
                if places[place] == 1:
                    self._forget()

    def remove(self, labels: Mapping[str, str]) -> None:
        """Undo `add`."""
        for key, places, _ in self._levels:
            place = labels.get(key)
            if place:
                places[place] -= 1
                if not places[place]:
                    del places[place]
                    self._forget()

    def _forget(self) -> None:
        self._found.clear()
        self.version += 1

    def relabelled(self, node: str) -> None:
        """Forget what was found of a node whose labels have changed."""
        self._found.pop(node, None)

    def _of(self, labels: Mapping[str, str]) -> float:
        for key, places, value in self._levels:
            if labels.get(key) in places:
                return value
        return 0.0


def _label(near: Near, level: NearLevel) -> str:
    return near.rack_label if level is NearLevel.RACK else NEAR_LABELS[level]
