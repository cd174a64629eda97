"""Rules of node fit: contradictions between required node affinity, `topology`, `nodeSelector` and `shares`."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from webhook.core.document.rules.node_affinity import check_term
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import ANYTHING, Constraint
from webhook.core.kubernetes.types import NodeRequirement
from webhook.core.placement.node_terms import format_requirement
from webhook.core.placement.plan import build_required_expressions
from webhook.core.placement.required import REQUIRED
from webhook.core.policy_fields import TopologyEntry
from webhook.core.policy_fields.placement import LIST_ENTRIES_MAX

_FIELDS = ("matchExpressions", "matchFields")
_OWN_TERMS = ("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
_TERMS = ("placement", *_OWN_TERMS)


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


def some_node_can_fit_each_variant(service: DocumentPart) -> Iterator[Problem]:
    """`shares.variants[]`: refuse a variant that no node can match beside the rest of `placement`."""
    elsewhere = list(_list_other_demands(service))
    written = service.select(*_TERMS, "*")
    # Terms that match no node without a variant either are reported by the rules above.
    possible = [term for term in written if _find_contradiction(term, elsewhere) is None]
    if written and not possible:
        return
    for variant in service.select("placement", "shares", "variants", "*"):
        yield from stop_at_invalid(_check_variant(variant, elsewhere, possible))


def _check_variant(
    variant: DocumentPart, elsewhere: list["_Demand"], terms: Sequence[DocumentPart]
) -> Iterator[Problem]:
    own = variant.select(*_OWN_TERMS, "*")
    if any(True for term in own for _ in check_term(term)) or len(own) * len(terms) > LIST_ENTRIES_MAX:
        return  # reported by other rules
    selected = list(_list_selected(variant.select("nodeSelector"), ""))
    found = []
    absent: list[DocumentPart | None] = [None]
    for shared, term in product(terms or absent, own or absent):
        others = [*elsewhere, *_list_demands(shared, "matchExpressions", "affinity")]
        problem = _find_demands_contradiction(
            [*selected, *_list_demands(term, "matchExpressions")], others
        ) or _find_demands_contradiction(
            _list_demands(term, "matchFields"), _list_demands(shared, "matchFields", "affinity")
        )
        if problem is None:
            return
        found.append(problem)
    yield found[0]


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
    yield from _list_selected(service.select("placement", "nodeSelector"), "nodeSelector")


def _list_selected(selectors: Sequence[DocumentPart], what: str) -> Iterator[_Demand]:
    """Yield the requirements of node selectors."""
    for selector in selectors:
        for label, value in selector.fields().items():
            yield _Demand(value, NodeRequirement(label, "In", (value.read(str),)), what)


def _list_demands(term: DocumentPart | None, field: str, what: str = "") -> list[_Demand]:
    """Return the requirements of one field of a term."""
    parts = [] if term is None else term.select(field, "*")
    return [_Demand(part, part.read(NodeRequirement), what) for part in parts]


def _find_contradiction(term: DocumentPart, elsewhere: list[_Demand]) -> Problem | None:
    """Return why no node can match a term; None if a node may match it."""
    for field, others in zip(_FIELDS, (elsewhere, []), strict=True):
        problem = _find_demands_contradiction(_list_demands(term, field), others)
        if problem is not None:
            return problem
    return None


def _find_demands_contradiction(own: list[_Demand], others: list[_Demand]) -> Problem | None:
    """Return the problem of the first label for which own demands, with the others, leave no value."""
    by_key: dict[str, list[_Demand]] = {}
    for demand in own:
        by_key.setdefault(demand.requirement.key, []).append(demand)
    for key, asked in by_key.items():
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
