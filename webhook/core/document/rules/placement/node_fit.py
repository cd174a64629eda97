"""Whether any node can fit the required terms, by what they say themselves, and beside topology and nodeSelector."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.document.rules.placement.node_affinity import mistakes
from webhook.core.document.yaml.fields import Part
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import ANYTHING, Constraint
from webhook.core.kubernetes.types import NodeRequirement
from webhook.core.placement.plan import required_expressions
from webhook.core.placement.required import REQUIRED
from webhook.core.placement.requirement_text import of_requirement
from webhook.core.policy_spec import TopologyEntry

_FIELDS = ("matchExpressions", "matchFields")
_TERMS = ("placement", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")


def some_node_can_fit(service: Part) -> Iterator[Problem]:
    for terms in service.select(*_TERMS):
        terms.read(list)
        if any(True for term in terms.items() for _ in mistakes(term)):
            return  # what a wrong term should have said is not known
        hopeless = _hopeless(service)
        if len(hopeless) == sum(not _is_empty(term) for term in terms.items()):
            yield from hopeless


def every_term_can_fit(service: Part) -> Iterator[Problem]:
    """Find, among required terms, those that let no node in."""
    yield from _hopeless(service)


def _is_empty(term: Part) -> bool:
    return not any(True for field in _FIELDS for _ in term.select(field, "*"))


def _hopeless(service: Part) -> list[Problem]:
    elsewhere = list(_elsewhere(service))
    found = (_hopelessness(term, elsewhere) for term in service.select(*_TERMS, "*"))
    return [problem for problem in found if problem is not None]


class _Demand(NamedTuple):
    """One thing that is asked of a node, and where."""

    at: Part
    requirement: NodeRequirement
    what: str = ""

    @property
    def shown(self) -> str:
        place = f"{self.what} in line" if self.what else "line"
        return f"{place} {self.at.node.key_line}, {of_requirement(self.requirement)}"

    def narrowing(self, constraint: Constraint) -> Constraint:
        """Return what is left of a label's values."""
        return constraint.narrowed(self.requirement.operator, frozenset(self.requirement.values or ()))


def _elsewhere(service: Part) -> Iterator[_Demand]:
    """Yield what is asked outside of native terms."""
    first: dict[str, Part] = {}
    entries = []
    for part in service.select("placement", "topology", "*"):
        entry = part.read(TopologyEntry)
        if entry.preferred_weight is None and (entry.level is None) is not (entry.key is None):
            first.setdefault(entry.label, part)
            entries.append(entry)
    for requirement in required_expressions(entries):
        if requirement.values:  # else topology contradicts itself, which is told there
            yield _Demand(first[requirement.key], requirement, "topology")
    for selector in service.select("placement", "nodeSelector"):
        for label, value in selector.fields().items():
            yield _Demand(value, NodeRequirement(label, "In", (value.read(str),)), "nodeSelector")


def _hopelessness(term: Part, elsewhere: list[_Demand]) -> Problem | None:
    """Return why no node can fit what a term says; None where one might."""
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
    """Return the first of the term's expressions on one label after which no value is left; None where one is."""
    constraint, before = ANYTHING, list[_Demand]()
    for demand in (*own, *others):
        constraint = demand.narrowing(constraint)
        if constraint.impossible and demand.what:
            culprit = next((one for one in own if one.narrowing(demand.narrowing(ANYTHING)).impossible), own[-1])
            return _names_both(culprit, demand)
        if constraint.impossible and demand.narrowing(ANYTHING).impossible:
            return demand.at.wrong_field(f"no node can match {of_requirement(demand.requirement)}", "fix its values")
        if constraint.impossible:
            other = next((one for one in before if one.narrowing(demand.narrowing(ANYTHING)).impossible), before[-1])
            return _names_both(demand, other)
        before.append(demand)
    return None


def _names_both(culprit: _Demand, other: _Demand) -> Problem:
    reason = f"{of_requirement(culprit.requirement)} contradicts {other.shown}: no node can match both"
    return culprit.at.wrong_field(reason, "fix one of the two")
