"""Nodes that the placement of a Pod leaves: by each entry of the policy, by the Pod's own terms, and by taints.

The scheduler tells only which of its plugins filtered how many nodes; it does not tell who wrote the terms.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from webhook.core.diagnosis.objects import NodeTaint, ReportedNode
from webhook.core.diagnosis.report import NodeFilter, NodesReport
from webhook.core.explanation.entries import EntryKind, PolicyEntry, entries
from webhook.core.kubernetes.label_constraints import Constraint, constraints_of, integer
from webhook.core.kubernetes.pod import PodSpec
from webhook.core.kubernetes.types import NodeRequirement, NodeSelectorTerm, Toleration
from webhook.core.placement.requirement_text import of_requirement
from webhook.core.policy.model import Service
from webhook.core.policy_spec import Mode

_NO_SCHEDULE = frozenset({"NoSchedule", "NoExecute"})
_FIELD_NAME = "metadata.name"


class _Term(NamedTuple):
    """A requirement on nodes, by a name for people."""

    by: str
    text: str
    fits: Callable[[ReportedNode], bool]


def term_fits(term: NodeSelectorTerm, node: ReportedNode) -> bool:
    """Return whether a term matches a node, as the scheduler does; an empty term matches none."""
    if _is_empty(term):
        return False
    labels = node.metadata.labels or {}
    fields = {_FIELD_NAME: node.metadata.name}
    return all(
        _accepts(constraint, known.get(key))
        for known, requirements in ((labels, term.match_expressions), (fields, term.match_fields))
        for key, constraint in constraints_of(requirements or ()).items()
    )


def _is_empty(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def _accepts(constraint: Constraint, value: str | None) -> bool:
    if value is None:
        return not constraint.present
    return not constraint.absent and not constraint.rules_out(value)


def tolerates(toleration: Toleration, taint: NodeTaint) -> bool:
    """Return whether a toleration tolerates a taint, for however short a time."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return toleration.key != "" and toleration.value == taint.value
    bound, value = _decimal(toleration.value), _decimal(taint.value)
    if bound is None or value is None:
        return False
    return value < bound if toleration.operator == "Lt" else value > bound


def _decimal(text: str) -> int | None:
    number = integer(text)
    return number if number is not None and str(number) == text else None


def nodes_report(
    final: PodSpec, original: PodSpec | None, service: Service | None, nodes: Sequence[ReportedNode]
) -> NodesReport:
    """Return how many nodes each side leaves. `original`: the Pod before the rewrite, None if it is not known."""
    of_policy = list(_policy_terms(service, final))
    of_pod = list(_own_terms(final, original, service))
    by_policy, left = _filtered(of_policy, nodes, nodes)
    by_pod, wanted = _filtered(of_pod, nodes, left)
    own_alone = _filtered(of_pod, nodes, nodes)[1]
    usable = [node for node in wanted if not _untolerated(final, node)]
    taints = Counter(taint for node in wanted for taint in _untolerated(final, node))
    return NodesReport(
        total=len(nodes),
        policy=tuple(by_policy),
        policy_leaves=len(left),
        own=tuple(by_pod),
        own_leave=len(own_alone),
        both_leave=len(wanted),
        taints=tuple(NodeFilter(_taint_text(taint), "", count, 0) for taint, count in taints.most_common()),
        left=len(usable),
        names=tuple(node.metadata.name for node in usable[:10]),
    )


def _filtered(
    terms: Iterable[_Term], nodes: Sequence[ReportedNode], left: Sequence[ReportedNode]
) -> tuple[list[NodeFilter], Sequence[ReportedNode]]:
    """Apply the terms to `left`; of each: how many of all nodes fit it alone, and how many are left after it."""
    found = []
    for term in terms:
        left = [node for node in left if term.fits(node)]
        found.append(NodeFilter(term.by, term.text, sum(map(term.fits, nodes)), len(left)))
    return found, left


def _policy_terms(service: Service | None, final: PodSpec) -> Iterator[_Term]:
    if service is None or service.modes.placement is not Mode.ENFORCE:
        return
    for entry in entries(service):
        if entry.kind is EntryKind.NODE_SELECTOR and _is_in_force(entry, final):
            ((key, value),) = _selected(entry).items()
            yield _selector(entry.rule, key, value)
        elif entry.kind is EntryKind.REQUIRED_NODES and entry.alone.placement_plan is not None:
            terms = tuple(
                NodeSelectorTerm(
                    tuple(one.requirement for one in required.asked if not one.is_field),
                    tuple(one.requirement for one in required.asked if one.is_field),
                )
                for required in entry.alone.placement_plan.required
            )
            yield _any_of(entry.rule, terms)


def _selected(entry: PolicyEntry) -> dict[str, str]:
    placement = entry.alone.placement
    return {} if placement is None else dict(placement.node_selector)


def _is_in_force(entry: PolicyEntry, final: PodSpec) -> bool:
    """Whether the Pod has the policy's value: with onConflict Keep it may have its own."""
    own = final.node_selector or {}
    return all(own.get(key) == value for key, value in _selected(entry).items())


def _own_terms(final: PodSpec, original: PodSpec | None, service: Service | None) -> Iterator[_Term]:
    plan = service.placement_plan if service is not None and service.modes.placement is Mode.ENFORCE else None
    of_policy = {} if plan is None else plan.node_selector
    for key, value in (final.node_selector or {}).items():
        if of_policy.get(key) != value:
            yield _selector(f"spec.nodeSelector[{key}]", key, value)
    terms = _required(original) if original is not None else _required(final)
    # Of several ORed terms of a policy it cannot be told which one was added where: then the Pod's terms stay whole.
    if original is None and plan is not None and len(plan.required) == 1 and terms:
        asked = {_plain(one.requirement) for one in plan.required[0].asked}
        left = tuple(_without(term, asked) for term in terms)
        if any(_is_empty(after) and not _is_empty(before) for before, after in zip(terms, left, strict=True)):
            return  # one of the ORed terms is the policy's alone
        terms = left
    if terms is not None:
        yield _any_of("spec.affinity.nodeAffinity", terms)


def _required(spec: PodSpec) -> tuple[NodeSelectorTerm, ...] | None:
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    return affinity.node_affinity.required.node_selector_terms or ()


def _without(term: NodeSelectorTerm, asked: set[tuple[str, str, frozenset[str]]]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        tuple(one for one in term.match_expressions or () if _plain(one) not in asked),
        tuple(one for one in term.match_fields or () if _plain(one) not in asked),
    )


def _plain(one: NodeRequirement) -> tuple[str, str, frozenset[str]]:
    return one.key, one.operator, frozenset(one.values or ())


def _selector(by: str, key: str, value: str) -> _Term:
    return _Term(by, f"{key}={value}", lambda node: (node.metadata.labels or {}).get(key) == value)


def _any_of(by: str, terms: Sequence[NodeSelectorTerm]) -> _Term:
    text = " or ".join(
        " and ".join(of_requirement(one) for one in (*(term.match_expressions or ()), *(term.match_fields or ())))
        for term in terms
    )
    return _Term(by, text, lambda node: any(term_fits(term, node) for term in terms))


def _untolerated(spec: PodSpec, node: ReportedNode) -> list[NodeTaint]:
    return [
        taint
        for taint in node.spec.taints or ()
        if taint.effect in _NO_SCHEDULE and not any(tolerates(one, taint) for one in spec.tolerations or ())
    ]


def _taint_text(taint: NodeTaint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
