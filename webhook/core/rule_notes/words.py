"""Descriptions of the effect of an entry, or of why it had none, from the functions that rewrite and check."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import NodeRequirement, NodeSelectorTerm, Toleration
from webhook.core.placement import (
    PlacementPlan,
    build_operations,
    canonical_form,
    node_terms,
    pod_metadata,
    scalar_fields,
    toleration_match,
    tolerations,
)
from webhook.core.placement.node_match import find_required_terms
from webhook.core.placement.plan import build_required_expressions
from webhook.core.policy_fields import Mode, Placement
from webhook.core.rule_notes.changes import JsonChange
from webhook.core.rule_notes.entries import EntryKind, PolicyEntry

_USERS_OWN = frozenset({Code.PLACEMENT_CONFLICT, Code.RESOURCES_OUTSIDE})
_VERBS = {Mode.ENFORCE: "denies", Mode.WARN: "warns of", Mode.AUDIT: "counts", Mode.DISABLED: "ignores"}
_COMPANIONS = ("/spec/priority", "/spec/preemptionPolicy", "/spec/overhead")
_FORMER = "belongs to the former class, the API server sets it again"
_AS_LIMIT = "as much as its limit"
_SO = "already so"
_REQUIREMENTS_SHOWN_MAX = 3
_ALWAYS_DENIED = frozenset({EntryKind.OF_PODS, EntryKind.FORBIDDEN})
_NO_LIMIT_KINDS = frozenset({EntryKind.REMOVAL, EntryKind.FORBIDDEN})
_METADATA_KINDS = frozenset({EntryKind.LABEL, EntryKind.ANNOTATION})
_MAP_KINDS = _METADATA_KINDS | {EntryKind.NODE_SELECTOR}


def describe_nothing(entry: PolicyEntry, pod: Pod, lacks: Sequence[Violation], mode: Mode) -> str:
    """Return why an entry left a Pod unchanged: `pod` is the rewritten Pod, `lacks` are its violations of the entry."""
    users = [lack for lack in lacks if lack.code in _USERS_OWN]
    if users:
        rule = "onConflict" if entry.concern == "placement" else "whenOutside"
        reason = "" if entry.kind in _ALWAYS_DENIED else f" ({rule} Deny)"
        own = _find_own(entry, pod)
        return f"left{f' {own}' if own else ''}: the validating half {_VERBS[mode]} it{reason}"
    if lacks:
        return f"left: {lacks[0].text}"
    placement = entry.alone.placement
    if entry.kind in _NO_LIMIT_KINDS:
        return f"no container has a limit of {entry.key}"
    if placement is None:
        return "nothing lacks it" if entry.kind is EntryKind.DEFAULT or entry.is_share else "all is within"
    return _describe_if_absent(entry, pod, placement) or _describe_satisfied(entry, pod, placement)


def _describe_if_absent(entry: PolicyEntry, pod: Pod, placement: Placement) -> str:
    """Return the reason if only `ifAbsent` keeps the entry from being written, else ""."""
    if not placement.if_absent or entry.kind not in {EntryKind.SPREAD, EntryKind.TERMS}:
        return ""
    unconditional = PlacementPlan.from_placement(entry.alone.name, replace(placement, if_absent=()))
    return "left to the Pod's own (ifAbsent)" if build_operations(pod, unconditional) else ""


def _find_own(entry: PolicyEntry, pod: Pod) -> str | None:
    """Return the Pod's own value of a field with a single value."""
    plan = entry.alone.placement_plan
    if plan is not None and entry.kind is EntryKind.SINGLE:
        return scalar_fields.scalar_fields_of(pod, plan)[0].own
    if entry.kind in _METADATA_KINDS:
        return (pod.labels if entry.kind is EntryKind.LABEL else pod.annotations).get(entry.key)
    return (pod.spec.node_selector or {}).get(entry.key) if entry.kind is EntryKind.NODE_SELECTOR else None


def _describe_satisfied(entry: PolicyEntry, pod: Pod, placement: Placement) -> str:
    match entry.kind:
        case EntryKind.SINGLE | EntryKind.NODE_SELECTOR:
            own = _find_own(entry, pod)
            wanted = (placement.scheduler_name, placement.priority_class_name, placement.runtime_class_name)
            is_so = own in wanted or own in placement.node_selector.values()
            return _SO if is_so else f"kept the Pod's own {own} (onConflict Keep)"
        case EntryKind.LABEL | EntryKind.ANNOTATION:
            return _describe_metadata(entry, pod, placement)
        case EntryKind.REQUIRED_NODES:
            return _describe_implied(pod, placement)
        case EntryKind.SPREAD:
            return _SO if _has_spread(entry, pod) else "kept the Pod's own (onConflict Keep)"
        case EntryKind.TOLERATION:
            return _describe_covered(entry, pod, placement.tolerations)
        case _:
            return _SO


def _describe_metadata(entry: PolicyEntry, pod: Pod, placement: Placement) -> str:
    """Return why a label or annotation was not written."""
    values = placement.labels if entry.kind is EntryKind.LABEL else placement.annotations
    wanted, own = pod_metadata.resolve_values(values, pod.labels).get(entry.key), _find_own(entry, pod)
    if wanted is None:
        return f"not set: {_describe_source(entry)} is absent"
    return _SO if own == wanted else f"kept the Pod's own {own} (onConflict Keep)"


def _describe_source(entry: PolicyEntry) -> str:
    """Describe the label that a value is copied from, "" for a literal."""
    source = entry.source
    if source is None:
        return ""
    label = f"label {source.from_pod}" if source.from_pod else f"the Namespace's label {source.from_namespace}"
    return label if source.default is None else f"{label} or its default"


def _describe_implied(pod: Pod, placement: Placement) -> str:
    """Return the Pod's own expressions that imply the required ones."""
    fitting = [term for term in find_required_terms(pod.spec) or () if node_terms.term_constraints(term) is not None]
    if not fitting:
        return "left: no node fits the Pod's own required node affinity"
    wanted = set(map(_simplify, _list_wanted(placement)))
    keys = {key for key, _, _ in wanted}
    own = [requirement for term in fitting for requirement in _list_requirements(term) if requirement.key in keys]
    if all(_simplify(requirement) in wanted for requirement in own):
        return _SO
    texts = list(dict.fromkeys(map(node_terms.format_requirement, own)))
    return f"implied by {', '.join(texts[:_REQUIREMENTS_SHOWN_MAX])}"


def _list_wanted(placement: Placement) -> list[NodeRequirement]:
    nodes = placement.affinity.node_affinity
    native = (nodes.required.node_selector_terms or ()) if nodes is not None and nodes.required is not None else ()
    return [
        *build_required_expressions(placement.topology),
        *(requirement for term in native for requirement in _list_requirements(term)),
    ]


def _list_requirements(term: NodeSelectorTerm) -> tuple[NodeRequirement, ...]:
    return (*(term.match_expressions or ()), *(term.match_fields or ()))


def _simplify(requirement: NodeRequirement) -> tuple[str, str, frozenset[str]]:
    return requirement.key, requirement.operator, frozenset(requirement.values or ())


def _has_spread(entry: PolicyEntry, pod: Pod) -> bool:
    plan = entry.alone.placement_plan
    own = {
        canonical_form.canonicalize_spread(constraint, pod.labels)
        for constraint in pod.spec.topology_spread_constraints or ()
    }
    return plan is not None and all(
        canonical_form.canonicalize_spread(wanted.entry, pod.labels) in own for wanted in plan.spreads
    )


def _describe_covered(entry: PolicyEntry, pod: Pod, wanted: Sequence[Toleration]) -> str:
    """Return the Pod's own tolerations that cover the wanted ones."""
    if not wanted:
        return f"not for this Pod: its QoS class is {entry.key}"
    own = pod.spec.tolerations or ()
    wider = [
        tolerations.format_toleration(next(have for have in own if toleration_match.covers(have, toleration)))
        for toleration in wanted
        if toleration not in own and any(toleration_match.covers(have, toleration) for have in own)
    ]
    return f"covered by {', '.join(dict.fromkeys(wider))}" if wider else _SO


def describe_all(entry: PolicyEntry, before: Pod, after: Pod, found: Sequence[tuple[JsonChange, str]]) -> str:
    """Return a description of all changes of an entry, "" if each is described by itself."""
    if entry.kind is EntryKind.SPREAD:
        is_override = any(change.former is not None for change, _ in found)
        return "overrides the Pod's own (onConflict Override)" if is_override else ""
    if entry.kind is EntryKind.TOLERATION:
        return _describe_precedence(before.spec.tolerations or (), after.spec.tolerations or (), found)
    if entry.kind is not EntryKind.REQUIRED_NODES or not find_required_terms(before.spec):
        return ""
    there = len(find_required_terms(after.spec) or ())
    written = len({at.partition("/nodeSelectorTerms/")[2].partition("/")[0] for _, at in found})
    if written < there:
        return f"ANDed into {written} of {there} terms, the others need nothing"
    return "ANDed into every term" if there > 1 else "ANDed into the term"


def _describe_precedence(
    own: Sequence[Toleration], final: Sequence[Toleration], found: Sequence[tuple[JsonChange, str]]
) -> str:
    """Return why tolerations of the policy stand before some of the Pod's, "" if they stand behind."""
    if not own:
        return ""  # the whole list is new
    indexes = [int(change.after.rpartition("/")[2]) for change, _ in found if change.after is not None]
    if not any(toleration in own for index in indexes for toleration in final[index + 1 :]):
        return ""
    return "goes before a shorter one: the first that fits a taint decides when to evict"


def describe_change(entry: PolicyEntry, pod: Pod, change: JsonChange, at: str, value: Any) -> str:
    """Return a description of a new `value`, "" if none is needed.

    `pod` is the original.
    """
    if change.after is None and change.before in _COMPANIONS:
        return _FORMER
    plan, own = entry.alone.placement_plan, change.former
    if plan is None and entry.kind is EntryKind.REMOVAL:
        return _AS_LIMIT if "/requests/" in at else f"limits.{entry.key} is taken out"
    if plan is None:
        return _describe_amount(entry, change, at, value)
    if entry.kind is EntryKind.SINGLE and own:
        (single,) = scalar_fields.scalar_fields_of(pod, plan)
        return (
            f"overrides {own} (onConflict Override)" if single.is_users else f"{own} is only the default, no conflict"
        )
    if entry.kind in _MAP_KINDS:
        source = _describe_source(entry)
        found = [f"from {source}"] if source else []
        return ", ".join(found if own is None else [*found, f"overrides {own} (onConflict Override)"])
    return ""


def _describe_amount(entry: PolicyEntry, change: JsonChange, at: str, value: Any) -> str:
    is_max, is_request = ".max[" in entry.rule, "/requests/" in at
    if entry.ratio:
        return _describe_ratio(entry, change, is_request=is_request)
    if entry.kind is EntryKind.BOUND and change.former is not None:
        return f"{'lowered' if is_max else 'raised'} from {change.former} (whenOutside Clamp)"
    if entry.amount != value:
        return _AS_LIMIT if is_request else "as much as the container's own request"
    if entry.kind is not EntryKind.BOUND:
        return ""
    if is_max:
        return "as much as its limit, which is max" if is_request else "bounds what has no limit"
    return "the least that is allowed"


def _describe_ratio(entry: PolicyEntry, change: JsonChange, *, is_request: bool) -> str:
    if entry.is_share:
        former = f", was {change.former}, as much as its limit" if change.former is not None else ""
        return f"{entry.ratio} of its limit{former}" if is_request else f"the request is {entry.ratio} of it"
    if change.former is not None:
        return f"raised from {change.former}, the limit is at most {entry.ratio} times it (whenOutside Clamp)"
    if is_request:
        return _AS_LIMIT
    return f"{'at most ' if entry.kind is EntryKind.RATIO else ''}{entry.ratio} times the request"
