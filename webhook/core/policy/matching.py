"""Matching of Pods to services: the first service in the list that matches owns the Pod, as in a firewall."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from webhook.core.kubernetes.label_constraints import RESOLVED, UnresolvedLabels
from webhook.core.kubernetes.name_patterns import PatternIndex
from webhook.core.kubernetes.selector_match import find_deciding_labels, selects
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.lru_cache import SelfFillingCache
from webhook.core.policy.model import Match, Policy, Service
from webhook.core.policy.teams import list_team_keys

NAME_LABEL = "kubernetes.io/metadata.name"
"""Label with the name of the Namespace, which the API server writes into each."""
_NAMESPACES_MAX = 10_000
_EVERY = ("*",)
"""The patterns of a match that says nothing of names."""


def _selects_by_name(match: Match, namespace: str) -> bool | None:
    """Evaluate a namespaceSelector by the namespace's name alone; None if it reads other labels."""
    selector = match.namespace_selector
    if selector is None:
        return True
    return selects(selector, {NAME_LABEL: namespace}) if _list_keys(selector) <= {NAME_LABEL} else None


def _list_keys(selector: LabelSelector | None) -> frozenset[str]:
    """Return the labels that a selector reads."""
    if selector is None:
        return frozenset()
    expressions = selector.match_expressions or ()
    return frozenset(selector.match_labels or ()).union(expression.key for expression in expressions)


def _fits_kind(match: Match, kind: str | None) -> bool:
    """Evaluate `ownerKinds` by the kind of a Pod's workload; None if it is not known."""
    return not match.owner_kinds or kind is None or kind in match.owner_kinds


def _owns_all(match: Match) -> bool:
    """Return whether a match holds for every Pod of the namespaces whose names match."""
    return match.namespace_selector is None and match.pod_selector is None and not match.owner_kinds


class PossibleOwner(NamedTuple):
    """A service (or None) that may own a workload's Pods, and the labels that decide it: () for the last entry."""

    service: Service | None
    labels: tuple[str, ...] = ()


class Candidates(Struct, frozen=True, gc=False):
    """The services that may own the Pods of a namespace, by its name, and whether they read its labels.

    `need_labels`: some service selects or counts by them. `read_labels`: or writes them into Pods.
    `label_keys`: those by which some service selects or counts.
    `is_certain`: the first service owns every new Pod, or there is no service.
    """

    services: tuple[Service, ...]
    need_labels: bool
    read_labels: bool
    is_certain: bool
    first: Service | None
    label_keys: frozenset[str]


def _index_by_name(policy: Policy) -> PatternIndex:
    """Return the positions of the services that may own Pods of a namespace, by its name."""
    index = PatternIndex()
    for position, service in enumerate(policy.services):
        for pattern in service.match.namespaces or _EVERY:
            index.add(pattern, position)
    return index


def _find_candidates(of_policy: Sequence[Service], by_name: PatternIndex, namespace: str) -> Candidates:
    services = tuple(of_policy[position] for position in sorted(by_name.find(namespace)))
    need_labels = any(
        service.match.namespace_selector is not None or list_team_keys(service.quota) for service in services
    )
    read_labels = need_labels or any(service.namespace_keys for service in services)
    first = services[0] if services else None
    is_certain = first is None or _owns_all(first.match)
    label_keys = frozenset[str]().union(
        *(_list_keys(service.match.namespace_selector).union(list_team_keys(service.quota)) for service in services)
    )
    return Candidates(services, need_labels, read_labels, is_certain, first, label_keys)


class Matcher:
    """Matcher of a policy, with a cache of candidate services by namespace name."""

    def __init__(self, policy: Policy) -> None:
        self.reads_kinds = any(service.match.owner_kinds for service in policy.services)
        """Whether any owner depends on the kind of a Pod's workload."""
        self.by_namespace = SelfFillingCache(
            _NAMESPACES_MAX, partial(_find_candidates, policy.services, _index_by_name(policy))
        )

    def list_candidates(self, namespace: str) -> tuple[Service, ...]:
        """Return, in order, the services that may own Pods of a namespace, by its name."""
        return self.by_namespace[namespace].services

    def needs_labels(self, namespace: str) -> bool:
        """Return whether the possible owners depend on labels of the namespace."""
        return self.by_namespace[namespace].need_labels

    def may_differ(self, namespace: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Return whether a change of a namespace's labels may change the owner or the team of its Pods."""
        return any(before.get(key) != after.get(key) for key in self.by_namespace[namespace].label_keys)

    def labels_decide(
        self,
        namespace: str,
        labels: Mapping[str, str],
        kind: str | None,
        *,
        to_be_named: bool,
        unresolved: UnresolvedLabels = RESOLVED,
    ) -> bool:
        """Return whether the owner of a Pod with these labels depends on labels of its namespace.

        `to_be_named`: without an owner it also matters whether some service names the namespace.
        """
        if not self.needs_labels(namespace):
            return False
        candidates = self.list_candidates(namespace)
        for service in candidates:
            if not _fits_kind(service.match, kind):
                continue
            selected = _selects_by_name(service.match, namespace)
            deciding = find_deciding_labels(service.match.pod_selector, labels, unresolved)
            if selected is not False and deciding is not None and (selected is None or not deciding):
                return selected is None
        named = {
            _selects_by_name(service.match, namespace) for service in candidates if not service.match.any_namespace
        }
        return to_be_named and True not in named and None in named

    def find_owner(
        self,
        namespace: str,
        namespace_labels: Mapping[str, str],
        labels: Mapping[str, str] | None,
        kind: str | None = "",
    ) -> Service | None:
        """Return the first service whose `match` holds.

        Without `labels`, podSelectors are ignored. `kind`: the workload's, "" for none; None ignores ownerKinds.
        """
        for service in self.by_namespace[namespace].services:
            match = service.match
            if match.owner_kinds and not _fits_kind(match, kind):
                continue
            if not selects(match.namespace_selector, namespace_labels):
                continue
            if labels is None or selects(match.pod_selector, labels):
                return service
        return None

    def find_possible_owners(
        self,
        namespace: str,
        namespace_labels: Mapping[str, str],
        labels: Mapping[str, str],
        unresolved: UnresolvedLabels,
        kind: str = "",
    ) -> tuple[PossibleOwner, ...]:
        """Return, in order, every service that may be the first match; a single entry if that is certain."""
        found = []
        for service in self.list_candidates(namespace):
            if not _fits_kind(service.match, kind) or not selects(service.match.namespace_selector, namespace_labels):
                continue
            deciding = find_deciding_labels(service.match.pod_selector, labels, unresolved)
            if deciding is None:
                continue
            found.append(PossibleOwner(service, deciding))
            if not deciding:
                return tuple(found)
        return (*found, PossibleOwner(None))

    def may_own(self, service: Service, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether `service` may own Pods in a namespace, by its name and labels."""
        return service in self.list_candidates(namespace) and selects(
            service.match.namespace_selector, namespace_labels
        )

    def names(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether some service selects this namespace by name or labels."""
        return any(
            not service.match.any_namespace and selects(service.match.namespace_selector, namespace_labels)
            for service in self.list_candidates(namespace)
        )
