"""Node verdicts: what filters have found about nodes, kept until their rows change."""

from collections.abc import Iterable, Mapping
from math import inf

from webhook.core.scheduling.hot_node_filters import OF_BYTE, OF_MILLI, NodeFilters, NodeRefusal
from webhook.core.scheduling.node_table import NodeRows

_UNITS = {"hot_cpu": OF_MILLI, "hot_memory": OF_BYTE}
"""What one unit of load adds to the signal of a rule, by its index in `Signals`."""
_ROUNDING = 1.000001
"""More than a load that fills a room can differ from it by rounding."""


class NodeVerdicts:
    """The nodes that the filters of one kind of Pod refuse. Only rows that have changed are judged again."""

    def __init__(self, filters: NodeFilters, refused: Mapping[str, NodeRefusal] | None = None) -> None:
        """Create them. `refused` is what is known already: see `ServiceVerdicts`."""
        self.filters = filters
        self._refused = {**(refused or {})}
        self._version = -1

    def __len__(self) -> int:
        return len(self._refused)

    def update(self, rows: NodeRows) -> None:
        """Judge the rows that have changed since the last call."""
        changed = rows.changes.list_since(self._version)
        if changed is None:
            self._refused, changed = {}, rows.by_name.keys()
        self.judge(changed, rows)

    def judge(self, names: Iterable[str], rows: NodeRows) -> None:
        """Judge these rows. All others are taken as up to date."""
        self._version = rows.changes.version
        find_row, find_refusal, refused = rows.by_name.get, self.filters.find_refusal, self._refused
        for name in names:
            row = find_row(name)
            refusal = None if row is None else find_refusal(row)
            if refusal is not None:
                refused[name] = refusal
            elif name in refused:
                del refused[name]

    def select_refused(self, asked: Iterable[str]) -> dict[str, NodeRefusal]:
        """Return the nodes that are refused. A node without a row passes: the scheduler learned of it first."""
        refused = self._refused
        return {name: refused[name] for name in filter(refused.__contains__, asked)} if refused else {}


class ServiceVerdicts(NodeVerdicts):
    """The verdicts of one service's rules for a Pod without load.

    Those of other Pods begin with them: only nodes are judged whose room below a threshold a Pod may fill.
    """

    def __init__(self, filters: NodeFilters) -> None:
        super().__init__(filters)
        self._rooms: list[dict[str, float]] = [{} for _ in filters.limits]
        """By limit, the load that fills a node which does not take any Pod; 0 if both resources count."""

    def judge(self, names: Iterable[str], rows: NodeRows) -> None:
        super().judge(names, rows)
        find_row, refused = rows.by_name.get, self._refused
        for (signal, free, limit), rooms in zip(self.filters.limits, self._rooms, strict=True):
            unit, highest = _UNITS.get(limit.refused.rule), limit.highest
            for name in names:
                row = find_row(name)
                if row is None or row.signals[signal] <= free or name in refused:
                    rooms.pop(name, None)
                elif unit is None:
                    rooms[name] = 0.0
                else:
                    of_unit = row.signals[unit]
                    rooms[name] = (highest - row.signals[signal]) / of_unit if of_unit else inf

    def derive(self, filters: NodeFilters, rows: NodeRows) -> NodeVerdicts:
        """Return the verdicts of filters that differ from these only by the Pod's load."""
        self.update(rows)
        found, names = NodeVerdicts(filters, self._refused), set[str]()
        for (*_, limit), rooms in zip(filters.limits, self._rooms, strict=True):
            asked = sum(limit.demand) * _ROUNDING
            names.update([name for name, room in rooms.items() if room < asked])
        found.judge(names, rows)
        return found
