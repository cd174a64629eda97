"""Matching of label selectors with labels, and with labels whose values are not known yet."""

from collections.abc import Iterator, Mapping

from webhook.core.kubernetes.label_constraints import UnresolvedLabel, UnresolvedLabels
from webhook.core.kubernetes.types import LabelSelector, Requirement


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Evaluate one expression as Kubernetes does: NotIn and DoesNotExist hold if the key is absent."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in (requirement.values or ())
        case "NotIn":
            return value is None or value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case _:
            return value is None


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches; None and an empty selector match everything."""
    if selector is None:
        return True
    if selector.match_labels and not selector.match_labels.items() <= labels.items():
        return False
    return not selector.match_expressions or all(holds(expression, labels) for expression in selector.match_expressions)


def find_deciding_labels(
    selector: LabelSelector | None, labels: Mapping[str, str], unresolved: UnresolvedLabels
) -> tuple[str, ...] | None:
    """Return the labels that decide whether a selector matches: () if it always does, None if it never does.

    Each expression is evaluated alone: two expressions on the same or on related labels may be reported as undecided
    although together they never match.
    """
    deciding: list[str] = []
    for requirement in _list_requirements(selector):
        value = unresolved.get(requirement.key)
        found = holds(requirement, labels) if value is None else _holds_unresolved(requirement, value)
        if found is False:
            return None
        if found is None:
            deciding.append(requirement.key)
    return tuple(dict.fromkeys(deciding))


def _list_requirements(selector: LabelSelector | None) -> Iterator[Requirement]:
    if selector is not None:
        for key, value in (selector.match_labels or {}).items():
            yield Requirement(key, "In", (value,))
        yield from selector.match_expressions or ()


def _holds_unresolved(requirement: Requirement, value: UnresolvedLabel) -> bool | None:
    match requirement.operator:
        case "In":
            return value.is_among(requirement.values or ())
        case "NotIn":
            found = value.is_among(requirement.values or ())
            return None if found is None else not found
        case operator:
            return operator == "Exists"
