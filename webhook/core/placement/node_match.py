"""Node match: whether a Pod's nodeSelector, required node affinity and tolerations allow a node.

Source, as kube-scheduler judges: k8s.io/component-helpers/scheduling/corev1, Kubernetes 1.36.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from webhook.core.kubernetes.label_constraints import Constraint, combine_expressions, parse_integer
from webhook.core.kubernetes.pod import PodSpec
from webhook.core.kubernetes.types import NodeSelectorTerm, Toleration

_NO_SCHEDULE = frozenset({"NoSchedule", "NoExecute"})
_FIELD_NAME = "metadata.name"


class NodeTaint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


def terms_fit(spec: PodSpec, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a Pod's nodeSelector and required node affinity match a node."""
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    terms = find_required_terms(spec)
    return terms is None or any(term_fits(term, name, labels) for term in terms)


def find_required_terms(spec: PodSpec) -> tuple[NodeSelectorTerm, ...] | None:
    """Return the terms of the required node affinity, None without one."""
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    return affinity.node_affinity.required.node_selector_terms or ()


def term_fits(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a term matches a node; an empty term matches none."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(
        _accepts(constraint, known.get(key))
        for known, requirements in ((labels, term.match_expressions), ({_FIELD_NAME: name}, term.match_fields))
        for key, constraint in combine_expressions(requirements or ()).items()
    )


def list_untolerated(spec: PodSpec, taints: Iterable[NodeTaint]) -> list[NodeTaint]:
    """Return the taints that keep a Pod off a node."""
    return [
        taint
        for taint in taints
        if taint.effect in _NO_SCHEDULE
        and not any(tolerates(toleration, taint) for toleration in spec.tolerations or ())
    ]


def tolerates(toleration: Toleration, taint: NodeTaint) -> bool:
    """Return whether a toleration tolerates a taint, for however short a time."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return toleration.key != "" and toleration.value == taint.value
    bound, value = _parse_decimal(toleration.value), _parse_decimal(taint.value)
    if bound is None or value is None:
        return False
    return value < bound if toleration.operator == "Lt" else value > bound


def _accepts(constraint: Constraint, value: str | None) -> bool:
    if value is None:
        return not constraint.present
    return not constraint.absent and not constraint.rules_out(value)


def _parse_decimal(text: str) -> int | None:
    number = parse_integer(text)
    return number if number is not None and str(number) == text else None
