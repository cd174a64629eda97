"""Kubernetes' own semantics of node affinity and tolerations on raw JSON, written a second time to judge ours by.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity and k8s.io/api/core/v1/toleration.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def expression_holds(expression: Json, labels: Mapping[str, str]) -> bool:
    key, operator, wanted = expression["key"], expression["operator"], expression.get("values") or []
    if operator == "In":
        return key in labels and labels[key] in wanted
    if operator == "NotIn":
        return key not in labels or labels[key] not in wanted
    if operator in {"Exists", "DoesNotExist"}:
        return (key in labels) is (operator == "Exists")
    if key not in labels or not labels[key].isdigit():
        return False
    return int(labels[key]) > int(wanted[0]) if operator == "Gt" else int(labels[key]) < int(wanted[0])


def term_holds(term: Json, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(expression_holds(expression, labels) for expression in expressions) and all(
        name in field["values"] for field in fields
    )


def terms_of(pod: Json) -> list[Json] | None:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required["nodeSelectorTerms"]


def node_fits(pod: Json, name: str, labels: Mapping[str, str]) -> bool:
    terms = terms_of(pod)
    return terms is None or any(term_holds(term, name, labels) for term in terms)


def tolerates(toleration: Json, key: str, value: str, effect: str) -> bool:
    operator = toleration.get("operator") or "Equal"
    if toleration.get("effect") and toleration["effect"] != effect:
        return False
    if toleration.get("key") and toleration["key"] != key:
        return False
    if operator == "Exists":
        return True
    if operator == "Equal":
        return bool(toleration.get("key")) and (toleration.get("value") or "") == value
    if not value.isdigit():
        return False
    return int(value) > int(toleration["value"]) if operator == "Gt" else int(value) < int(toleration["value"])


def seconds_tolerated(tolerations: Sequence[Json], key: str, value: str, effect: str) -> float:
    """Return how long a taint is borne: -1 not at all; the first toleration that fits it decides, as in eviction."""
    for toleration in tolerations:
        if tolerates(toleration, key, value, effect):
            seconds = toleration.get("tolerationSeconds")
            return float("inf") if seconds is None else max(0, seconds)
    return -1
