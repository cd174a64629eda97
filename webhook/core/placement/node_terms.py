"""Node selector terms: whether a node can match one, which requirements a term implies, and their readable text.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity: expressions and fields are ANDed, terms are ORed, a
term with neither matches no node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.label_constraints import ANYTHING, Constraint, Constraints, constraints_of
from webhook.core.kubernetes.types import LabelSelector, NodeRequirement, NodeSelectorTerm, Requirement

_SHOWN = 8


def requirement_text(requirement: NodeRequirement | Requirement) -> str:
    values = requirement.values or ()
    more = [f"{len(values) - _SHOWN} more"] if len(values) > _SHOWN else []
    listed = f" [{', '.join([*values[:_SHOWN], *more])}]" if values else ""
    return f"{requirement.key} {requirement.operator}{listed}"


def selector_text(selector: LabelSelector | None) -> str:
    if selector is None:
        return "for no Pods"
    parts = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    parts += [requirement_text(one) for one in selector.match_expressions or ()]
    more = [f"{len(parts) - _SHOWN} more"] if len(parts) > _SHOWN else []
    return f"for Pods of {', '.join([*parts[:_SHOWN], *more]) or 'any label'}"


_FIELD = "field:"  # label keys have no colon


def term_constraints(term: NodeSelectorTerm, node_selector: Mapping[str, str] | None = None) -> Constraints | None:
    """Return a term's constraints on a node, by label and field; None if no node can match.

    Of `node_selector` only entries on the same labels are added: the others cannot contradict the term.
    """
    if not term.match_expressions and not term.match_fields:
        return None
    found = constraints_of(term.match_expressions or ())
    for key, constraint in constraints_of(term.match_fields or ()).items():
        found[_FIELD + key] = constraint
    selected = node_selector or {}
    for key in [key for key in found if key in selected]:
        found[key] = found[key].narrowed("In", frozenset({selected[key]}))
    return None if any(constraint.impossible for constraint in found.values()) else found


class NodeCondition(Struct, frozen=True):
    """One expression or field that the policy requires of a node: typed, as a constraint, and as JSON."""

    requirement: NodeRequirement
    key: str
    constraint: Constraint
    plain: Any
    is_field: bool

    @classmethod
    def each(cls, term: NodeSelectorTerm) -> "tuple[NodeCondition, ...]":
        return (
            *(cls._of(one, one.key, is_field=False) for one in term.match_expressions or ()),
            *(cls._of(one, _FIELD + one.key, is_field=True) for one in term.match_fields or ()),
        )

    @classmethod
    def _of(cls, requirement: NodeRequirement, key: str, *, is_field: bool) -> "NodeCondition":
        constraint = ANYTHING.narrowed(requirement.operator, frozenset(requirement.values or ()))
        return cls(requirement, key, constraint, msgspec.to_builtins(requirement), is_field)


def missing(term_constraints: Constraints, asked: Iterable[NodeCondition]) -> list[NodeCondition]:
    """Return the conditions that the term's constraints do not imply."""
    return [one for one in asked if not term_constraints.get(one.key, ANYTHING).implies(one.constraint)]


def without_implied(term_constraints: Constraints, asked: Sequence[NodeCondition]) -> list[NodeCondition]:
    """Leave out conditions that the term and the other conditions imply: of Exists and In, Exists."""
    kept = list(asked)
    if len({one.key for one in kept}) == len(kept):
        return kept
    for one in asked:
        others = [other for other in kept if other is not one]
        told_otherwise = term_constraints.get(one.key, ANYTHING)
        for other in others:
            if other.key == one.key:
                told_otherwise = told_otherwise.narrowed(
                    other.requirement.operator, frozenset(other.requirement.values or ())
                )
        if told_otherwise.implies(one.constraint):
            kept = others
    return kept


def with_conditions(term: NodeSelectorTerm, asked: Iterable[NodeCondition]) -> NodeSelectorTerm:
    """Return the term with all of `asked` added."""
    more = list(asked)
    return NodeSelectorTerm(
        (*(term.match_expressions or ()), *(one.requirement for one in more if not one.is_field)) or None,
        (*(term.match_fields or ()), *(one.requirement for one in more if one.is_field)) or None,
    )


def with_expressions(term: NodeSelectorTerm, more: Iterable[NodeRequirement]) -> NodeSelectorTerm:
    """Return the term with `more` added, without what it implies already."""
    constraints = term_constraints(term)
    if constraints is None:
        return term
    asked = NodeCondition.each(NodeSelectorTerm(match_expressions=tuple(more)))
    return with_conditions(term, missing(constraints, asked))
