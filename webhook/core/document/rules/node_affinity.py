"""Rules of `affinity`, also of a variant: node terms that Kubernetes rejects, too many, empty and duplicate terms."""

from collections.abc import Callable, Hashable, Iterator
from itertools import product
from typing import Any

from webhook.core.document.formats import FormatError, check
from webhook.core.document.rules.match import AFFINITIES, values_fit_the_operator
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.types import (
    NodeSelectorTerm,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    WeightedPodAffinityTerm,
)
from webhook.core.placement import canonical_form
from webhook.core.placement.affinity import PREFERRED
from webhook.core.placement.required import REQUIRED
from webhook.core.policy_fields.placement import LIST_ENTRIES_MAX


def _canonicalize_node_term(term: NodeSelectorTerm) -> Hashable:
    return canonical_form.canonicalize_preferred(PreferredSchedulingTerm(1, term))


def _canonicalize_pod_term(term: PodAffinityTerm) -> Hashable:
    return canonical_form.canonicalize_pod_term(term, "")


def _canonicalize_weighted_term(term: WeightedPodAffinityTerm) -> Hashable:
    return canonical_form.canonicalize_weighted(term, "")


_LISTS: tuple[tuple[tuple[str, ...], type, Callable[[Any], Hashable]], ...] = (
    (("nodeAffinity", REQUIRED, "nodeSelectorTerms"), NodeSelectorTerm, _canonicalize_node_term),
    (("podAffinity", REQUIRED), PodAffinityTerm, _canonicalize_pod_term),
    (("podAffinity", PREFERRED), WeightedPodAffinityTerm, _canonicalize_weighted_term),
    (("podAntiAffinity", REQUIRED), PodAffinityTerm, _canonicalize_pod_term),
    (("podAntiAffinity", PREFERRED), WeightedPodAffinityTerm, _canonicalize_weighted_term),
)


def terms_say_something_new(service: DocumentPart) -> Iterator[Problem]:
    """Terms of `placement.affinity`: warn about a term that is equivalent to an earlier term of its list."""
    for affinity, (path, kind, canonicalize) in product(AFFINITIES, _LISTS):
        for terms in service.select(*affinity, *path):
            first: dict[Hashable, DocumentPart] = {}
            for term in terms.items():
                earlier = first.setdefault(canonicalize(term.read(kind)), term)
                if earlier is not term:
                    yield term.report_field(f"is equivalent to line {earlier.node.key_line}", "remove one of the two")


_REQUIRED_TERMS = ("nodeAffinity", REQUIRED, "nodeSelectorTerms")
_NODE_TERMS = ((*_REQUIRED_TERMS, "*"), ("nodeAffinity", PREFERRED, "*", "preference"))


def node_terms_are_kubernetes(service: DocumentPart) -> Iterator[Problem]:
    """Terms of `affinity.nodeAffinity`: those that Kubernetes accepts.

    These are `matchExpressions` with values that fit the operator, and `matchFields` with `metadata.name`, In or NotIn,
    and one value. Refuse others.
    """
    for affinity, path in product(AFFINITIES, _NODE_TERMS):
        for term in service.select(*affinity, *path):
            yield from check_term(term)


def check_term(term: DocumentPart) -> Iterator[Problem]:
    """Yield the problems for which Kubernetes would reject a term."""
    for expression in term.select("matchExpressions", "*"):
        yield from stop_at_invalid(values_fit_the_operator(expression))
    for expression in term.select("matchFields", "*"):
        yield from stop_at_invalid(_check_node_field(expression))


def _check_node_field(expression: DocumentPart) -> Iterator[Problem]:
    key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values")
    if key is not None and key.read(str) != "metadata.name":
        yield key.report("not a field that nodes are selected by", "write metadata.name")
    if operator is not None and operator.read(str) not in {"In", "NotIn"}:
        yield operator.report("not an operator for a node's fields", "use In or NotIn")
    if values is None or len(values.read(list[str])) != 1:
        yield expression.report_field("a node's field is compared with a single value", "write one value")
        return
    for name in values.items():
        try:
            check(name.read(str), "dns-subdomain")
        except FormatError as error:
            yield name.report(error.reason, error.remedy)


def required_terms_are_few(service: DocumentPart) -> Iterator[Problem]:
    """`nodeSelectorTerms` that are required: at most 100, because each review compares all of them. Refuse more.

    A variant's terms are joined with each of the placement's.
    """
    for affinity in AFFINITIES:
        for terms in service.select(*affinity, *_REQUIRED_TERMS):
            if len(terms.items()) > LIST_ENTRIES_MAX:
                yield terms.report_field(f"longer than {LIST_ENTRIES_MAX}", "shorten it")
    shared = len(service.select(*AFFINITIES[0], *_REQUIRED_TERMS, "*"))
    for terms in service.select(*AFFINITIES[1], *_REQUIRED_TERMS) if shared else ():
        own = len(terms.items())
        if own <= LIST_ENTRIES_MAX < own * shared:
            reason = f"each of these {own} terms is joined with each of placement.affinity's {shared}"
            yield terms.report_field(f"{reason}: more than {LIST_ENTRIES_MAX}", "shorten one of the two lists")


def no_required_term_is_empty(service: DocumentPart) -> Iterator[Problem]:
    """`nodeSelectorTerms` that are required: at least one, each with expressions.

    Refuse an empty term: it matches no node, and each Pod's own term would imply it, so that the Pod stayed unchanged.
    """
    for required in [part for path in AFFINITIES for part in service.select(*path, "nodeAffinity", REQUIRED)]:
        terms = required.get("nodeSelectorTerms")
        if terms is None or terms.is_empty:
            reason, remedy = "Kubernetes requires at least one term", f"write one, or remove {REQUIRED}"
            yield (
                required.report_missing("nodeSelectorTerms", reason, remedy)
                if terms is None
                else terms.report(reason, remedy)
            )
            continue
        for term in terms.items():
            yield from stop_at_invalid(_check_not_empty(term))


def _check_not_empty(part: DocumentPart) -> Iterator[Problem]:
    term = part.read(NodeSelectorTerm)
    if not term.match_expressions and not term.match_fields:
        yield part.report_field("a term without expressions matches no node", "write matchExpressions, or remove it")
