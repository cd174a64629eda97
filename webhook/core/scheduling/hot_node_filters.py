"""Filters of hot nodes: refuse a node for a Pod because of load, pressure or NUMA zones, with the reason.

Each reason is a fixed text, because the scheduler counts nodes by equal texts. None has a percent sign, because the
scheduler uses it as a format.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields.scheduling import Numa, Scheduling, WhenUnknown
from webhook.core.scheduling.node_table import NodeRow, NodeRows, Signals
from webhook.core.scheduling.numa import NumaDemand

_UNKNOWN = "node(s) had no fresh load"


class NodeRefusal(NamedTuple):
    """`rule` is the metric label; `reason` follows a number of nodes in the Pod's Event."""

    rule: str
    reason: str


NUMA_RULE = "numa"
_NO_ZONE = NodeRefusal(NUMA_RULE, "node(s) had no single NUMA zone with the requested cpu and memory")


class _Limit(NamedTuple):
    """The highest value of a signal with which a node passes. `signal` is its index in `Signals`."""

    signal: int
    highest: float
    refused: NodeRefusal


class NodeFilters(Struct, frozen=True):
    """The filters of one Pod."""

    limits: tuple[_Limit, ...] = ()
    numa: NumaDemand | None = None

    def find_refusal(self, row: NodeRow) -> NodeRefusal | None:
        """Return why a node is refused, by the first filter that refuses it; None if it passes."""
        signals = row.signals
        for signal, highest, refused in self.limits:
            if signals[signal] > highest:
                return refused
        if self.numa is not None and row.numa is not None and not self.numa.fits(row.numa):
            return _NO_ZONE
        return None


class NodeVerdicts:
    """The nodes that the filters of one kind of Pod refuse. Only rows that have changed are judged again."""

    def __init__(self, filters: NodeFilters) -> None:
        self.filters = filters
        self._refused: dict[str, NodeRefusal] = {}
        self._version = -1

    def __len__(self) -> int:
        return len(self._refused)

    def update(self, rows: NodeRows) -> None:
        """Judge the rows that have changed since the last call."""
        changed, by_name = rows.changes.list_since(self._version), rows.by_name
        if changed is None:
            self._refused, changed = {}, by_name.keys()
        self._version = rows.changes.version
        for name in changed:
            row = by_name.get(name)
            refusal = None if row is None else self.filters.find_refusal(row)
            if refusal is not None:
                self._refused[name] = refusal
            else:
                self._refused.pop(name, None)

    def select_refused(self, asked: Iterable[str]) -> dict[str, NodeRefusal]:
        """Return the nodes that are refused. A node without a row passes: the scheduler learned of it first."""
        refused = self._refused
        return {name: refused[name] for name in filter(refused.__contains__, asked)} if refused else {}


def find_refused(filters: NodeFilters, asked: Iterable[str], rows: Mapping[str, NodeRow]) -> dict[str, NodeRefusal]:
    """Return the nodes that filters refuse, as `NodeVerdicts` does."""
    known = ((name, row) for name in asked if (row := rows.get(name)) is not None)
    return {name: refusal for name, row in known if (refusal := filters.find_refusal(row)) is not None}


def make_filters(pod: Pod, rules: Scheduling) -> NodeFilters:
    """Return the filters of a Pod by its service's rules, the cheapest first."""
    limits = [_make_limit("unknown", 0.0, _UNKNOWN)] if rules.when_unknown is WhenUnknown.REFUSE else []
    limits += [
        _make_limit(f"{stanza}_{name}", limit, f"node(s) above the {name} {stanza} threshold {limit:g}")
        for stanza, name, limit in _list_thresholds(rules)
    ]
    demand = NumaDemand.from_pod(pod) if rules.numa is Numa.REQUIRED else None
    return NodeFilters(tuple(limits), demand if demand is not None and demand.total else None)


def list_rule_names(rules: Scheduling) -> list[str]:
    """Return the names of the rules that may refuse nodes, as in a `NodeRefusal`."""
    names = [f"{stanza}_{name}" for stanza, name, _ in _list_thresholds(rules)]
    numa_names = [NUMA_RULE] if rules.numa is Numa.REQUIRED else []
    return [*names, *numa_names, *(["unknown"] if rules.when_unknown is WhenUnknown.REFUSE else [])]


def find_limit(rules: Scheduling, rule: str) -> float | None:
    """Return the limit of a rule by its name; None for rules without one."""
    stanza, _, name = rule.partition("_")
    limits = {"hot": rules.hot, "pressure": rules.pressure}.get(stanza)
    return None if limits is None else float(getattr(limits, name))


def read_observed(row: NodeRow, rule: str) -> float | None:
    """Return what a rule compares with its limit on a node; None if that is unknown, and for rules without a limit."""
    if not rule.startswith(("hot_", "pressure_")):
        return None
    value = row.signals[Signals._fields.index(rule)]
    return None if value == -inf else value


def _list_thresholds(rules: Scheduling) -> Iterator[tuple[str, str, float]]:
    """Yield stanza, field and limit of each threshold that is written."""
    for stanza, written in (("hot", rules.hot), ("pressure", rules.pressure)):
        for name, limit in asdict(written).items():
            if limit is not None:
                yield stanza, name, limit


def _make_limit(rule: str, highest: float, reason: str) -> _Limit:
    return _Limit(Signals._fields.index(rule), highest, NodeRefusal(rule, reason))
