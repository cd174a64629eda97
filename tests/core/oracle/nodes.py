"""Kubernetes' own semantics of node selectors and node affinity on raw JSON.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity and k8s.io/apimachinery/pkg/labels.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Json = Mapping[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NAME = "metadata.name"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)


class Node(NamedTuple):
    """The fields of a node that selectors use."""

    name: str
    labels: Mapping[str, str]


def parse_integer(text: str) -> int | None:
    """Read as Go's strconv.ParseInt does, into 64 bits."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def is_match(expression: Json, value: str | None) -> bool:
    """Return whether an expression matches the value of a label; None: the node has no such label."""
    operator, wanted = expression["operator"], expression.get("values") or []
    match operator:
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists" | "DoesNotExist":
            return (value is not None) is (operator == "Exists")
    have, bound = parse_integer(value or ""), parse_integer(wanted[0]) if len(wanted) == 1 else None
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def is_term_match(term: Json, node: Node) -> bool:
    """Return whether a term matches a node; an empty term matches none."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(is_match(expression, node.labels.get(expression["key"])) for expression in expressions) and all(
        is_match(field, node.name) for field in fields
    )


def node_affinity(pod: Json) -> Json:
    affinity: Json = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return affinity


def terms_of(pod: Json) -> list[Json] | None:
    """Return the required terms, which are ORed; None: any node."""
    required = node_affinity(pod).get(REQUIRED)
    return None if required is None else required.get("nodeSelectorTerms") or []


def preferences_of(pod: Json) -> list[Json]:
    return node_affinity(pod).get(PREFERRED) or []


def is_selector_match(selector: Mapping[str, str] | None, node: Node) -> bool:
    return all(node.labels.get(key) == value for key, value in (selector or {}).items())


def is_any_term_match(terms: Sequence[Json] | None, node: Node) -> bool:
    return terms is None or any(is_term_match(term, node) for term in terms)


def is_node_match(pod: Json, node: Node) -> bool:
    return is_selector_match(pod["spec"].get("nodeSelector"), node) and is_any_term_match(terms_of(pod), node)


def compute_score(preferences: Sequence[Json], node: Node) -> int:
    """Return the sum of the weights of the preferences that fit."""
    return sum(preference["weight"] for preference in preferences if is_term_match(preference["preference"], node))
