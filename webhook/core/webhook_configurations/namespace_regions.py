"""Namespace regions: disjoint sets of namespaces by name and labels, one per webhook entry."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from webhook.core.kubernetes.label_constraints import Constraint, Constraints, build_constraints
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector, Requirement
from webhook.core.policy.model import BUILT_IN_EXEMPT_NAMESPACES, Exemptions, FailureMode, Policy, Service, Unmatched
from webhook.core.webhook_configurations.name_sets import (
    EVERY,
    NONE,
    NameSet,
    Patterns,
    list_contradictions,
    list_requirements,
    narrow,
)

METADATA_NAME = "kubernetes.io/metadata.name"
ENTRIES_MAX = 100


class TooManyEntriesError(Exception):
    """The services' namespaceSelectors overlap in more ways than one configuration can hold."""

    def __init__(self) -> None:
        super().__init__(
            "services[].match.namespaceSelector: the selectors overlap so that"
            f" more than {ENTRIES_MAX} webhooks would be needed to tell them apart"
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
        return LabelSelector(match_expressions=tuple(list_requirements(self.labels)))

    def holds(self, name: str, labels: dict[str, str]) -> bool:
        """Match a namespace as the API server does by the entry rendered from this region."""
        return selects(self.selector, labels) and name in self.names and name not in NameSet(self.exempt)

    def subtract(self, other: "NamespaceRegion") -> Iterator["NamespaceRegion"]:
        """Yield disjoint regions that are, together, this one without `other`, whose names have no exceptions."""
        can_meet = narrow(self.labels, *list_requirements(other.labels)) is not None
        shared = self.names.intersect(other.names.inside) if can_meet else None
        if not shared:
            yield self
            return
        rest = self.names.subtract(other.names.inside)
        if rest:
            yield replace(self, names=rest)
        for contradiction in list_contradictions(other.labels):
            labels = narrow(self.labels, *contradiction)
            if labels is not None:
                yield replace(self, names=shared, labels=labels)


def list_regions(policy: Policy) -> tuple[tuple[NamespaceRegion, ...], tuple[NamespaceRegion, ...]]:
    """Return the regions that some Closed service may own, and those that only others may; all are disjoint."""
    relevant = [service for service in policy.services if _is_relevant(service, policy)]
    closed = [service for service in relevant if _is_closed(service)]
    others = [service for service in relevant if not _is_closed(service)]
    first, second = _make_disjoint([_unite(closed), _unite(others)])
    return tuple(_exclude_exempt(first, policy.exemptions)), tuple(_exclude_exempt(second, policy.exemptions))


def list_all_regions(policy: Policy) -> tuple[NamespaceRegion, ...]:
    """Return disjoint regions that are, together, those of all services."""
    relevant = [service for service in policy.services if _is_relevant(service, policy)]
    return tuple(_exclude_exempt(_make_disjoint([_unite(relevant)])[0], policy.exemptions))


def _is_relevant(service: Service, policy: Policy) -> bool:
    """Return whether a call for this service can have an effect.

    With all modes Disabled its Pods are left unchanged, but `unmatched` still applies to its namespaces.
    """
    denies_unmatched = policy.unmatched is not Unmatched.ADMIT and not service.match.any_namespace
    return denies_unmatched or not service.modes.is_all_disabled()


def _is_closed(service: Service) -> bool:
    return service.failure_mode is FailureMode.CLOSED and not service.modes.is_all_disabled()


def _unite(services: Iterable[Service]) -> list[NamespaceRegion]:
    """Return the services' regions, one per selector; selectors that differ in one label's values are merged."""
    names: dict[frozenset[tuple[str, Constraint]], set[str]] = {}
    for service in services:
        labels = build_constraints(service.match.namespace_selector)
        if not any(constraint.is_impossible for constraint in labels.values()):
            names.setdefault(frozenset(labels.items()), set()).update(service.match.namespaces or (EVERY,))
    found = [
        NamespaceRegion(NameSet.from_patterns(patterns), dict(sorted(labels))) for labels, patterns in names.items()
    ]
    for key in sorted({key for region in found for key in region.labels}):
        found = _unite_by_label(key, found)
    # The widest first: regions that it covers need no entry of their own.
    return sorted(found, key=lambda region: len(tuple(list_requirements(region.labels))))


def _unite_by_label(key: str, found: list[NamespaceRegion]) -> list[NamespaceRegion]:
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


def _make_disjoint(groups: Sequence[Sequence[NamespaceRegion]]) -> list[list[NamespaceRegion]]:
    """Subtract from every region all earlier ones, of its own group and of earlier groups."""
    taken: list[NamespaceRegion] = []
    found: list[list[NamespaceRegion]] = []
    for group in groups:
        found.append([])
        for region in group:
            parts = [region]
            for earlier in taken:
                parts = [piece for part in parts for piece in part.subtract(earlier)]
                if len(found[-1]) + len(parts) > ENTRIES_MAX:
                    raise TooManyEntriesError
            taken.append(region)
            found[-1] += parts
    return found


def _exclude_exempt(found: Iterable[NamespaceRegion], exemptions: Exemptions) -> Iterator[NamespaceRegion]:
    """Exclude exempt namespaces: exact names by label, which the API server evaluates first, patterns by name."""
    exact = {pattern for pattern in exemptions.namespaces if "*" not in pattern} | BUILT_IN_EXEMPT_NAMESPACES
    patterns = frozenset(exemptions.namespaces) - exact
    for region in found:
        labels = narrow(region.labels, Requirement(METADATA_NAME, "NotIn", tuple(exact)))
        names = region.names.subtract(patterns)
        if labels is not None and names:
            yield NamespaceRegion(
                NameSet(names.inside, names.outside - patterns), labels, exempt=names.outside & patterns
            )
