"""Topology spread constraints: merged by canonical form; a Pod may have one per topologyKey and whenUnsatisfiable."""

from collections.abc import Hashable

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import TopologySpreadConstraint
from webhook.core.patch import PatchOperation, append, replace
from webhook.core.placement import canonical_form, node_terms
from webhook.core.placement.plan import DO_NOT_SCHEDULE, PlacementPlan, PlannedEntry
from webhook.core.policy_fields import OnConflict

_FIELD = "topology_spread_constraints"
_PATH = ("spec", "topologySpreadConstraints")


def build_operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    """Append missing constraints; under Override, replace contradicting ones."""
    if not plan.spreads:
        return []
    own, labels = pod.spec.topology_spread_constraints, pod.labels
    overrides = plan.find_rule(_FIELD) is OnConflict.OVERRIDE
    changes: list[PatchOperation] = []
    lacking = []
    for wanted in plan.spreads:
        places = _find_same_key(own, wanted.entry)
        if not places:
            lacking.append(wanted.plain)
        elif overrides:
            changes += [
                replace(wanted.plain, *_PATH, i) for i, constraint in places if not is_equal(constraint, wanted, labels)
            ]
    return changes + append(lacking, own, *_PATH)


def find_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return missing DoNotSchedule constraints, and under Deny contradicting constraints of either kind."""
    found: list[Violation] = []
    rule = plan.find_rule(_FIELD)
    for wanted in plan.spreads:
        entry = wanted.entry
        places = _find_same_key(pod.spec.topology_spread_constraints, entry)
        others = [index for index, constraint in places if not is_equal(constraint, wanted, pod.labels)]
        is_required = entry.when_unsatisfiable == DO_NOT_SCHEDULE
        if not places and is_required:
            text = f"spec.topologySpreadConstraints lacks {_format_constraint(entry)}"
            found.append(Violation(Code.PLACEMENT_UNFULFILLED, ".".join(_PATH), _format_owed(entry), text))
        elif others and (rule is OnConflict.DENY or (rule is OnConflict.OVERRIDE and is_required)):
            found.append(_build_contradiction(pod, others[0], entry, is_users=rule is OnConflict.DENY))
    return found


def has_requirements(plan: PlacementPlan) -> bool:
    """Return whether a Pod can violate the constraints."""
    denies = plan.find_rule(_FIELD) is OnConflict.DENY
    return any(denies or wanted.entry.when_unsatisfiable == DO_NOT_SCHEDULE for wanted in plan.spreads)


def _find_same_key(
    own: tuple[TopologySpreadConstraint, ...] | None, wanted: TopologySpreadConstraint
) -> list[tuple[int, TopologySpreadConstraint]]:
    key = canonical_form.find_spread_key(wanted)
    return [
        (index, constraint)
        for index, constraint in enumerate(own or ())
        if canonical_form.find_spread_key(constraint) == key
    ]


def is_equal(
    own: TopologySpreadConstraint, wanted: PlannedEntry[TopologySpreadConstraint], labels: canonical_form.Labels
) -> bool:
    """Return whether the scheduler sees no difference between a constraint and one of the policy."""
    meant = canonical_form.canonicalize_spread(own, labels)
    return meant == wanted.canonical or meant == canonical_form.canonicalize_spread(wanted.entry, labels)


def _build_contradiction(pod: Pod, index: int, wanted: TopologySpreadConstraint, *, is_users: bool) -> Violation:
    field = f"spec.topologySpreadConstraints[{index}]"
    theirs, ours = _describe_difference((pod.spec.topology_spread_constraints or ())[index], wanted, pod.labels)
    if is_users:
        text = f"{field} has {theirs}, the policy sets {ours}; remove it from the Pod or make it equal"
        return Violation(Code.PLACEMENT_CONFLICT, field, _format_owed(wanted), text)
    return Violation(Code.PLACEMENT_UNFULFILLED, field, _format_owed(wanted), f"{field} has {theirs}, expected {ours}")


def _describe_difference(
    own: TopologySpreadConstraint, wanted: TopologySpreadConstraint, labels: canonical_form.Labels
) -> tuple[str, str]:
    """Return the text of the differing fields of two constraints."""
    theirs, ours = _list_parts(own, labels), _list_parts(wanted, labels)
    differing = [name for name in ours if theirs[name][0] != ours[name][0]]
    their_text, our_text = (", ".join(f"{name} {parts[name][1]}" for name in differing) for parts in (theirs, ours))
    return their_text, our_text


def _list_parts(constraint: TopologySpreadConstraint, labels: canonical_form.Labels) -> dict[str, tuple[Hashable, str]]:
    """Return the canonical value and the text of each field outside the key."""
    keys = constraint.match_label_keys or ()
    selector = constraint.label_selector
    return {
        "maxSkew": (constraint.max_skew, str(constraint.max_skew)),
        "labelSelector": (
            canonical_form.canonicalize_selector(selector, labels, keys),
            node_terms.format_selector(selector),
        ),
        "minDomains": (constraint.min_domains or 1, str(constraint.min_domains or 1)),
        **{
            name: (value, value)
            for name, value in (
                ("nodeAffinityPolicy", constraint.node_affinity_policy or "Honor"),
                ("nodeTaintsPolicy", constraint.node_taints_policy or "Ignore"),
            )
        },
        "matchLabelKeys": (frozenset(keys), ", ".join(keys) or "none"),
    }


def _format_owed(wanted: TopologySpreadConstraint) -> str:
    return f"{_PATH[1]} {wanted.topology_key} {wanted.when_unsatisfiable}"


def _format_constraint(wanted: TopologySpreadConstraint) -> str:
    return f"{wanted.topology_key} {wanted.when_unsatisfiable} maxSkew {wanted.max_skew}"
