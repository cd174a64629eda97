"""Rules of node fit: contradictions between required node affinity, `topology` and `nodeSelector`."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.document.rules.node_affinity import check_term
from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import ANYTHING, Constraint
from webhook.core.kubernetes.types import NodeRequirement
from webhook.core.placement.node_terms import format_requirement
from webhook.core.placement.plan import build_required_expressions
from webhook.core.placement.required import REQUIRED
from webhook.core.policy_fields import TopologyEntry

_FIELDS = ("matchExpressions", "matchFields")
_TERMS = ("placement", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")


def some_node_can_fit(service: DocumentPart) -> Iterator[Problem]:
    """`nodeSelectorTerms` with `topology` and `nodeSelector`: refuse them if no required term can match a node."""
    for terms in service.select(*_TERMS):
        terms.read(list)
        if any(True for term in terms.items() for _ in check_term(term)):
            return  # the intended value of an invalid term is unknown
        hopeless = _list_hopeless_terms(service)
        if len(hopeless) == sum(not _is_empty(term) for term in terms.items()):
            yield from hopeless


def every_term_can_fit(service: DocumentPart) -> Iterator[Problem]:
    """`nodeSelectorTerms` with `topology` and `nodeSelector`: warn about each required term that matches no node."""
    yield from _list_hopeless_terms(service)


def _is_empty(term: DocumentPart) -> bool:
    return not any(True for field in _FIELDS for _ in term.select(field, "*"))


def _list_hopeless_terms(service: DocumentPart) -> list[Problem]:
    elsewhere = list(_list_other_demands(service))
    found = (_find_contradiction(term, elsewhere) for term in service.select(*_TERMS, "*"))
    return [problem for problem in found if problem is not None]


class _Demand(NamedTuple):
    """One requirement on a node, and its position in the document."""

    at: DocumentPart
    requirement: NodeRequirement
    what: str = ""

    @property
    def shown(self) -> str:
        place = f"{self.what} in line" if self.what else "line"
        return f"{place} {self.at.node.key_line}, {format_requirement(self.requirement)}"

    def narrow(self, constraint: Constraint) -> Constraint:
        """Return the constraint narrowed by this requirement."""
        return constraint.narrow(self.requirement.operator, frozenset(self.requirement.values or ()))


def _list_other_demands(service: DocumentPart) -> Iterator[_Demand]:
    """Yield the requirements of topology and nodeSelector."""
    first: dict[str, DocumentPart] = {}
    entries = []
    for part in service.select("placement", "topology", "*"):
        entry = part.read(TopologyEntry)
        if entry.preferred_weight is None and (entry.level is None) is not (entry.key is None):
            first.setdefault(entry.label, part)
            entries.append(entry)
    for requirement in build_required_expressions(entries):
        if requirement.values:  # else topology contradicts itself, which its own rule reports
            yield _Demand(first[requirement.key], requirement, "topology")
    for selector in service.select("placement", "nodeSelector"):
        for label, value in selector.fields().items():
            yield _Demand(value, NodeRequirement(label, "In", (value.read(str),)), "nodeSelector")


def _find_contradiction(term: DocumentPart, elsewhere: list[_Demand]) -> Problem | None:
    """Return why no node can match a term; None if a node may match it."""
    for field, others in zip(_FIELDS, (elsewhere, []), strict=True):
        own: dict[str, list[_Demand]] = {}
        for part in term.select(field, "*"):
            requirement = part.read(NodeRequirement)
            own.setdefault(requirement.key, []).append(_Demand(part, requirement))
        for key, asked in own.items():
            problem = _find_label_contradiction(asked, [other for other in others if other.requirement.key == key])
            if problem is not None:
                return problem
    return None


def _find_label_contradiction(own: list[_Demand], others: list[_Demand]) -> Problem | None:
    """Return the problem of the first expression that leaves a label no value; None if a value is left."""
    constraint, before = ANYTHING, list[_Demand]()
    for demand in (*own, *others):
        constraint = demand.narrow(constraint)
        if constraint.is_impossible and demand.what:
            culprit = next((mine for mine in own if mine.narrow(demand.narrow(ANYTHING)).is_impossible), own[-1])
            return _build_contradiction(culprit, demand)
        if constraint.is_impossible and demand.narrow(ANYTHING).is_impossible:
            return demand.at.report_field(
                f"no node can match {format_requirement(demand.requirement)}", "fix its values"
            )
        if constraint.is_impossible:
            other = next(
                (former for former in before if former.narrow(demand.narrow(ANYTHING)).is_impossible), before[-1]
            )
            return _build_contradiction(demand, other)
        before.append(demand)
    return None


def _build_contradiction(culprit: _Demand, other: _Demand) -> Problem:
    reason = f"{format_requirement(culprit.requirement)} contradicts {other.shown}: no node can match both"
    return culprit.at.report_field(reason, "fix one of the two")
