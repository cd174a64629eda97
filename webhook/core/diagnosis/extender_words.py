"""Texts about a scheduling record: which nodes the extender refused, by how much, and why it preferred others."""

from collections.abc import Mapping

from webhook.core.policy_spec import Mode
from webhook.core.scheduling.scheduling_record import (
    LoadOrigin,
    RefusedNode,
    RuleRefusals,
    SchedulingRecord,
    ZoneFigures,
)
from webhook.core.scheduling.scores import SCORE_MAX

_EXTENDER = "podgate-extender"
_COUNTED = "node(s)"
"""How reasons of refusals begin, after the number of nodes."""


def refused_by_extender(record: SchedulingRecord | None, message: str) -> str:
    """Return that the extender refused all nodes that were left, if so; `message` is the scheduler's newest."""
    attempt = None if record is None else record.filter
    if record is None or attempt is None or attempt.passed or not attempt.refused:
        return ""
    if not any(one.reason in message for one in attempt.refused):
        return ""  # since then the scheduler found no node that it could ask about
    return f"refused by {_EXTENDER}: {'; '.join(refusal_texts(record))}"


def attempt_text(record: SchedulingRecord) -> str:
    """Return the newest attempt in numbers, and how the node was chosen."""
    parts = [f"{record.at:%Y-%m-%dT%H:%M:%SZ} {record.mode}, service {record.service}, attempt {record.attempts}"]
    if record.filter is not None:
        parts.append(f"{record.filter.passed} of {_nodes(record.filter.asked)} passed")
    if record.preempt is not None:
        parts.append(f"preemption: {record.preempt.passed} of {_nodes(record.preempt.asked)} passed")
    if record.node:
        parts.append(f"bound to {record.node}{_choice(record)}")
    return "; ".join(parts)


def refusal_texts(record: SchedulingRecord) -> list[str]:
    """Return a text for each rule that refused nodes, with the figures of a few."""
    would = "" if record.mode is Mode.ENFORCE else "not enforced: "
    return [would + _refusal(one) for one in (record.filter.refused if record.filter is not None else ())]


def zone_texts(record: SchedulingRecord) -> list[str]:
    """Return for a few nodes that were refused for their NUMA zones what was asked of one zone, and free in each."""
    refused = record.filter.refused if record.filter is not None else ()
    return [_zones(node.node, node.zones) for one in refused for node in one.nodes if node.zones is not None]


def score_texts(record: SchedulingRecord) -> list[str]:
    """Return a text for each of the best nodes of the newest attempt, or why there are no scores."""
    score = record.newest_score
    if score is None:
        return [f"none: {why}"] if (why := _unscored(record)) else []
    return [
        f"{one.node} {one.score} of {SCORE_MAX}: free cpu {one.free_cpu:.2f}, free memory {one.free_memory:.2f},"
        f" latency {one.latency:.2f}, near {one.near:.2f} ({_origin(one.load)})"
        for one in score.best
    ]


def weights_text(record: SchedulingRecord) -> str:
    """Return the weights of the terms; "" if the newest attempt has no scores."""
    score = record.newest_score
    return "" if score is None else ", ".join(f"{name} {weight:g}" for name, weight in score.weights.items())


def _unscored(record: SchedulingRecord) -> str:
    """Return why kube-scheduler asked for no scores, or got none; "" if that is not known."""
    attempt = record.filter
    if attempt is None or not attempt.passed:
        return ""
    if record.mode is not Mode.ENFORCE:
        return f"the mode {record.mode} scores no nodes"
    return f"{attempt.only} was the only node left, and kube-scheduler then asks for none" if attempt.only else ""


def _zones(node: str, zones: ZoneFigures) -> str:
    free = "; ".join(f"zone {number} has {_amounts(one)} free" for number, one in enumerate(zones.free))
    return f"{node}: {_amounts(zones.asked)} asked of one zone; {free or 'there is no zone'}"


def _amounts(quantities: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in quantities.items())


def _choice(record: SchedulingRecord) -> str:
    """Return how a Pod's node was chosen among those that passed."""
    if record.filter is not None and record.filter.only == record.node:
        return ", the only node that passed"
    score = record.newest_score
    if score is None:
        return ""
    own = next((one.score for one in score.best if one.node == record.node), None)
    if own is not None and own == score.best[0].score:
        return f", with the best score of {_nodes(score.asked)}"
    return ", by kube-scheduler's own scores: others had more of the extender's"


def _refusal(one: RuleRefusals) -> str:
    what = one.reason.removeprefix(_COUNTED)
    shown = ", ".join(_node(node, one.limit) for node in one.nodes)
    more = f", and {one.count - len(one.nodes)} more" if one.count > len(one.nodes) else ""
    return f"{_nodes(one.count)}{what} ({shown}{more})"


def _node(node: RefusedNode, limit: float | None) -> str:
    if node.zones is not None:
        return node.node
    if node.value is None:
        return f"{node.node} {_origin(node.load)}"
    value = f"{node.value:.2f}"
    if limit is not None and float(value) <= limit:
        value = f"{node.value:.4f}"
    return f"{node.node} {value} {_origin(node.load)}"


def _origin(load: LoadOrigin) -> str:
    if not load.source:
        return "without a load"
    return f"from {load.source}, {max(0.0, load.age_seconds or 0.0):.0f} s old"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
