"""Advice on duplicate affinity terms, compared by canonical form."""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from webhook.core.document.yaml.parts import DocumentPart
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


def _of_node_term(term: NodeSelectorTerm) -> Hashable:
    return canonical_form.of_preferred(PreferredSchedulingTerm(1, term))


def _of_pod_term(term: PodAffinityTerm) -> Hashable:
    return canonical_form.of_pod_term(term, "")


def _of_weighted(term: WeightedPodAffinityTerm) -> Hashable:
    return canonical_form.of_weighted(term, "")


_LISTS: tuple[tuple[tuple[str, ...], type, Callable[[Any], Hashable]], ...] = (
    (("nodeAffinity", REQUIRED, "nodeSelectorTerms"), NodeSelectorTerm, _of_node_term),
    (("podAffinity", REQUIRED), PodAffinityTerm, _of_pod_term),
    (("podAffinity", PREFERRED), WeightedPodAffinityTerm, _of_weighted),
    (("podAntiAffinity", REQUIRED), PodAffinityTerm, _of_pod_term),
    (("podAntiAffinity", PREFERRED), WeightedPodAffinityTerm, _of_weighted),
)


def terms_say_something_new(service: DocumentPart) -> Iterator[Problem]:
    """`placement.affinity`: warn about a term that is equivalent to an earlier one of its list."""
    for path, kind, mean in _LISTS:
        for terms in service.select("placement", "affinity", *path):
            first: dict[Hashable, DocumentPart] = {}
            for term in terms.items():
                earlier = first.setdefault(mean(term.read(kind)), term)
                if earlier is not term:
                    yield term.wrong_field(f"is equivalent to line {earlier.node.key_line}", "remove one of the two")
