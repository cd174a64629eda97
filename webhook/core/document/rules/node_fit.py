"""Rules of node fit: contradictions between required node affinity, `topology` and `nodeSelector`."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.document.rules.node_affinity import mistakes
from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import ANYTHING, Constraint
from webhook.core.kubernetes.types import NodeRequirement
from webhook.core.placement.node_terms import requirement_text
from webhook.core.placement.plan import required_expressions
from webhook.core.placement.required import REQUIRED
from webhook.core.policy_spec import TopologyEntry

_FIELDS = ("matchExpressions", "matchFields")
_TERMS = ("placement", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")


def some_node_can_fit(service: DocumentPart) -> Iterator[Problem]:
    """`nodeSelectorTerms` with `topology` and `nodeSelector`: refuse them if no required term can match a node."""
    for terms in service.select(*_TERMS):
        terms.read(list)
        if any(True for term in terms.items() for _ in mistakes(term)):
            return  # the intended value of an invalid term is unknown
        hopeless = _hopeless(service)
        if len(hopeless) == sum(not _is_empty(term) for term in terms.items()):
            yield from hopeless


def every_term_can_fit(service: DocumentPart) -> Iterator[Problem]:
    """`nodeSelectorTerms` with `topology` and `nodeSelector`: warn about each required term that matches no node."""
    yield from _hopeless(service)


def _is_empty(term: DocumentPart) -> bool:
    return not any(True for field in _FIELDS for _ in term.select(field, "*"))


def _hopeless(service: DocumentPart) -> list[Problem]:
    elsewhere = list(_elsewhere(service))
    found = (_hopelessness(term, elsewhere) for term in service.select(*_TERMS, "*"))
    return [problem for problem in found if problem is not None]


class _Demand(NamedTuple):
    """One requirement on a node, and its position in the document."""

    at: DocumentPart
    requirement: NodeRequirement
    what: str = ""

    @property
    def shown(self) -> str:
        place = f"{self.what} in line" if self.what else "line"
        return f"{place} {self.at.node.key_line}, {requirement_text(self.requirement)}"

    def narrowing(self, constraint: Constraint) -> Constraint:
        """Return the constraint narrowed by this requirement."""
        return constraint.narrowed(self.requirement.operator, frozenset(self.requirement.values or ()))


def _elsewhere(service: DocumentPart) -> Iterator[_Demand]:
    """Yield the requirements of topology and nodeSelector."""
    first: dict[str, DocumentPart] = {}
    entries = []
    for part in service.select("placement", "topology", "*"):
        entry = part.read(TopologyEntry)
        if entry.preferred_weight is None and (entry.level is None) is not (entry.key is None):
            first.setdefault(entry.label, part)
            entries.append(entry)
    for requirement in required_expressions(entries):
        if requirement.values:  # else topology contradicts itself, which its own rule reports
            yield _Demand(first[requirement.key], requirement, "topology")
    for selector in service.select("placement", "nodeSelector"):
        for label, value in selector.fields().items():
            yield _Demand(value, NodeRequirement(label, "In", (value.read(str),)), "nodeSelector")


def _hopelessness(term: DocumentPart, elsewhere: list[_Demand]) -> Problem | None:
    """Return why no node can match a term; None if a node may match it."""
    for field, others in zip(_FIELDS, (elsewhere, []), strict=True):
        own: dict[str, list[_Demand]] = {}
        for part in term.select(field, "*"):
            requirement = part.read(NodeRequirement)
            own.setdefault(requirement.key, []).append(_Demand(part, requirement))
        for key, asked in own.items():
            problem = _contradiction(asked, [other for other in others if other.requirement.key == key])
            if problem is not None:
                return problem
    return None


def _contradiction(own: list[_Demand], others: list[_Demand]) -> Problem | None:
    """Return the problem of the first expression that leaves a label no value; None if a value is left."""
    constraint, before = ANYTHING, list[_Demand]()
    for demand in (*own, *others):
        constraint = demand.narrowing(constraint)
        if constraint.impossible and demand.what:
            culprit = next((mine for mine in own if mine.narrowing(demand.narrowing(ANYTHING)).impossible), own[-1])
            return _names_both(culprit, demand)
        if constraint.impossible and demand.narrowing(ANYTHING).impossible:
            return demand.at.wrong_field(f"no node can match {requirement_text(demand.requirement)}", "fix its values")
        if constraint.impossible:
            other = next(
                (former for former in before if former.narrowing(demand.narrowing(ANYTHING)).impossible), before[-1]
            )
            return _names_both(demand, other)
        before.append(demand)
    return None


def _names_both(culprit: _Demand, other: _Demand) -> Problem:
    reason = f"{requirement_text(culprit.requirement)} contradicts {other.shown}: no node can match both"
    return culprit.at.wrong_field(reason, "fix one of the two")
