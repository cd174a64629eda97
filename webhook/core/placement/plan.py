"""What a service's placement means for any Pod, worked out once: ready to compare, and ready to be written."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.types import (
    LabelSelector,
    NodeRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from webhook.core.placement import canonical_form
from webhook.core.placement.node_terms import NodeCondition, joined, least, said, with_asked
from webhook.core.placement.toleration_match import reduced
from webhook.core.policy_spec import ConflictRules, OnConflict, Placement, TopologyEntry

SERVICE_LABEL = "podgate.io/service"
DO_NOT_SCHEDULE = "DoNotSchedule"
"""Of a spread constraint's `whenUnsatisfiable`: it is required. The other one, ScheduleAnyway, only prefers."""

T = TypeVar("T")


class Wanted(Struct, Generic[T], frozen=True):
    """One entry of a list: as a type, as what it means for any Pod, as the JSON to write."""

    entry: T
    meant: Hashable
    plain: Any

    @classmethod
    def each(cls, entries: Sequence[T] | None, mean: Callable[[T], Hashable]) -> "tuple[Wanted[T], ...]":
        """Return the entries, of those that mean the same the first."""
        different = {mean(entry): entry for entry in reversed(entries or ())}
        return tuple(cls(entry, meant, msgspec.to_builtins(entry)) for meant, entry in reversed(different.items()))


class RequiredTerm(Struct, frozen=True):
    """One of the ORed terms of required node affinity, taken apart."""

    plain: Any
    asked: tuple[NodeCondition, ...]

    @classmethod
    def of(cls, term: NodeSelectorTerm) -> "RequiredTerm":
        asked = tuple(least({}, NodeCondition.each(term)))
        return cls(msgspec.to_builtins(with_asked(NodeSelectorTerm(), asked)), asked)


class PodTerms(Struct, frozen=True):
    """Of podAffinity, or of podAntiAffinity: all required terms hold together."""

    required: tuple[Wanted[PodAffinityTerm], ...] = ()
    preferred: tuple[Wanted[WeightedPodAffinityTerm], ...] = ()

    @classmethod
    def of(cls, terms: PodAffinity | None) -> "PodTerms":
        if terms is None:
            return cls()
        return cls(
            Wanted.each(terms.required, canonical_form.of_pod_term),
            Wanted.each(terms.preferred, canonical_form.of_weighted),
        )


class PlacementPlan(Struct, frozen=True):
    """`required`: ORed terms of node affinity, topology ANDed into each; none where any node will do.

    `tolerations`: none that another one covers, the longest last.
    """

    scheduler_name: str | None
    node_selector: Mapping[str, str]
    required: tuple[RequiredTerm, ...]
    preferred: tuple[Wanted[PreferredSchedulingTerm], ...]
    pod_affinity: PodTerms
    pod_anti_affinity: PodTerms
    spreads: tuple[Wanted[TopologySpreadConstraint], ...]
    tolerations: tuple[Wanted[Toleration], ...]
    priority_class_name: str | None
    runtime_class_name: str | None
    allow_node_name: bool
    on_conflict: Mapping[str, OnConflict]
    has_affinity: bool

    @classmethod
    def of(cls, service: str, placement: Placement) -> "PlacementPlan":
        """Return the plan of a service by its name: a spread without a selector means its own Pods."""
        affinity, node_affinity = placement.affinity, placement.affinity.node_affinity
        native = node_affinity.preferred if node_affinity is not None else None
        required = _required(placement)
        preferred = Wanted.each((*(native or ()), *_preferred(placement.topology)), canonical_form.of_preferred)
        pod_affinity, pod_anti_affinity = PodTerms.of(affinity.pod_affinity), PodTerms.of(affinity.pod_anti_affinity)
        return cls(
            scheduler_name=placement.scheduler_name,
            node_selector=placement.node_selector,
            required=required,
            preferred=preferred,
            pod_affinity=pod_affinity,
            pod_anti_affinity=pod_anti_affinity,
            spreads=Wanted.each(
                [_own_pods(service, one) for one in placement.topology_spread_constraints], canonical_form.of_spread
            ),
            tolerations=Wanted.each(reduced(placement.tolerations), lambda toleration: toleration),
            priority_class_name=placement.priority_class_name,
            runtime_class_name=placement.runtime_class_name,
            allow_node_name=placement.allow_node_name,
            on_conflict=_rules(placement.on_conflict),
            has_affinity=bool(required or preferred or pod_affinity != PodTerms() or pod_anti_affinity != PodTerms()),
        )

    def without_preferences(self) -> "PlacementPlan":
        """Return what of it is required; the plan itself where it prefers nothing."""
        pod_affinity, pod_anti_affinity = (
            PodTerms(required=terms.required) for terms in (self.pod_affinity, self.pod_anti_affinity)
        )
        plan = msgspec.structs.replace(
            self,
            preferred=(),
            pod_affinity=pod_affinity,
            pod_anti_affinity=pod_anti_affinity,
            spreads=tuple(one for one in self.spreads if one.entry.when_unsatisfiable == DO_NOT_SCHEDULE),
            has_affinity=bool(self.required or pod_affinity.required or pod_anti_affinity.required),
        )
        return self if plan == self else plan

    def rule_for(self, field: str) -> OnConflict:
        """Return what to do where the Pod's own `field` contradicts the policy."""
        return self.on_conflict[field]


def _required(placement: Placement) -> tuple[RequiredTerm, ...]:
    expressions = required_expressions(placement.topology)
    node_affinity = placement.affinity.node_affinity
    if node_affinity is None or node_affinity.required is None:
        return (RequiredTerm.of(NodeSelectorTerm(match_expressions=expressions)),) if expressions else ()
    terms = [joined(term, expressions) for term in node_affinity.required.node_selector_terms or ()]
    # One that fits no node adds nothing. The document's rules refuse it where none is left.
    return tuple(RequiredTerm.of(term) for term in [term for term in terms if said(term) is not None] or terms)


def required_expressions(topology: Sequence[TopologyEntry]) -> tuple[NodeRequirement, ...]:
    """Return the required topology as node expressions, one a label: entries on the same label are intersected."""
    by_label: dict[str, tuple[str, ...]] = {}
    for entry in topology:
        if entry.preferred_weight is None:
            known = by_label.get(entry.label, entry.values)
            by_label[entry.label] = tuple(value for value in known if value in entry.values)
    return tuple(NodeRequirement(label, "In", values) for label, values in by_label.items())


def _preferred(topology: Sequence[TopologyEntry]) -> list[PreferredSchedulingTerm]:
    return [
        PreferredSchedulingTerm(
            entry.preferred_weight, NodeSelectorTerm((NodeRequirement(entry.label, "In", entry.values),))
        )
        for entry in topology
        if entry.preferred_weight is not None
    ]


def _own_pods(service: str, constraint: TopologySpreadConstraint) -> TopologySpreadConstraint:
    if constraint.label_selector is not None:
        return constraint
    return msgspec.structs.replace(constraint, label_selector=LabelSelector({SERVICE_LABEL: service}))


def _rules(rules: ConflictRules) -> dict[str, OnConflict]:
    """Return the rule of each field, its own or the default one."""
    return {field: getattr(rules, field) or rules.default for field in ConflictRules.__struct_fields__}
