"""Pod affinity terms and spread constraints as values that are equal if their meaning is.

Unknown fields are ignored: an API server that does not know them either drops them.
Source: k8s.io/api/core/v1, and pkg/registry/core/pod/strategy.go for the label keys that the API server merges in.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import msgspec

from tests.core.oracle.nodes import Json, is_match

Meaning = Hashable
Allowed = tuple[bool, frozenset[str], bool]
"""Whether other values are allowed, the values that are exceptions to that, and whether the label may be absent."""
_OTHER = "any other value"


def _find_allowed(expressions: Sequence[Json]) -> Allowed:
    """Return what expressions on the same label allow."""
    named = {value for expression in expressions for value in expression.get("values") or []}
    every = [_OTHER, None, *named]
    fit = {value for value in every if all(is_match(expression, value) for expression in expressions)}
    others = _OTHER in fit
    return others, frozenset(named - fit if others else named & fit), None in fit


def selector(found: Json | None, merged: Iterable[Json] = ()) -> Meaning:
    """Return the meaning of a label selector; None matches nothing, and an empty one everything.

    `merged`: additional expressions.
    """
    if found is None:
        return None
    labels = (found.get("matchLabels") or {}).items()
    all_expressions: list[Json] = [{"key": key, "operator": "In", "values": [value]} for key, value in labels]
    all_expressions += [*(found.get("matchExpressions") or []), *merged]
    by_key = {
        expression["key"]: [other for other in all_expressions if other["key"] == expression["key"]]
        for expression in all_expressions
    }
    return frozenset((key, _find_allowed(expressions)) for key, expressions in by_key.items())


def find_merged_keys(found: Json, pod: Json) -> list[Json]:
    """Return the expressions that the API server merges into a term's selector, or has merged."""
    labels = pod["metadata"].get("labels") or {}
    return [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in found.get(field) or []
        if key in labels
    ]


def find_pod_term(found: Json, pod: Json) -> Meaning:
    namespaces = frozenset(found.get("namespaces") or [])
    if not namespaces and found.get("namespaceSelector") is None:
        namespaces = frozenset([pod["metadata"].get("namespace") or ""])
    return (
        found["topologyKey"],
        selector(found.get("labelSelector"), find_merged_keys(found, pod)),
        namespaces,
        selector(found.get("namespaceSelector")),
        frozenset(found.get("matchLabelKeys") or []),
        frozenset(found.get("mismatchLabelKeys") or []),
    )


def find_weighted_pod_term(found: Json, pod: Json) -> Meaning:
    return found["weight"], find_pod_term(found["podAffinityTerm"], pod)


def spread(found: Json, pod: Json) -> Meaning:
    return (
        found["maxSkew"],
        found["topologyKey"],
        found["whenUnsatisfiable"],
        selector(found.get("labelSelector"), find_merged_keys(found, pod)),
        found.get("minDomains") or 1,
        found.get("nodeAffinityPolicy") or "Honor",
        found.get("nodeTaintsPolicy") or "Ignore",
        frozenset(found.get("matchLabelKeys") or []),
    )


def _expression(found: Json) -> Meaning:
    return found["key"], found["operator"], frozenset(found.get("values") or [])


def preference(found: Json, pod: Json) -> Meaning:  # noqa: ARG001  the signature of MeaningOf
    term = found["preference"]
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    return found["weight"], frozenset(map(_expression, expressions)), frozenset(map(_expression, fields))


def merge_label_keys(pod: Json) -> Json:
    """Return a Pod as the validating half sees it: label keys merged into the selectors that they belong to."""
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pod))
    affinity = copy["spec"].get("affinity") or {}
    found = list(copy["spec"].get("topologySpreadConstraints") or [])
    for kind in ("podAffinity", "podAntiAffinity"):
        for terms in (affinity.get(kind) or {}).values():
            if isinstance(terms, list):
                found += [term.get("podAffinityTerm", term) for term in terms]
    for term in found:
        label_selector = term.get("labelSelector")
        if label_selector is not None:
            merged = find_merged_keys(term, copy)
            if merged:
                label_selector["matchExpressions"] = [*(label_selector.get("matchExpressions") or []), *merged]
    return copy
