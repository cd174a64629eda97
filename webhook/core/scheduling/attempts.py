"""Attempts to schedule a Pod, with the figures that decided, and the Pods that the rules keep off nodes."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict

from webhook.core.kubernetes.pod_requests import format_quantity
from webhook.core.lru_cache import LruCache
from webhook.core.policy_fields.scheduling import Scheduling
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.hot_node_filters import NUMA_RULE, NodeFilters, find_limit, read_observed
from webhook.core.scheduling.node_selection import FilteredNodes
from webhook.core.scheduling.node_table import NodeRow
from webhook.core.scheduling.numa import Amounts
from webhook.core.scheduling.scheduling_record import (
    FilterAttempt,
    LoadOrigin,
    RefusedNode,
    RuleRefusals,
    ScoreAttempt,
    ScoredNode,
    ZoneFigures,
)
from webhook.core.scheduling.scores import NearOf, ScoreTerms, compute_terms

_KINDS_MAX = 64

PodKind = tuple[str, PodLoad]
"""Service and expected load. Pods of one service that ask for the same are of one kind."""


class _Refused(Struct, frozen=True):
    filters: NodeFilters
    nodes: frozenset[str]


class UnschedulablePods:
    """The newest Pod of each kind."""

    def __init__(self) -> None:
        self._kinds: LruCache[PodKind, _Refused] = LruCache(_KINDS_MAX)

    def __len__(self) -> int:
        return len(self._kinds)

    def note_refusal(self, kind: PodKind, filters: NodeFilters, nodes: frozenset[str]) -> None:
        self._kinds.keep(kind, _Refused(filters, nodes))

    def list_kinds(self) -> list[PodKind]:
        return [kind for kind, _ in self._kinds.items()]

    def take_if_fitting(self, kind: PodKind, rows: Mapping[str, NodeRow]) -> bool:
        """Return whether a node that refused this Pod would pass it now; the kind is forgotten then."""
        refused = self._kinds.get(kind)
        if refused is None or not _fits(refused, rows):
            return False
        self._kinds.forget(kind)
        return True


def _fits(refused: _Refused, rows: Mapping[str, NodeRow]) -> bool:
    refusal = refused.filters.find_refusal
    return any((row := rows.get(name)) is not None and refusal(row) is None for name in refused.nodes)


_NODES_SHOWN_MAX = 3
"""Nodes that are shown with figures, for each rule and among the best."""


def record_filter(
    at: datetime, asked: int, found: FilteredNodes, rows: Mapping[str, NodeRow], rules: Scheduling
) -> FilterAttempt:
    """Return what a `filter` call decided."""
    names: dict[str, list[str]] = {}
    for name, refusal in found.refused.items():
        names.setdefault(refusal.rule, []).append(name)
    refused = tuple(
        RuleRefusals(
            rule,
            found.refused[of_rule[0]].reason,
            len(of_rule),
            find_limit(rules, rule),
            tuple(
                _record_refused_node(name, rule, rows[name], found.filters, at) for name in of_rule[:_NODES_SHOWN_MAX]
            ),
        )
        for rule, of_rule in names.items()
    )
    passed = found.passed
    return FilterAttempt(at, asked, len(passed), passed[0] if len(passed) == 1 else "", refused)


def record_score(
    at: datetime,
    load: PodLoad,
    count: int,
    best: Sequence[str],
    rows: Mapping[str, NodeRow],
    rules: Scheduling,
    near: NearOf,
) -> ScoreAttempt:
    """Return what a `prioritize` call decided about `count` nodes, of which `best` are the best, in this order.

    `load` is the Pod's expected one.
    """
    shown = [(name, rows[name]) for name in best[:_NODES_SHOWN_MAX]]
    scored = tuple(
        _record_scored_node(name, compute_terms(row, load, rules.score, near), row, at) for name, row in shown
    )
    weights = {name: float(weight) for name, weight in asdict(rules.score).items()}
    return ScoreAttempt(at, count, scored, weights)


def _record_refused_node(name: str, rule: str, row: NodeRow, filters: NodeFilters, at: datetime) -> RefusedNode:
    zones = _record_zones(row, filters) if rule == NUMA_RULE else None
    return RefusedNode(name, read_observed(row, rule), _record_origin(row, at), zones)


def _record_zones(row: NodeRow, filters: NodeFilters) -> ZoneFigures | None:
    short = None if filters.numa is None or row.numa is None else filters.numa.find_shortage(row.numa)
    return (
        None
        if short is None
        else ZoneFigures(_format_quantities(short.asked), tuple(map(_format_quantities, short.free)))
    )


def _format_quantities(amounts: Amounts) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in sorted(amounts.items())}


def _record_scored_node(name: str, terms: ScoreTerms, row: NodeRow, at: datetime) -> ScoredNode:
    return ScoredNode(
        name, terms.score, terms.free_cpu, terms.free_memory, terms.latency, terms.near, _record_origin(row, at)
    )


def _record_origin(row: NodeRow, at: datetime) -> LoadOrigin:
    load = row.load
    return LoadOrigin() if load is None else LoadOrigin(load.source, at.timestamp() - load.measured_at_seconds)
