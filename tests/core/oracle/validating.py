"""Expected findings of the validating half for a final Pod: required and permitted codes by field.

Permitted findings are those of Pods that fulfil the policy as a whole, but not in each term alone.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.core.oracle import pod_affinity, pod_metadata, policy
from tests.core.oracle.classes import DEFAULT_SCHEDULER, conflicts
from tests.core.oracle.nodes import REQUIRED, Json, terms_of
from tests.core.oracle.required import MOST_TERMS, nodes_of, universe, untouched
from tests.core.oracle.rewriting import normal
from tests.core.oracle.taints import fulfilled

NOT_ALLOWED = "PlacementNotAllowed"
CONFLICT, UNFULFILLED, CONTRADICTION = "PlacementConflict", "PlacementUnfulfilled", "PlacementContradiction"
Named = tuple[str, str]
"""A code, and the start of the field's path."""


class Expected(NamedTuple):
    """Required findings, and findings that are permitted in addition."""

    must: set[Named]
    may: set[Named]


def expected(pod: Json, placement: Json, service: str) -> Expected:
    """Return the expected findings on a Pod with Podgate's label and annotation."""
    new = normal(pod)
    placement = policy.of_class(policy.beside(placement, new), new)
    must = {
        *_metadata(new, placement),
        *((NOT_ALLOWED, field) for field in pod_metadata.not_allowed(new, placement)),
        *_classes(new, placement),
        *_node_selector(new, placement),
        *_neighbours(new, placement),
        *_spreads(new, placement, service),
    }
    may: set[Named] = set()
    for named, is_certain in (*_required(pod, placement), *_tolerations(new, placement)):
        (must if is_certain else may).add(named)
    return Expected(must, may)


def _judged(field: str, rule: str, *, conflict: bool) -> Iterator[Named]:
    if not conflict:
        yield UNFULFILLED, field
    elif rule != "Keep":
        yield (CONFLICT if rule == "Deny" else UNFULFILLED), field


def _metadata(pod: Json, placement: Json) -> Iterator[Named]:
    for field in ("labels", "annotations"):
        own = pod["metadata"].get(field) or {}
        for key, value in pod_metadata.wanted(pod, placement, field).items():
            if own.get(key) != value:
                yield from _judged(f"metadata.{field}[{key}]", policy.rule(placement, field), conflict=key in own)


def _classes(pod: Json, placement: Json) -> Iterator[Named]:
    for field, default in (("schedulerName", DEFAULT_SCHEDULER), ("priorityClassName", ""), ("runtimeClassName", "")):
        wanted = placement.get(field)
        if wanted is not None and (pod["spec"].get(field) or default) != wanted:
            conflict = conflicts(pod, placement, field)
            yield from _judged(f"spec.{field}", policy.rule(placement, field), conflict=conflict)


def _node_selector(pod: Json, placement: Json) -> Iterator[Named]:
    own = pod["spec"].get("nodeSelector") or {}
    for key, wanted in (placement.get("nodeSelector") or {}).items():
        if own.get(key) != wanted:
            rule = policy.rule(placement, "nodeSelector")
            yield from _judged(f"spec.nodeSelector[{key}]", rule, conflict=key in own)


def _required(pod: Json, placement: Json) -> Iterator[tuple[Named, bool]]:
    """Yield findings on node affinity, and whether each is required."""
    wanted, own = policy.required_terms(placement), terms_of(pod)
    node_universe, mine = nodes_of(pod)
    asks = wanted is not None or placement.get("nodeSelector")
    if not mine and asks:
        yield (CONTRADICTION, "spec"), wanted is not None
    if wanted is None:
        return
    nodes = universe(own, wanted)
    escapes = not nodes.within(nodes.boxes(own), nodes.boxes(wanted))
    if escapes or own is None or not all(untouched(term, wanted, nodes) for term in own):
        yield (UNFULFILLED, "spec.affinity.nodeAffinity"), escapes
    assert len(own or []) <= MOST_TERMS, node_universe


def _neighbours(pod: Json, placement: Json) -> Iterator[Named]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(REQUIRED) or []
        have = {pod_affinity.pod_term(one, pod) for one in terms}
        if any(pod_affinity.pod_term(one, pod) not in have for one in policy.pod_terms(placement, kind, REQUIRED)):
            yield UNFULFILLED, f"spec.affinity.{kind}"


def _spreads(pod: Json, placement: Json, service: str) -> Iterator[Named]:
    rule = policy.rule(placement, "topologySpreadConstraints")
    kinds = {
        (one["topologyKey"], one["whenUnsatisfiable"]): pod_affinity.spread(one, pod)
        for one in pod["spec"].get("topologySpreadConstraints") or []
    }
    for wanted in policy.spreads(placement, service):
        kind = wanted["topologyKey"], wanted["whenUnsatisfiable"]
        if kinds.get(kind) == pod_affinity.spread(wanted, pod):
            continue
        conflict = kind in kinds
        if wanted["whenUnsatisfiable"] == "DoNotSchedule" or (conflict and rule == "Deny"):
            yield from _judged("spec.topologySpreadConstraints", rule, conflict=conflict)


def _tolerations(pod: Json, placement: Json) -> Iterator[tuple[Named, bool]]:
    """Yield the finding on tolerations, and whether it is required."""
    have, wanted = pod["spec"].get("tolerations") or [], placement.get("tolerations") or []
    if not all(fulfilled(have, one) for one in wanted):
        yield (UNFULFILLED, "spec.tolerations"), not all(fulfilled(have, one, but_for_ranges=True) for one in wanted)
