"""Namespace regions: disjoint sets of namespaces by name and labels, one per webhook entry."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from webhook.core.kubernetes.label_constraints import Constraint, Constraints, constraints
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector, Requirement
from webhook.core.policy.model import BUILT_IN_EXEMPT_NAMESPACES, Exemptions, FailureMode, Policy, Service, Unmatched
from webhook.core.webhook_configurations.name_sets import (
    EVERY,
    NONE,
    NameSet,
    Patterns,
    contradictions,
    narrowed,
    requirements,
)

METADATA_NAME = "kubernetes.io/metadata.name"
MOST_ENTRIES = 100


class TooManyEntriesError(Exception):
    """The services' namespaceSelectors overlap in more ways than one configuration can hold."""

    def __init__(self) -> None:
        super().__init__(
            "services[].match.namespaceSelector: the selectors overlap so that"
            f" more than {MOST_ENTRIES} webhooks would be needed to tell them apart"
        )
        self.remedy = "select by fewer labels, best by values of a single one, or name the namespaces"


@dataclass(frozen=True, slots=True)
class NamespaceRegion:
    """Namespaces with a name in `names` and matching labels, without those that match a pattern of `exempt`."""

    names: NameSet
    labels: Constraints
    exempt: Patterns = NONE

    @property
    def selector(self) -> LabelSelector:
        return LabelSelector(match_expressions=tuple(requirements(self.labels)))

    def holds(self, name: str, labels: dict[str, str]) -> bool:
        """Match a namespace as the API server does by the entry rendered from this region."""
        return selects(self.selector, labels) and name in self.names and name not in NameSet(self.exempt)

    def minus(self, other: "NamespaceRegion") -> Iterator["NamespaceRegion"]:
        """Yield disjoint regions that are, together, this one without `other`, whose names have no exceptions."""
        can_meet = narrowed(self.labels, *requirements(other.labels)) is not None
        shared = self.names.within(other.names.inside) if can_meet else None
        if not shared:
            yield self
            return
        rest = self.names.without(other.names.inside)
        if rest:
            yield replace(self, names=rest)
        for contradiction in contradictions(other.labels):
            labels = narrowed(self.labels, *contradiction)
            if labels is not None:
                yield replace(self, names=shared, labels=labels)


def regions(policy: Policy) -> tuple[tuple[NamespaceRegion, ...], tuple[NamespaceRegion, ...]]:
    """Return the regions that some Closed service may own, and those that only others may; all are disjoint."""
    relevant = [service for service in policy.services if _is_relevant(service, policy)]
    closed = [service for service in relevant if _is_closed(service)]
    others = [service for service in relevant if not _is_closed(service)]
    first, second = _disjoint([_united(closed), _united(others)])
    return tuple(_spared(first, policy.exemptions)), tuple(_spared(second, policy.exemptions))


def all_regions(policy: Policy) -> tuple[NamespaceRegion, ...]:
    """Return disjoint regions that are, together, those of all services."""
    relevant = [service for service in policy.services if _is_relevant(service, policy)]
    return tuple(_spared(_disjoint([_united(relevant)])[0], policy.exemptions))


def _is_relevant(service: Service, policy: Policy) -> bool:
    """Return whether a call for this service can have an effect.

    With all modes Disabled its Pods are left unchanged, but `unmatched` still applies to its namespaces.
    """
    denies_unmatched = policy.unmatched is not Unmatched.ADMIT and not service.match.any_namespace
    return denies_unmatched or not service.modes.all_disabled()


def _is_closed(service: Service) -> bool:
    return service.failure_mode is FailureMode.CLOSED and not service.modes.all_disabled()


def _united(services: Iterable[Service]) -> list[NamespaceRegion]:
    """Return the services' regions, one per selector; selectors that differ in one label's values are merged."""
    names: dict[frozenset[tuple[str, Constraint]], set[str]] = {}
    for service in services:
        labels = constraints(service.match.namespace_selector)
        if not any(constraint.impossible for constraint in labels.values()):
            names.setdefault(frozenset(labels.items()), set()).update(service.match.namespaces or (EVERY,))
    found = [NamespaceRegion(NameSet.of(patterns), dict(sorted(labels))) for labels, patterns in names.items()]
    for key in sorted({key for region in found for key in region.labels}):
        found = _united_by(key, found)
    # The widest first: regions that it covers need no entry of their own.
    return sorted(found, key=lambda region: len(tuple(requirements(region.labels))))


def _united_by(key: str, found: list[NamespaceRegion]) -> list[NamespaceRegion]:
    """Merge regions that differ only in the allowed values of one label."""
    united: list[NamespaceRegion] = []
    values: dict[tuple[NameSet, frozenset[tuple[str, Constraint]]], set[str]] = {}
    for region in found:
        rest = dict(region.labels)
        own = rest.pop(key, None)
        if own is None or own.allowed is None:
            united.append(region)
        else:
            values.setdefault((region.names, frozenset(rest.items())), set()).update(own.allowed)
    for (names, others), allowed in values.items():
        labels = {**dict(others), key: Constraint(present=True, allowed=frozenset(allowed))}
        united.append(NamespaceRegion(names, dict(sorted(labels.items()))))
    return united


def _disjoint(groups: Sequence[Sequence[NamespaceRegion]]) -> list[list[NamespaceRegion]]:
    """Subtract from every region all earlier ones, of its own group and of earlier groups."""
    taken: list[NamespaceRegion] = []
    found: list[list[NamespaceRegion]] = []
    for group in groups:
        found.append([])
        for region in group:
            parts = [region]
            for earlier in taken:
                parts = [piece for part in parts for piece in part.minus(earlier)]
                if len(found[-1]) + len(parts) > MOST_ENTRIES:
                    raise TooManyEntriesError
            taken.append(region)
            found[-1] += parts
    return found


def _spared(found: Iterable[NamespaceRegion], exemptions: Exemptions) -> Iterator[NamespaceRegion]:
    """Exclude exempt namespaces: exact names by label, which the API server evaluates first, patterns by name."""
    exact = {pattern for pattern in exemptions.namespaces if "*" not in pattern} | BUILT_IN_EXEMPT_NAMESPACES
    patterns = frozenset(exemptions.namespaces) - exact
    for region in found:
        labels = narrowed(region.labels, Requirement(METADATA_NAME, "NotIn", tuple(exact)))
        names = region.names.without(patterns)
        if labels is not None and names:
            yield NamespaceRegion(
                NameSet(names.inside, names.outside - patterns), labels, exempt=names.outside & patterns
            )
