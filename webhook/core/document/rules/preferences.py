"""Advice on node preferences of `affinity` and `topology`: those without effect, and duplicates."""

from collections.abc import Hashable, Iterator, Mapping, Sequence

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.types import NodeSelectorTerm, PreferredSchedulingTerm
from webhook.core.placement import PlacementPlan, canonical_form
from webhook.core.placement.affinity import PREFERRED
from webhook.core.placement.node_terms import add_expressions, term_constraints
from webhook.core.placement.plan import build_required_expressions
from webhook.core.policy_fields import Placement, TopologyEntry

_NODE_AFFINITY = ("affinity", "nodeAffinity")


def preferences_can_count(service: DocumentPart) -> Iterator[Problem]:
    """Preferred node terms, `topology[].preferredWeight`: warn if they are empty, or match no allowed node."""
    for placement in service.select("placement"):
        preferences = list(_list_preferences(placement))
        if not preferences:
            return
        whole = placement.read(Placement)
        required = _list_required_terms(whole)
        for part, wanted in preferences:
            preference = wanted.preference
            if not preference.match_expressions and not preference.match_fields:
                yield part.report_field("prefers every node equally", "write matchExpressions, or remove it")
            elif not _fits_any(preference, required, whole.node_selector):
                yield part.report_field("prefers what the required entries rule out", "remove it, or fix its values")


def preferences_differ(service: DocumentPart) -> Iterator[Problem]:
    """Preferred node terms and `topology[].preferredWeight`: warn about equivalent ones."""
    for placement in service.select("placement"):
        first: dict[Hashable, DocumentPart] = {}
        for part, wanted in _list_preferences(placement):
            earlier = first.setdefault(canonical_form.canonicalize_preferred(wanted), part)
            if earlier is not part:
                reason = f"is equivalent to line {earlier.node.key_line}, and counts once"
                yield part.report_field(reason, "remove one of the two, and give the other more weight")


def _list_preferences(placement: DocumentPart) -> Iterator[tuple[DocumentPart, PreferredSchedulingTerm]]:
    """Yield the preferences, each with the part that contains it."""
    for part in placement.select(*_NODE_AFFINITY, PREFERRED, "*"):
        yield part, part.read(PreferredSchedulingTerm)
    for part in placement.select("topology", "*"):
        if part.get("preferredWeight") is not None:
            [wanted] = PlacementPlan.from_placement("", Placement(topology=(part.read(TopologyEntry),))).preferred
            yield part, wanted.entry


def _list_required_terms(placement: Placement) -> list[NodeSelectorTerm]:
    """Return the ORed required terms, each with topology added."""
    topology = build_required_expressions(placement.topology)
    of_nodes = placement.affinity.node_affinity
    native = of_nodes.required.node_selector_terms if of_nodes is not None and of_nodes.required is not None else None
    return [add_expressions(term, topology) for term in native] if native else [NodeSelectorTerm(topology)]


def _fits_any(
    preference: NodeSelectorTerm, required: Sequence[NodeSelectorTerm], node_selector: Mapping[str, str]
) -> bool:
    return any(term_constraints(_combine_terms(term, preference), node_selector) is not None for term in required)


def _combine_terms(one: NodeSelectorTerm, other: NodeSelectorTerm) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        (*(one.match_expressions or ()), *(other.match_expressions or ())),
        (*(one.match_fields or ()), *(other.match_fields or ())),
    )
