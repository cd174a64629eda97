"""Canonical forms of terms and constraints: hashable values, equal if the scheduler sees no difference.

Between the mutating and the validating call, the API server merges the Pod's labels of `matchLabelKeys` and
`mismatchLabelKeys` into the selector. `labels` are the Pod's: a selector has the form that it has when they are merged.
"""

from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType

from webhook.core.kubernetes.label_constraints import build_constraints
from webhook.core.kubernetes.types import (
    LabelSelector,
    NodeRequirement,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Requirement,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)

_OWN = frozenset({""})
Labels = Mapping[str, str]
NO_LABELS: Labels = MappingProxyType({})


def canonicalize_selector(
    selector: LabelSelector | None,
    labels: Labels = NO_LABELS,
    match: Iterable[str] = (),
    mismatch: Iterable[str] = (),
) -> Hashable:
    """Return the form of a selector: None selects no Pod, an empty one every Pod."""
    if selector is None:
        return None
    merged = (
        *(Requirement(key, "In", (labels[key],)) for key in match if key in labels),
        *(Requirement(key, "NotIn", (labels[key],)) for key in mismatch if key in labels),
    )
    if merged:
        selector = LabelSelector(selector.match_labels, (*(selector.match_expressions or ()), *merged))
    return frozenset(build_constraints(selector).items())


def canonicalize_preferred(term: PreferredSchedulingTerm) -> Hashable:
    preference = term.preference
    return (
        term.weight,
        _canonicalize_requirements(preference.match_expressions),
        _canonicalize_requirements(preference.match_fields),
    )


def _canonicalize_requirements(requirements: Iterable[NodeRequirement] | None) -> Hashable:
    return frozenset(
        (requirement.key, requirement.operator, frozenset(requirement.values or ()))
        for requirement in requirements or ()
    )


def canonicalize_pod_term(term: PodAffinityTerm, namespace: str = "", labels: Labels = NO_LABELS) -> Hashable:
    """Return the form of a term. `namespace`: the Pod's own, the default of a term; here it is written ""."""
    keys, others = frozenset(term.match_label_keys or ()), frozenset(term.mismatch_label_keys or ())
    namespaces = frozenset("" if name == namespace else name for name in term.namespaces or ())
    if not namespaces and term.namespace_selector is None:
        namespaces = _OWN
    return (
        term.topology_key,
        canonicalize_selector(term.label_selector, labels, keys, others),
        namespaces,
        canonicalize_selector(term.namespace_selector),
        keys,
        others,
    )


def canonicalize_weighted(term: WeightedPodAffinityTerm, namespace: str = "", labels: Labels = NO_LABELS) -> Hashable:
    return term.weight, canonicalize_pod_term(term.pod_affinity_term, namespace, labels)


def canonicalize_spread(constraint: TopologySpreadConstraint, labels: Labels = NO_LABELS) -> Hashable:
    keys = frozenset(constraint.match_label_keys or ())
    return (
        *find_spread_key(constraint),
        constraint.max_skew,
        canonicalize_selector(constraint.label_selector, labels, keys),
        constraint.min_domains or 1,
        constraint.node_affinity_policy or "Honor",
        constraint.node_taints_policy or "Ignore",
        keys,
    )


def find_spread_key(constraint: TopologySpreadConstraint) -> tuple[str, str]:
    """Return the key by which a Pod's constraints must be unique."""
    return constraint.topology_key, constraint.when_unsatisfiable
