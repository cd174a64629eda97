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
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import Hot, Numa, Scheduling, WhenUnknown
from webhook.core.scheduling.assumed_load import NO_LOAD, PodLoad, estimate_load
from webhook.core.scheduling.node_table import NodeRow, Signals
from webhook.core.scheduling.numa import NumaDemand

_UNKNOWN = "node(s) had no fresh load"
OF_MILLI, OF_BYTE = map(Signals._fields.index, ("of_milli", "of_byte"))


class NodeRefusal(NamedTuple):
    """`rule` is the metric label; `reason` follows a number of nodes in the Pod's Event."""

    rule: str
    reason: str
    is_permanent: bool = False
    """The node as it is could never take the Pod: waiting does not help."""


NUMA_RULE = "numa"
_NO_ZONE = NodeRefusal(NUMA_RULE, "node(s) had no single NUMA zone with the requested cpu and memory")
_UNLISTED = NodeRefusal(NUMA_RULE, "node(s) had no NUMA zones listed yet")
_SMALL_ZONES = NodeRefusal(
    NUMA_RULE, "node(s) had only NUMA zones too small for the requested cpu and memory", is_permanent=True
)


class _Limit(NamedTuple):
    """The highest value of a signal with which a node passes, and the load of the Pod that is added to it."""

    highest: float
    refused: NodeRefusal
    demand: PodLoad = NO_LOAD
    refused_with_pod: NodeRefusal | None = None

    def compute_demand(self, signals: Signals) -> float:
        """Return what the Pod adds to the signal: at most half of the limit, so that an idle node takes any Pod."""
        cpu, memory = self.demand
        return min(self.highest / 2, cpu * signals.of_milli + memory * signals.of_byte)


class NodeFilters(Struct, frozen=True):
    """The filters of one Pod."""

    limits: tuple[tuple[int, float, _Limit], ...] = ()
    """Index in `Signals`, the value up to which any Pod passes, and what decides above it."""
    numa: NumaDemand | None = None
    knows_zones: bool = True
    """Whether zones were listed: before, it is not known of any node whether it has some."""

    def find_refusal(self, row: NodeRow) -> NodeRefusal | None:
        """Return why a node is refused, by the first filter that refuses it; None if it passes."""
        signals = row.signals
        for signal, free, limit in self.limits:
            if signals[signal] > free:
                highest, refused, (millis, bytes_), refused_with_pod = limit
                if signals[signal] > highest:
                    return self._find_permanent(row) or refused
                if signals[signal] + millis * signals[OF_MILLI] + bytes_ * signals[OF_BYTE] > highest:
                    return self._find_permanent(row) or refused_with_pod
        if self.numa is None:
            return None
        if not self.knows_zones:
            return _UNLISTED
        if row.numa is not None and not self.numa.fits(row.numa):
            return self._find_permanent(row) or _NO_ZONE
        return None

    def _find_permanent(self, row: NodeRow) -> NodeRefusal | None:
        """Return why a node that is refused now will be refused for good; None if it may pass later."""
        if self.numa is not None and row.numa is not None and self.numa.is_too_large(row.numa):
            return _SMALL_ZONES
        return None

    def find_demand(self, refusal: NodeRefusal, row: NodeRow) -> float | None:
        """Return what the Pod adds to the signal of a node that is refused for the Pod's own load; else None."""
        decided = (limit for *_, limit in self.limits if limit.refused_with_pod == refusal)
        return next((limit.compute_demand(row.signals) for limit in decided), None)


def find_refused(filters: NodeFilters, asked: Iterable[str], rows: Mapping[str, NodeRow]) -> dict[str, NodeRefusal]:
    """Return the nodes that filters refuse, as `NodeVerdicts` does."""
    known = ((name, row) for name in asked if (row := rows.get(name)) is not None)
    return {name: refusal for name, row in known if (refusal := filters.find_refusal(row)) is not None}


def make_filters(pod: Pod, rules: Scheduling, load: PodLoad | None = None, *, knows_zones: bool = True) -> NodeFilters:
    """Return the filters of a Pod by its service's rules, the cheapest first. `load` is its own, if that is known."""
    limits = [_make_limit("unknown", 0.0, _UNKNOWN)] if rules.when_unknown is WhenUnknown.REFUSE else []
    known = estimate_load(pod, rules.estimate) if load is None else load
    own = _select_demands(rules.hot, known)
    for stanza, name, limit in _list_thresholds(rules):
        what = f"above the {name} {stanza} threshold {limit:g}"
        limits.append(_make_limit(f"{stanza}_{name}", limit, f"node(s) {what}"))
        if stanza == "hot" and own:
            with_pod = NodeRefusal(f"{stanza}_{name}", f"node(s) would be {what} with this Pod")
            signal, _, decides = limits[-1]
            limits[-1] = signal, limit / 2, decides._replace(demand=own[name], refused_with_pod=with_pod)
    demand = NumaDemand.from_pod(pod) if rules.numa is Numa.REQUIRED else None
    return NodeFilters(tuple(limits), demand if demand is not None and demand.total else None, knows_zones)


def select_counted_load(rules: Scheduling, load: PodLoad) -> PodLoad:
    """Return what of a Pod's load its filters depend on."""
    hot = rules.hot
    if not hot.own_demand:
        return NO_LOAD
    counts_all = hot.combined is not None
    return PodLoad(
        load.cpu_millis if counts_all or hot.cpu is not None else 0.0,
        load.memory_bytes if counts_all or hot.memory is not None else 0.0,
    )


def _select_demands(hot: Hot, load: PodLoad) -> dict[str, PodLoad]:
    """Return what counts of a Pod's load by threshold; nothing without `ownDemand`."""
    if not hot.own_demand:
        return {}
    cpu, memory = load
    return {"cpu": PodLoad(cpu, 0.0), "memory": PodLoad(0.0, memory), "combined": load}


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
            if isinstance(limit, Number):
                yield stanza, name, limit


def _make_limit(rule: str, highest: float, reason: str) -> tuple[int, float, _Limit]:
    return Signals._fields.index(rule), highest, _Limit(highest, NodeRefusal(rule, reason))
