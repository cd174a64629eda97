"""Node selector terms: whether a node can match one, which requirements a term implies, and their readable text.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity: expressions and fields are ANDed, terms are ORed, a
term with neither matches no node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.label_constraints import ANYTHING, Constraint, Constraints, combine_expressions
from webhook.core.kubernetes.types import LabelSelector, NodeRequirement, NodeSelectorTerm, Requirement

_SHOWN_MAX = 8


def format_requirement(requirement: NodeRequirement | Requirement) -> str:
    values = requirement.values or ()
    more = [f"{len(values) - _SHOWN_MAX} more"] if len(values) > _SHOWN_MAX else []
    listed = f" [{', '.join([*values[:_SHOWN_MAX], *more])}]" if values else ""
    return f"{requirement.key} {requirement.operator}{listed}"


def format_selector(selector: LabelSelector | None) -> str:
    if selector is None:
        return "for no Pods"
    parts = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    parts += [format_requirement(expression) for expression in selector.match_expressions or ()]
    more = [f"{len(parts) - _SHOWN_MAX} more"] if len(parts) > _SHOWN_MAX else []
    return f"for Pods of {', '.join([*parts[:_SHOWN_MAX], *more]) or 'any label'}"


_FIELD = "field:"  # label keys have no colon


def term_constraints(term: NodeSelectorTerm, node_selector: Mapping[str, str] | None = None) -> Constraints | None:
    """Return a term's constraints on a node, by label and field; None if no node can match.

    Only entries of `node_selector` on the same labels are added: the others cannot contradict the term.
    """
    if not term.match_expressions and not term.match_fields:
        return None
    found = combine_expressions(term.match_expressions or ())
    for key, constraint in combine_expressions(term.match_fields or ()).items():
        found[_FIELD + key] = constraint
    selected = node_selector or {}
    for key in [key for key in found if key in selected]:
        found[key] = found[key].narrow("In", frozenset({selected[key]}))
    return None if any(constraint.is_impossible for constraint in found.values()) else found


class NodeCondition(Struct, frozen=True):
    """One expression or field that the policy requires of a node: typed, as a constraint, and as JSON."""

    requirement: NodeRequirement
    key: str
    constraint: Constraint
    plain: Any
    is_field: bool

    @classmethod
    def list_conditions(cls, term: NodeSelectorTerm) -> "tuple[NodeCondition, ...]":
        return (
            *(
                cls._from_requirement(requirement, requirement.key, is_field=False)
                for requirement in term.match_expressions or ()
            ),
            *(
                cls._from_requirement(requirement, _FIELD + requirement.key, is_field=True)
                for requirement in term.match_fields or ()
            ),
        )

    @classmethod
    def _from_requirement(cls, requirement: NodeRequirement, key: str, *, is_field: bool) -> "NodeCondition":
        constraint = ANYTHING.narrow(requirement.operator, frozenset(requirement.values or ()))
        return cls(requirement, key, constraint, msgspec.to_builtins(requirement), is_field)


def find_missing(term_constraints: Constraints, asked: Iterable[NodeCondition]) -> list[NodeCondition]:
    """Return the conditions that the term's constraints do not imply."""
    return [
        condition
        for condition in asked
        if not term_constraints.get(condition.key, ANYTHING).implies(condition.constraint)
    ]


def drop_implied(term_constraints: Constraints, asked: Sequence[NodeCondition]) -> list[NodeCondition]:
    """Leave out conditions that the term and the other conditions imply: Exists beside In on the same key."""
    kept = list(asked)
    if len({condition.key for condition in kept}) == len(kept):
        return kept
    for condition in asked:
        others = [other for other in kept if other is not condition]
        known = term_constraints.get(condition.key, ANYTHING)
        for other in others:
            if other.key == condition.key:
                known = known.narrow(other.requirement.operator, frozenset(other.requirement.values or ()))
        if known.implies(condition.constraint):
            kept = others
    return kept


def add_conditions(term: NodeSelectorTerm, asked: Iterable[NodeCondition]) -> NodeSelectorTerm:
    """Return the term with all of `asked` added."""
    more = list(asked)
    return NodeSelectorTerm(
        (*(term.match_expressions or ()), *(condition.requirement for condition in more if not condition.is_field))
        or None,
        (*(term.match_fields or ()), *(condition.requirement for condition in more if condition.is_field)) or None,
    )


def add_expressions(term: NodeSelectorTerm, more: Iterable[NodeRequirement]) -> NodeSelectorTerm:
    """Return the term with those of `more` added that it does not imply already."""
    constraints = term_constraints(term)
    if constraints is None:
        return term
    asked = NodeCondition.list_conditions(NodeSelectorTerm(match_expressions=tuple(more)))
    return add_conditions(term, find_missing(constraints, asked))
