"""Attempts to schedule a Pod, with the figures that decided."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import asdict

from webhook.core.kubernetes.pod_requests import format_quantity
from webhook.core.policy_fields.scheduling import Scheduling
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.hot_node_filters import NUMA_RULE, NodeFilters, NodeRefusal, find_limit, read_observed
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

_NODES_SHOWN_MAX = 3
"""Nodes that are shown with figures, for each rule and among the best."""


def record_filter(
    at: datetime, asked: int, found: FilteredNodes, rows: Mapping[str, NodeRow], rules: Scheduling
) -> FilterAttempt:
    """Return what a `filter` call decided."""
    names: dict[str, list[str]] = {}
    for name, refusal in found.refused.items():
        names.setdefault(refusal.reason, []).append(name)
    refused = tuple(
        RuleRefusals(
            found.refused[those[0]].rule,
            reason,
            len(those),
            find_limit(rules, found.refused[those[0]].rule),
            tuple(
                _record_refused_node(name, found.refused[name], rows[name], found.filters, at)
                for name in those[:_NODES_SHOWN_MAX]
            ),
            found.refused[those[0]].is_permanent,
        )
        for reason, those in names.items()
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
        _record_scored_node(name, compute_terms(row, load, rules.score, near, rules.risk), row, at)
        for name, row in shown
    )
    weights = {name: float(weight) for name, weight in asdict(rules.score).items() if weight or name != "risk"}
    return ScoreAttempt(at, count, scored, weights)


def _record_refused_node(
    name: str, refusal: NodeRefusal, row: NodeRow, filters: NodeFilters, at: datetime
) -> RefusedNode:
    zones = _record_zones(row, filters, refusal) if refusal.rule == NUMA_RULE else None
    demand = filters.find_demand(refusal, row)
    return RefusedNode(name, read_observed(row, refusal.rule), _record_origin(row, at), zones, demand)


def _record_zones(row: NodeRow, filters: NodeFilters, refusal: NodeRefusal) -> ZoneFigures | None:
    numa = row.numa if row.numa is None or not refusal.is_permanent else row.numa.whole
    short = None if filters.numa is None or numa is None else filters.numa.find_shortage(numa)
    return (
        None
        if short is None
        else ZoneFigures(_format_quantities(short.asked), tuple(map(_format_quantities, short.free)))
    )


def _format_quantities(amounts: Amounts) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in sorted(amounts.items())}


def _record_scored_node(name: str, terms: ScoreTerms, row: NodeRow, at: datetime) -> ScoredNode:
    load = _record_origin(row, at)
    return ScoredNode(name, terms.score, terms.free_cpu, terms.free_memory, terms.latency, terms.near, load, terms.risk)


def _record_origin(row: NodeRow, at: datetime) -> LoadOrigin:
    load = row.load
    return LoadOrigin() if load is None else LoadOrigin(load.source, at.timestamp() - load.measured_at_seconds)
