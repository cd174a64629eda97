"""Label algebra: intersection and complement of selectors, written as native expressions."""

from collections.abc import Iterator

from webhook.core.kubernetes.label_constraints import Constraint, Constraints
from webhook.core.kubernetes.types import Requirement

_OPPOSITE = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
_ANYTHING = Constraint()


def requirements(labels: Constraints) -> Iterator[Requirement]:
    """Yield an equivalent list of expressions, as short as possible and in a stable order."""
    for key, constraint in sorted(labels.items()):
        if constraint.absent:
            yield Requirement(key, "DoesNotExist")
        elif constraint.allowed is not None:
            yield Requirement(key, "In", tuple(sorted(constraint.allowed)))
        else:
            if constraint.present:
                yield Requirement(key, "Exists")
            if constraint.denied:
                yield Requirement(key, "NotIn", tuple(sorted(constraint.denied)))


def narrowed(labels: Constraints, *by: Requirement) -> Constraints | None:
    """Return `labels` and all of `by` combined; None if nothing can match."""
    found = dict(labels)
    for requirement in by:
        before = found.get(requirement.key, _ANYTHING)
        found[requirement.key] = before.narrowed(requirement.operator, frozenset(requirement.values or ()))
        if found[requirement.key].impossible:
            return None
    return found


def contradictions(labels: Constraints) -> Iterator[tuple[Requirement, ...]]:
    """Yield disjoint sets of requirements that together are the complement of `labels`.

    Not (a and b and c) is: not a, or a and not b, or a and b and not c.
    """
    agreed: tuple[Requirement, ...] = ()
    for requirement in requirements(labels):
        yield (*agreed, Requirement(requirement.key, _OPPOSITE[requirement.operator], requirement.values))
        agreed = (*agreed, requirement)
