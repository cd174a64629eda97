"""Texts about a scheduling record: which nodes the extender refused, by how much, and why it preferred others."""

from collections.abc import Mapping

from webhook.core.policy_fields import Mode
from webhook.core.scheduling.scheduling_record import (
    LoadOrigin,
    RefusedNode,
    RuleRefusals,
    SchedulingRecord,
    ZoneFigures,
)
from webhook.core.scheduling.scores import SCORE_MAX

_EXTENDER = "podgate-extender"
_NOW_SECONDS = 10.0
"""A younger attempt is as of now; the figures of an older one may be over."""
_COUNTED = "node(s)"
"""The beginning of each refusal's reason, after the number of nodes."""


def explain_extender_refusal(record: SchedulingRecord | None, message: str, now_us: int) -> str:
    """Return that the extender refused all remaining nodes; "" if it did not. `message` is the scheduler's newest."""
    attempt = None if record is None else record.filter
    if record is None or attempt is None or attempt.passed or not attempt.refused:
        return ""
    if not any(rule.reason in message for rule in attempt.refused):
        return ""  # since then the scheduler found no node that it could ask about
    age_seconds = now_us / 1_000_000 - attempt.at.timestamp()
    when = f" {age_seconds:.0f} s ago" if age_seconds >= _NOW_SECONDS else ""
    return f"refused by {_EXTENDER}{when}: {'; '.join(describe_refusals(record))}"


def advise_after_refusal(record: SchedulingRecord | None) -> str:
    """Return what to do about a Pod that none of the nodes could ever take; "" if waiting may help."""
    attempt = None if record is None else record.filter
    if attempt is None or not attempt.refused or not all(rule.is_permanent for rule in attempt.refused):
        return ""
    return "let it ask for less, or add a node with larger NUMA zones: waiting does not help"


def describe_attempt(record: SchedulingRecord) -> str:
    """Return the newest attempt in numbers, and how the node was chosen."""
    parts = [f"{record.at:%Y-%m-%dT%H:%M:%SZ} {record.mode}, service {record.service}, attempt {record.attempts}"]
    if record.filter is not None:
        parts.append(f"{record.filter.passed} of {_format_node_count(record.filter.asked)} passed")
    if record.preempt is not None:
        parts.append(f"preemption: {record.preempt.passed} of {_format_node_count(record.preempt.asked)} passed")
    if record.node:
        parts.append(f"bound to {record.node}{_describe_choice(record)}")
    return "; ".join(parts)


def describe_refusals(record: SchedulingRecord) -> list[str]:
    """Return a text for each rule that refused nodes, with the figures of a few."""
    would = "" if record.mode is Mode.ENFORCE else "not enforced: "
    return [would + _describe_rule(rule) for rule in (record.filter.refused if record.filter is not None else ())]


def describe_refused_zones(record: SchedulingRecord) -> list[str]:
    """Return, for a few nodes refused for their NUMA zones, what was asked of one zone and what is free in each."""
    refused = record.filter.refused if record.filter is not None else ()
    return [
        _describe_zones(node.node, node.zones, "in all" if rule.is_permanent else "free")
        for rule in refused
        for node in rule.nodes
        if node.zones is not None
    ]


def describe_scores(record: SchedulingRecord) -> list[str]:
    """Return a text for each of the best nodes of the newest attempt, or why there are no scores."""
    score = record.newest_score
    if score is None:
        return [f"none: {why}"] if (why := _explain_missing_scores(record)) else []
    return [
        f"{scored.node} {scored.score} of {SCORE_MAX}: free cpu {scored.free_cpu:.2f},"
        f" free memory {scored.free_memory:.2f}, latency {scored.latency:.2f}, near {scored.near:.2f}"
        f"{'' if scored.risk is None else f', risk {scored.risk:.2f}'}"
        f" ({_describe_origin(scored.load)})"
        for scored in score.best
    ]


def describe_weights(record: SchedulingRecord) -> str:
    """Return the weights of the terms; "" if the newest attempt has no scores."""
    score = record.newest_score
    return "" if score is None else ", ".join(f"{name} {weight:g}" for name, weight in score.weights.items())


def _explain_missing_scores(record: SchedulingRecord) -> str:
    """Return why kube-scheduler asked for no scores, or got none; "" if that is not known."""
    attempt = record.filter
    if attempt is None or not attempt.passed:
        return ""
    if record.mode is not Mode.ENFORCE:
        return f"the mode {record.mode} scores no nodes"
    return f"{attempt.only} was the only node left, and kube-scheduler then asks for none" if attempt.only else ""


def _describe_zones(node: str, zones: ZoneFigures, how: str) -> str:
    free = "; ".join(f"zone {number} has {_format_amounts(zone)} {how}" for number, zone in enumerate(zones.free))
    return f"{node}: {_format_amounts(zones.asked)} asked of one zone; {free or 'there is no zone'}"


def _format_amounts(quantities: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in quantities.items())


def _describe_choice(record: SchedulingRecord) -> str:
    """Return how a Pod's node was chosen among those that passed."""
    if record.filter is not None and record.filter.only == record.node:
        return ", the only node that passed"
    score = record.newest_score
    if score is None:
        return ""
    own = next((scored.score for scored in score.best if scored.node == record.node), None)
    if own is not None and own == score.best[0].score:
        return f", with the best score of {_format_node_count(score.asked)}"
    return ", by kube-scheduler's own scores: others had more of the extender's"


def _describe_rule(rule: RuleRefusals) -> str:
    what = rule.reason.removeprefix(_COUNTED)
    shown = ", ".join(_describe_node(node, rule.limit) for node in rule.nodes)
    more = f", and {rule.count - len(rule.nodes)} more" if rule.count > len(rule.nodes) else ""
    return f"{_format_node_count(rule.count)}{what} ({shown}{more})"


def _describe_node(node: RefusedNode, limit: float | None) -> str:
    if node.zones is not None:
        return node.node
    if node.value is None:
        return f"{node.node} {_describe_origin(node.load)}"
    figures = (node.value,) if node.demand is None else (node.value, node.demand)
    is_close = limit is not None and sum(round(figure, 2) for figure in figures) <= limit
    value, *more = (f"{figure:.4f}" if is_close else f"{figure:.2f}" for figure in figures)
    own = f" + {more[0]} of this Pod," if more else ""
    return f"{node.node} {value}{own} {_describe_origin(node.load)}"


def _describe_origin(load: LoadOrigin) -> str:
    if not load.source:
        return "without a load"
    return f"from {load.source}, {max(0.0, load.age_seconds or 0.0):.0f} s old"


def _format_node_count(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
