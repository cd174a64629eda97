"""Terms of node affinity by what they say: which nodes can fit one, and which term implies another.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity: expressions and fields are ANDed, terms are ORed, a
term with neither fits no node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.selectors import ANYTHING, Constraint, Constraints, told
from webhook.core.kubernetes.types import NodeRequirement, NodeSelectorTerm

_FIELD = "field:"  # no label's key has a colon


def said(term: NodeSelectorTerm, node_selector: Mapping[str, str] | None = None) -> Constraints | None:
    """Return what a term says of a node, by label and field; None where it fits no node at all.

    Of a `node_selector` what concerns the same labels: the others fit some node in any case.
    """
    if not term.match_expressions and not term.match_fields:
        return None
    found = told(term.match_expressions or ())
    for key, constraint in told(term.match_fields or ()).items():
        found[_FIELD + key] = constraint
    selected = node_selector or {}
    for key in [key for key in found if key in selected]:
        found[key] = found[key].narrowed("In", frozenset({selected[key]}))
    return None if any(constraint.impossible for constraint in found.values()) else found


class NodeCondition(Struct, frozen=True):
    """One expression, or one field, that the policy asks of a node: as it reads, as it is judged, as it is written."""

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


def missing(said: Constraints, asked: Iterable[NodeCondition]) -> list[NodeCondition]:
    """Return what is asked and not implied by what is said already."""
    return [one for one in asked if not said.get(one.key, ANYTHING).implies(one.constraint)]


def least(said: Constraints, asked: Sequence[NodeCondition]) -> list[NodeCondition]:
    """Leave out what is implied by the others together with what is said already: of Exists and In, Exists."""
    kept = list(asked)
    if len({one.key for one in kept}) == len(kept):
        return kept
    for one in asked:
        others = [other for other in kept if other is not one]
        told_otherwise = said.get(one.key, ANYTHING)
        for other in others:
            if other.key == one.key:
                told_otherwise = told_otherwise.narrowed(
                    other.requirement.operator, frozenset(other.requirement.values or ())
                )
        if told_otherwise.implies(one.constraint):
            kept = others
    return kept


def with_asked(term: NodeSelectorTerm, asked: Iterable[NodeCondition]) -> NodeSelectorTerm:
    """Return a term that asks for all of `asked` as well."""
    more = list(asked)
    return NodeSelectorTerm(
        (*(term.match_expressions or ()), *(one.requirement for one in more if not one.is_field)) or None,
        (*(term.match_fields or ()), *(one.requirement for one in more if one.is_field)) or None,
    )


def joined(term: NodeSelectorTerm, more: Iterable[NodeRequirement]) -> NodeSelectorTerm:
    """Return a term that asks for `more` as well; what it implies already is not repeated."""
    constraints = said(term)
    if constraints is None:
        return term
    asked = NodeCondition.each(NodeSelectorTerm(match_expressions=tuple(more)))
    return with_asked(term, missing(constraints, asked))
