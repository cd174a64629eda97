"""Expected findings of the validating half for a final Pod: required and permitted codes by field.

Permitted findings are those of Pods that fulfil the policy as a whole, but not in each term alone.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.core.oracle import pod_affinity, pod_metadata, policy
from tests.core.oracle.classes import DEFAULT_SCHEDULER, has_conflict
from tests.core.oracle.nodes import REQUIRED, Json, terms_of
from tests.core.oracle.required import TERMS_MAX, build_universe, is_untouched, nodes_of
from tests.core.oracle.rewriting import remove_nulls
from tests.core.oracle.taints import is_fulfilled

NOT_ALLOWED = "PlacementNotAllowed"
CONFLICT, UNFULFILLED, CONTRADICTION = "PlacementConflict", "PlacementUnfulfilled", "PlacementContradiction"
Named = tuple[str, str]
"""A code, and the start of the field's path."""


class Expected(NamedTuple):
    """Required findings, and findings that are permitted in addition."""

    must: set[Named]
    may: set[Named]


def find_expected(pod: Json, placement: Json, service: str) -> Expected:
    """Return the expected findings on a Pod with Podgate's label and annotation."""
    new = remove_nulls(pod)
    placement = policy.select_tolerations(policy.drop_absent_fields(placement, new), new)
    must = {
        *_find_metadata(new, placement),
        *((NOT_ALLOWED, field) for field in pod_metadata.find_not_allowed(new, placement)),
        *_find_classes(new, placement),
        *_find_node_selector(new, placement),
        *_find_neighbours(new, placement),
        *_find_spreads(new, placement, service),
    }
    may: set[Named] = set()
    for named, is_certain in (*_find_required(pod, placement), *_find_tolerations(new, placement)):
        (must if is_certain else may).add(named)
    return Expected(must, may)


def _judge(field: str, rule: str, *, conflict: bool) -> Iterator[Named]:
    if not conflict:
        yield UNFULFILLED, field
    elif rule != "Keep":
        yield (CONFLICT if rule == "Deny" else UNFULFILLED), field


def _find_metadata(pod: Json, placement: Json) -> Iterator[Named]:
    for field in ("labels", "annotations"):
        own = pod["metadata"].get(field) or {}
        for key, value in pod_metadata.find_wanted(pod, placement, field).items():
            if own.get(key) != value:
                yield from _judge(f"metadata.{field}[{key}]", policy.find_rule(placement, field), conflict=key in own)


def _find_classes(pod: Json, placement: Json) -> Iterator[Named]:
    for field, default in (("schedulerName", DEFAULT_SCHEDULER), ("priorityClassName", ""), ("runtimeClassName", "")):
        wanted = placement.get(field)
        if wanted is not None and (pod["spec"].get(field) or default) != wanted:
            conflict = has_conflict(pod, placement, field)
            yield from _judge(f"spec.{field}", policy.find_rule(placement, field), conflict=conflict)


def _find_node_selector(pod: Json, placement: Json) -> Iterator[Named]:
    own = pod["spec"].get("nodeSelector") or {}
    for key, wanted in (placement.get("nodeSelector") or {}).items():
        if own.get(key) != wanted:
            rule = policy.find_rule(placement, "nodeSelector")
            yield from _judge(f"spec.nodeSelector[{key}]", rule, conflict=key in own)


def _find_required(pod: Json, placement: Json) -> Iterator[tuple[Named, bool]]:
    """Yield findings on node affinity, and whether each is required."""
    wanted, own = policy.find_required_terms(placement), terms_of(pod)
    node_universe, mine = nodes_of(pod)
    asks = wanted is not None or placement.get("nodeSelector")
    if not mine and asks:
        yield (CONTRADICTION, "spec"), wanted is not None
    if wanted is None:
        return
    nodes = build_universe(own, wanted)
    escapes = not nodes.is_within(nodes.find_boxes(own), nodes.find_boxes(wanted))
    if escapes or own is None or not all(is_untouched(term, wanted, nodes) for term in own):
        yield (UNFULFILLED, "spec.affinity.nodeAffinity"), escapes
    assert len(own or []) <= TERMS_MAX, node_universe


def _find_neighbours(pod: Json, placement: Json) -> Iterator[Named]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(REQUIRED) or []
        have = {pod_affinity.find_pod_term(term, pod) for term in terms}
        if any(
            pod_affinity.find_pod_term(term, pod) not in have
            for term in policy.find_pod_terms(placement, kind, REQUIRED)
        ):
            yield UNFULFILLED, f"spec.affinity.{kind}"


def _find_spreads(pod: Json, placement: Json, service: str) -> Iterator[Named]:
    rule = policy.find_rule(placement, "topologySpreadConstraints")
    kinds = {
        (constraint["topologyKey"], constraint["whenUnsatisfiable"]): pod_affinity.spread(constraint, pod)
        for constraint in pod["spec"].get("topologySpreadConstraints") or []
    }
    for wanted in policy.find_spreads(placement, service):
        kind = wanted["topologyKey"], wanted["whenUnsatisfiable"]
        if kinds.get(kind) == pod_affinity.spread(wanted, pod):
            continue
        conflict = kind in kinds
        if wanted["whenUnsatisfiable"] == "DoNotSchedule" or (conflict and rule == "Deny"):
            yield from _judge("spec.topologySpreadConstraints", rule, conflict=conflict)


def _find_tolerations(pod: Json, placement: Json) -> Iterator[tuple[Named, bool]]:
    """Yield the finding on tolerations, and whether it is required."""
    have, wanted = pod["spec"].get("tolerations") or [], placement.get("tolerations") or []
    if not all(is_fulfilled(have, toleration) for toleration in wanted):
        yield (
            (UNFULFILLED, "spec.tolerations"),
            not all(is_fulfilled(have, toleration, but_for_ranges=True) for toleration in wanted),
        )
