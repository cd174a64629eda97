"""Services in a region: those that may own Pods of the region's namespaces, in the order of the policy."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple

from webhook.core.kubernetes.label_constraints import Constraint, Constraints, build_constraints, imply
from webhook.core.kubernetes.types import Requirement
from webhook.core.policy.model import Service
from webhook.core.webhook_configurations.cel import format_labels_match, format_namespace_match
from webhook.core.webhook_configurations.name_sets import (
    EVERY,
    NameSet,
    Patterns,
    covers,
    is_covered,
    is_wider,
    list_crossings,
    list_requirements,
    narrow,
)
from webhook.core.webhook_configurations.namespace_regions import NamespaceRegion


@dataclass(frozen=True, slots=True)
class ServiceRegion:
    """A service, and the Pods of a region that its `match` may select.

    `names`: None for all of the region's names. `labels`: of its podSelector. `is_sure`: its namespaceSelector selects
    every namespace of the region, and it has no ownerKinds; an expression cannot read the labels of a namespace.
    """

    service: Service
    names: Patterns | None
    labels: Constraints
    is_sure: bool

    @property
    def expression(self) -> str:
        """The expression that holds for these Pods, "" for all Pods of the region. It can be an operand of `&&`."""
        return _format_match(self.names, self.labels)

    def may_meet(self, other: "ServiceRegion") -> bool:
        """Return whether both may select the same Pod."""
        if self.names is not None and other.names is not None and not NameSet(self.names).intersect(other.names):
            return False
        return narrow(self.labels, *list_requirements(other.labels)) is not None


def format_any_match(services: Iterable[ServiceRegion]) -> str:
    """Return the expression that holds if one of the services selects the Pod, "" if one of them selects all Pods.

    Services that differ only in their names, or in the values of one label, are combined.
    """
    names: set[str] = set()
    values: dict[tuple[Patterns | None, str], set[str]] = {}
    others: list[str] = []
    for region in services:
        labels = tuple(region.labels.items())
        if not labels:
            if region.names is None:
                return ""
            names |= region.names
        elif len(labels) == 1 and labels[0][1].allowed is not None:
            key, constraint = labels[0]
            values.setdefault((region.names, key), set()).update(constraint.allowed or ())
        else:
            others.append(region.expression)
    combined = [
        _format_match(where, {key: Constraint(present=True, allowed=frozenset(allowed))})
        for (where, key), allowed in values.items()
    ]
    of_names = [_format_match(NameSet.from_patterns(names).inside, {})] if names else []
    return " ||\n".join(dict.fromkeys((*of_names, *combined, *others)))


def _format_match(names: Patterns | None, labels: Constraints) -> str:
    name = "" if names is None else format_namespace_match(names)
    if " || " in name:
        name = f"({name})"
    return " && ".join(filter(None, (name, format_labels_match(labels))))


class _Match(NamedTuple):
    service: Service
    patterns: Patterns
    of_namespaces: Constraints
    required: tuple[Requirement, ...]
    """`of_namespaces` as a list."""
    of_pods: Constraints


class ServiceRegions:
    """The services of a policy by region; a policy may have 5000 services and as many names."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._matches = [match for service in services if (match := _compile_match(service)) is not None]

    def find_services(self, region: NamespaceRegion) -> tuple[ServiceRegion, ...]:
        """Return the services that may own Pods in a region."""
        ordered = sorted(region.names.inside)
        found = []
        for match in self._matches:
            names = _intersect(match.patterns, region.names, ordered)
            if names and narrow(region.labels, *match.required) is not None:
                is_sure = imply(region.labels, match.of_namespaces) and not match.service.match.owner_kinds
                all_names = covers(names, region.names.inside)
                found.append(ServiceRegion(match.service, None if all_names else names, match.of_pods, is_sure))
        return tuple(found)


def _compile_match(service: Service) -> _Match | None:
    """Return what a service selects, None if that is nothing."""
    match = service.match
    of_namespaces, of_pods = build_constraints(match.namespace_selector), build_constraints(match.pod_selector)
    if any(label.is_impossible for label in (*of_namespaces.values(), *of_pods.values())):
        return None
    patterns = frozenset(match.namespaces or (EVERY,))
    return _Match(service, patterns, of_namespaces, tuple(list_requirements(of_namespaces)), of_pods)


def _intersect(patterns: Patterns, names: NameSet, ordered: Sequence[str]) -> Patterns:
    """Return patterns of the names that are in both; `ordered`: those of the region, sorted."""
    found: set[str] = set()
    for pattern in patterns:
        if is_covered(pattern, names.inside):
            found.add(pattern)
        else:
            found.update(_list_narrower(pattern, ordered), list_crossings({pattern}, names.inside))
    return frozenset(pattern for pattern in found if not is_covered(pattern, names.outside))


def _list_narrower(pattern: str, ordered: Sequence[str]) -> Iterator[str]:
    """Yield the patterns that a wider one covers: they follow its beginning in the alphabet."""
    start, star, _ = pattern.partition("*")
    if not star:
        return iter(())
    following = islice(ordered, bisect_left(ordered, start), None)
    return (other for other in takewhile(lambda other: other.startswith(start), following) if is_wider(pattern, other))
