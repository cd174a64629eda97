"""Placement plan: a service's placement, precomputed for comparison with Pods and for patches."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from webhook.core.container_resources import find_qos_class
from webhook.core.kubernetes.pod import Pod
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
from webhook.core.placement.node_terms import (
    NodeCondition,
    add_conditions,
    add_expressions,
    drop_implied,
    term_constraints,
)
from webhook.core.placement.toleration_match import reduce_tolerations
from webhook.core.policy_fields import (
    Allowed,
    ConflictRules,
    IfAbsent,
    LabelSource,
    OnConflict,
    Placement,
    QosClass,
    TopologyEntry,
)

SERVICE_LABEL = "podgate.io/service"
VARIANT_LABEL = "podgate.io/variant"
DO_NOT_SCHEDULE = "DoNotSchedule"
"""The `whenUnsatisfiable` of required spread constraints; those with ScheduleAnyway are preferences."""

T = TypeVar("T")


class PlannedEntry(Struct, Generic[T], frozen=True):
    """One entry of a list: typed, in canonical form, and as JSON."""

    entry: T
    canonical: Hashable
    plain: Any

    @classmethod
    def plan_entries(cls, entries: Sequence[T] | None, mean: Callable[[T], Hashable]) -> "tuple[PlannedEntry[T], ...]":
        """Return the entries without those that are equivalent to an earlier one."""
        different = {mean(entry): entry for entry in reversed(entries or ())}
        return tuple(cls(entry, meant, msgspec.to_builtins(entry)) for meant, entry in reversed(different.items()))


class RequiredTerm(Struct, frozen=True):
    """One of the ORed terms of required node affinity, as JSON and as conditions."""

    plain: Any
    asked: tuple[NodeCondition, ...]

    @classmethod
    def from_term(cls, term: NodeSelectorTerm) -> "RequiredTerm":
        asked = tuple(drop_implied({}, NodeCondition.list_conditions(term)))
        return cls(msgspec.to_builtins(add_conditions(NodeSelectorTerm(), asked)), asked)


class PodTerms(Struct, frozen=True):
    """Terms of podAffinity or podAntiAffinity; required terms are ANDed."""

    required: tuple[PlannedEntry[PodAffinityTerm], ...] = ()
    preferred: tuple[PlannedEntry[WeightedPodAffinityTerm], ...] = ()

    @classmethod
    def from_affinity(cls, terms: PodAffinity | None) -> "PodTerms":
        if terms is None:
            return cls()
        return cls(
            PlannedEntry.plan_entries(terms.required, canonical_form.canonicalize_pod_term),
            PlannedEntry.plan_entries(terms.preferred, canonical_form.canonicalize_weighted),
        )


class PlacementPlan(Struct, frozen=True):
    """A service's placement, precomputed.

    `required`: ORed terms of node affinity with topology ANDed into each; empty without requirements on nodes.
    `tolerations`: without those that another one covers, the longest last. `tolerations_by_class`: these and those of
    a QoS class together, in the same form, for each class that has some.
    """

    labels: Mapping[str, str | LabelSource]
    annotations: Mapping[str, str | LabelSource]
    scheduler_name: str | None
    node_selector: Mapping[str, str]
    required: tuple[RequiredTerm, ...]
    preferred: tuple[PlannedEntry[PreferredSchedulingTerm], ...]
    pod_affinity: PodTerms
    pod_anti_affinity: PodTerms
    spreads: tuple[PlannedEntry[TopologySpreadConstraint], ...]
    tolerations: tuple[PlannedEntry[Toleration], ...]
    priority_class_name: str | None
    runtime_class_name: str | None
    allow: Allowed
    allow_node_name: bool
    on_conflict: Mapping[str, OnConflict]
    has_affinity: bool
    if_absent: tuple[IfAbsent, ...] = ()
    tolerations_by_class: Mapping[QosClass, tuple[PlannedEntry[Toleration], ...]] = {}

    @classmethod
    def from_placement(cls, service: str, placement: Placement) -> "PlacementPlan":
        """Return the plan of a service. A spread constraint without a selector selects the service's own Pods."""
        affinity, node_affinity = placement.affinity, placement.affinity.node_affinity
        native = node_affinity.preferred if node_affinity is not None else None
        required = _plan_required(placement)
        preferred = PlannedEntry.plan_entries(
            (*(native or ()), *_plan_preferred(placement.topology)), canonical_form.canonicalize_preferred
        )
        pod_affinity, pod_anti_affinity = (
            PodTerms.from_affinity(affinity.pod_affinity),
            PodTerms.from_affinity(affinity.pod_anti_affinity),
        )
        return cls(
            labels=placement.labels,
            annotations=placement.annotations,
            scheduler_name=placement.scheduler_name,
            node_selector=placement.node_selector,
            required=required,
            preferred=preferred,
            pod_affinity=pod_affinity,
            pod_anti_affinity=pod_anti_affinity,
            spreads=PlannedEntry.plan_entries(
                [_select_own_pods(service, constraint) for constraint in placement.topology_spread_constraints],
                canonical_form.canonicalize_spread,
            ),
            tolerations=_plan_tolerations(placement.tolerations),
            priority_class_name=placement.priority_class_name,
            runtime_class_name=placement.runtime_class_name,
            allow=placement.allow,
            allow_node_name=placement.allow_node_name,
            on_conflict=_resolve_rules(placement.on_conflict),
            has_affinity=bool(required or preferred or pod_affinity != PodTerms() or pod_anti_affinity != PodTerms()),
            if_absent=placement.if_absent,
            tolerations_by_class={
                qos: _plan_tolerations((*placement.tolerations, *found))
                for qos, found in placement.tolerations_by_qos_class.list_by_class().items()
            },
        )

    def adapt_to_pod(self, pod: Pod, qos: QosClass | None = None) -> "PlacementPlan":
        """Return the plan for one Pod: with the tolerations of its class, and without the fields of `ifAbsent` it has.

        Returns the plan itself if it is the same for all Pods. `qos`: the class after the rewrite, if it differs.
        ValueError: an unreadable quantity.
        """
        plan = self._drop_present_fields(pod) if self.if_absent else self
        if not self.tolerations_by_class:
            return plan
        tolerations = self.choose_tolerations(qos or find_qos_class(pod))
        return msgspec.structs.replace(plan, tolerations=tolerations, tolerations_by_class={})

    def list_label_keys(self) -> set[str]:
        """Return the labels of a Pod by which spread constraints and required pod affinity choose what they count."""
        terms = [planned.entry for planned in (*self.pod_affinity.required, *self.pod_anti_affinity.required)]
        keys = [
            *(planned.entry.match_label_keys for planned in self.spreads),
            *(term.match_label_keys for term in terms),
            *(term.mismatch_label_keys for term in terms),
        ]
        return {key for listed in keys for key in listed or ()}

    def choose_tolerations(self, qos: QosClass | None) -> tuple[PlannedEntry[Toleration], ...]:
        """Return the tolerations of a Pod of this class; None if no class decides them."""
        return self.tolerations if qos is None else self.tolerations_by_class.get(qos, self.tolerations)

    def _drop_present_fields(self, pod: Pod) -> "PlacementPlan":
        """Return the plan without the fields of `ifAbsent` that the Pod has; the plan itself if it has none of them."""
        spec, plan = pod.spec, self
        if IfAbsent.TOPOLOGY_SPREAD_CONSTRAINTS in self.if_absent and spec.topology_spread_constraints:
            plan = msgspec.structs.replace(plan, spreads=())
        own = None if spec.affinity is None else spec.affinity.pod_anti_affinity
        if IfAbsent.POD_ANTI_AFFINITY in self.if_absent and own is not None and (own.required or own.preferred):
            has_affinity = bool(self.required or self.preferred or self.pod_affinity != PodTerms())
            plan = msgspec.structs.replace(plan, pod_anti_affinity=PodTerms(), has_affinity=has_affinity)
        return plan

    def drop_preferences(self) -> "PlacementPlan":
        """Return the plan without preferences; the plan itself if it has none."""
        pod_affinity, pod_anti_affinity = (
            PodTerms(required=terms.required) for terms in (self.pod_affinity, self.pod_anti_affinity)
        )
        plan = msgspec.structs.replace(
            self,
            preferred=(),
            pod_affinity=pod_affinity,
            pod_anti_affinity=pod_anti_affinity,
            spreads=tuple(spread for spread in self.spreads if spread.entry.when_unsatisfiable == DO_NOT_SCHEDULE),
            has_affinity=bool(self.required or pod_affinity.required or pod_anti_affinity.required),
        )
        return self if plan == self else plan

    def find_rule(self, field: str) -> OnConflict:
        """Return the onConflict rule for the Pod's own `field`."""
        return self.on_conflict[field]


def _plan_required(placement: Placement) -> tuple[RequiredTerm, ...]:
    expressions = build_required_expressions(placement.topology)
    node_affinity = placement.affinity.node_affinity
    if node_affinity is None or node_affinity.required is None:
        return (RequiredTerm.from_term(NodeSelectorTerm(match_expressions=expressions)),) if expressions else ()
    terms = [add_expressions(term, expressions) for term in node_affinity.required.node_selector_terms or ()]
    # Terms that match no node are left out. The document's rules reject a policy in which none is left.
    return tuple(
        RequiredTerm.from_term(term) for term in [term for term in terms if term_constraints(term) is not None] or terms
    )


def build_required_expressions(topology: Sequence[TopologyEntry]) -> tuple[NodeRequirement, ...]:
    """Return the required topology as node expressions, one per label: entries on the same label are intersected."""
    by_label: dict[str, tuple[str, ...]] = {}
    for entry in topology:
        if entry.preferred_weight is None:
            known = by_label.get(entry.label, entry.values)
            by_label[entry.label] = tuple(value for value in known if value in entry.values)
    return tuple(NodeRequirement(label, "In", values) for label, values in by_label.items())


def _plan_preferred(topology: Sequence[TopologyEntry]) -> list[PreferredSchedulingTerm]:
    return [
        PreferredSchedulingTerm(
            entry.preferred_weight, NodeSelectorTerm((NodeRequirement(entry.label, "In", entry.values),))
        )
        for entry in topology
        if entry.preferred_weight is not None
    ]


def _plan_tolerations(tolerations: Sequence[Toleration]) -> tuple[PlannedEntry[Toleration], ...]:
    return PlannedEntry.plan_entries(reduce_tolerations(tolerations), lambda toleration: toleration)


def _select_own_pods(service: str, constraint: TopologySpreadConstraint) -> TopologySpreadConstraint:
    if constraint.label_selector is not None:
        return constraint
    return msgspec.structs.replace(constraint, label_selector=LabelSelector({SERVICE_LABEL: service}))


def _resolve_rules(rules: ConflictRules) -> dict[str, OnConflict]:
    """Return the rule of each field, its own or the default."""
    return {field: getattr(rules, field) or rules.default for field in ConflictRules.__struct_fields__}
