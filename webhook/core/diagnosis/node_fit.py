"""Nodes that the placement of a Pod leaves: by each entry of the policy, by the Pod's own terms, and by taints.

The scheduler tells only which of its plugins filtered how many nodes; it does not tell who wrote the terms.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from webhook.core.diagnosis.objects import ReportedNode
from webhook.core.diagnosis.report import NodeFilter, NodesReport
from webhook.core.kubernetes.pod import PodSpec
from webhook.core.kubernetes.types import NodeRequirement, NodeSelectorTerm
from webhook.core.placement.node_match import NodeTaint, find_required_terms, list_untolerated, term_fits
from webhook.core.placement.node_terms import format_requirement
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode
from webhook.core.rule_notes.entries import EntryKind, PolicyEntry, list_entries


class _Term(NamedTuple):
    """A requirement on nodes, by a name for people."""

    by: str
    text: str
    fits: Callable[[ReportedNode], bool]


def _is_empty(term: NodeSelectorTerm) -> bool:
    return not term.match_expressions and not term.match_fields


def report_nodes(
    final: PodSpec,
    original: PodSpec | None,
    service: Service | None,
    nodes: Sequence[ReportedNode],
    unknown_policy: str = "",
) -> NodesReport:
    """Return how many nodes each side leaves. `original`: the Pod before the rewrite, None if it is not known.

    `unknown_policy`: the hash of the policy that rewrote it, if its document is not known.
    """
    of_policy = list(_make_policy_terms(service, final))
    of_pod = list(_make_own_terms(final, original, service))
    by_policy, left = _apply_terms(of_policy, nodes, nodes)
    by_pod, wanted = _apply_terms(of_pod, nodes, left)
    own_alone = _apply_terms(of_pod, nodes, nodes)[1]
    usable = [node for node in wanted if not _list_node_taints(final, node)]
    taints = Counter(taint for node in wanted for taint in _list_node_taints(final, node))
    return NodesReport(
        total=len(nodes),
        policy=tuple(by_policy),
        policy_leaves=len(left),
        own=tuple(by_pod),
        own_leave=len(own_alone),
        both_leave=len(wanted),
        taints=tuple(NodeFilter(_format_taint(taint), "", count, 0) for taint, count in taints.most_common()),
        left=len(usable),
        names=tuple(node.metadata.name for node in usable[:10]),
        unknown_policy="" if original is not None else unknown_policy,
    )


def _apply_terms(
    terms: Iterable[_Term], nodes: Sequence[ReportedNode], left: Sequence[ReportedNode]
) -> tuple[list[NodeFilter], Sequence[ReportedNode]]:
    """Apply the terms to `left`. Return for each how many of all nodes fit it alone, and how many are left after it."""
    found = []
    for term in terms:
        left = [node for node in left if term.fits(node)]
        found.append(NodeFilter(term.by, term.text, sum(map(term.fits, nodes)), len(left)))
    return found, left


def _make_policy_terms(service: Service | None, final: PodSpec) -> Iterator[_Term]:
    if service is None or service.modes.placement is not Mode.ENFORCE:
        return
    for entry in list_entries(service):
        if entry.kind is EntryKind.NODE_SELECTOR and _is_in_force(entry, final):
            ((key, value),) = _read_selector(entry).items()
            yield _make_selector_term(entry.rule, key, value)
        elif entry.kind is EntryKind.REQUIRED_NODES and entry.alone.placement_plan is not None:
            terms = tuple(
                NodeSelectorTerm(
                    tuple(asked.requirement for asked in required.asked if not asked.is_field),
                    tuple(asked.requirement for asked in required.asked if asked.is_field),
                )
                for required in entry.alone.placement_plan.required
            )
            yield _make_affinity_term(entry.rule, terms)


def _read_selector(entry: PolicyEntry) -> dict[str, str]:
    placement = entry.alone.placement
    return {} if placement is None else dict(placement.node_selector)


def _is_in_force(entry: PolicyEntry, final: PodSpec) -> bool:
    """Whether the Pod has the policy's value: with onConflict Keep it may have its own."""
    own = final.node_selector or {}
    return all(own.get(key) == value for key, value in _read_selector(entry).items())


def _make_own_terms(final: PodSpec, original: PodSpec | None, service: Service | None) -> Iterator[_Term]:
    plan = service.placement_plan if service is not None and service.modes.placement is Mode.ENFORCE else None
    of_policy = {} if plan is None or original is not None else plan.node_selector
    before = final.node_selector if original is None else original.node_selector
    for key, value in (final.node_selector or {}).items():
        # The policy may have added a key, or overridden the Pod's value.
        if of_policy.get(key) != value and (before or {}).get(key) == value:
            yield _make_selector_term(f"spec.nodeSelector[{key}]", key, value)
    terms = find_required_terms(original) if original is not None else find_required_terms(final)
    # It is unknown which of several ORed terms of a policy was added where: the Pod's terms stay whole.
    if original is None and plan is not None and len(plan.required) == 1 and terms:
        asked = {_make_comparable(required.requirement) for required in plan.required[0].asked}
        left = tuple(_drop_requirements(term, asked) for term in terms)
        if any(_is_empty(after) and not _is_empty(before) for before, after in zip(terms, left, strict=True)):
            return  # one of the ORed terms is only the policy's
        terms = left
    if terms is not None:
        yield _make_affinity_term("spec.affinity.nodeAffinity", terms)


def _drop_requirements(term: NodeSelectorTerm, asked: set[tuple[str, str, frozenset[str]]]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        tuple(
            requirement for requirement in term.match_expressions or () if _make_comparable(requirement) not in asked
        ),
        tuple(requirement for requirement in term.match_fields or () if _make_comparable(requirement) not in asked),
    )


def _make_comparable(requirement: NodeRequirement) -> tuple[str, str, frozenset[str]]:
    return requirement.key, requirement.operator, frozenset(requirement.values or ())


def _make_selector_term(by: str, key: str, value: str) -> _Term:
    return _Term(by, f"{key}={value}", lambda node: (node.metadata.labels or {}).get(key) == value)


def _make_affinity_term(by: str, terms: Sequence[NodeSelectorTerm]) -> _Term:
    text = " or ".join(
        " and ".join(
            format_requirement(requirement)
            for requirement in (*(term.match_expressions or ()), *(term.match_fields or ()))
        )
        for term in terms
    )

    def fits(node: ReportedNode) -> bool:
        return any(term_fits(term, node.metadata.name, node.metadata.labels or {}) for term in terms)

    return _Term(by, text, fits)


def _list_node_taints(spec: PodSpec, node: ReportedNode) -> list[NodeTaint]:
    return list_untolerated(spec, node.spec.taints or ())


def _format_taint(taint: NodeTaint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
