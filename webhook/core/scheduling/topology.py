"""Nearness of a node to the Pods that a service wants to be near to: in the same rack, zone or region."""

from collections import Counter
from collections.abc import Mapping, Sequence

from webhook.core.policy_spec.scheduling import NEAR_LABELS, Near, NearLevel
from webhook.core.scheduling.changes import ChangeLog
from webhook.core.scheduling.node_table import SchedulableNode


class Nearness:
    """Places of the nodes with Pods that are wanted near, by level. A node is as near as the nearest level it shares.

    With three levels, sharing the first counts 1, the second 2/3, the third 1/3; sharing none counts 0.
    """

    def __init__(self, near: Near) -> None:
        """Create it without places."""
        count = len(near.levels)
        self._levels = [(_label(near, level), Counter[str](), 1 - n / count) for n, level in enumerate(near.levels)]
        self._found: dict[str, tuple[SchedulableNode, float]] = {}
        """Nearness by node, until one of its places is added or removed."""
        self.changes = ChangeLog()
        """Of nodes, but for those whose labels have changed."""

    def of(self, node: SchedulableNode) -> float:
        """Return how near a node is, from 0 to 1."""
        found = self._found.get(node.name)
        if found is None:
            found = self._found[node.name] = node, self._of(node.labels)
        return found[1]

    def add(self, labels: Mapping[str, str]) -> None:
        """Take in a node with such Pods."""
        added = []
        for key, places, _ in self._levels:
            place = labels.get(key)
            if place:
                places[place] += 1
                if places[place] == 1:
                    added.append((key, place))
        self._forget(added)

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
        self._forget(removed)

    def _forget(self, places: Sequence[tuple[str, str]]) -> None:
        """Forget what was found of the nodes there. `places` are keys and values of labels."""
        if not places:
            return
        known = self._found.items()
        there = [name for name, (node, _) in known if any(node.labels.get(key) == place for key, place in places)]
        self.changes.record(there, len(self._found))
        for name in there:
            del self._found[name]

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
