"""Rules of `affinity.podAffinity` and `podAntiAffinity`: what Kubernetes would reject, and what no Pod can satisfy."""

from collections.abc import Iterator

from webhook.core.document.rules.placement.label_keys import label_keys_are_kubernetes
from webhook.core.document.yaml.parts import DocumentPart, until_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.types import PodAffinityTerm
from webhook.core.placement import SERVICE_LABEL, canonical_form
from webhook.core.placement.affinity import PREFERRED
from webhook.core.placement.required import REQUIRED

_KINDS = ("podAffinity", "podAntiAffinity")
_WAYS = ((REQUIRED, "*"), (PREFERRED, "*", "podAffinityTerm"))


def pod_terms_are_kubernetes(service: DocumentPart) -> Iterator[Problem]:
    """`matchLabelKeys`, `mismatchLabelKeys` of Pod terms: what Kubernetes accepts. Refuse others."""
    for kind in _KINDS:
        for way in _WAYS:
            for term in _terms(service, kind, *way):
                yield from until_invalid(label_keys_are_kubernetes(term))


def some_pod_can_be_near(service: DocumentPart) -> Iterator[Problem]:
    """`podAffinity` that is required: a `labelSelector`. Refuse a term without it: each Pod would stay Pending."""
    for term in _terms(service, "podAffinity", *_WAYS[0]):
        yield from until_invalid(_selects(service, term, "selects no Pod, so every Pod would stay Pending"))


def pods_cannot_be_near_and_away(service: DocumentPart) -> Iterator[Problem]:
    """`podAntiAffinity` that is required: refuse a term that required `podAffinity` has, too."""
    near: dict[object, DocumentPart] = {}
    for term in _terms(service, "podAffinity", *_WAYS[0]):
        near.setdefault(_meant(term), term)
    for term in _terms(service, "podAntiAffinity", *_WAYS[0]):
        other = near.get(_meant(term))
        if other is not None:
            reason = f"required podAffinity in line {other.node.key_line} requires the same Pods nearby"
            yield term.wrong_field(reason, "remove one of the two")


def pod_terms_have_an_effect(service: DocumentPart) -> Iterator[Problem]:
    """Other Pod terms: warn about one without a `labelSelector`."""
    for kind, way in ((_KINDS[1], _WAYS[0]), (_KINDS[0], _WAYS[1]), (_KINDS[1], _WAYS[1])):
        for term in _terms(service, kind, *way):
            yield from _selects(service, term, "selects no Pod, and has no effect")


def _terms(service: DocumentPart, kind: str, *way: str) -> list[DocumentPart]:
    return service.select("placement", "affinity", kind, *way)


def _selects(service: DocumentPart, term: DocumentPart, reason: str) -> Iterator[Problem]:
    """Report an absent selector: only in spread constraints does it mean the service's own Pods."""
    if term.get("labelSelector") is None:
        name = service.get("name")
        own = "NAME" if name is None else name.read(str)
        remedy = f"write labelSelector: {{matchLabels: {{{SERVICE_LABEL}: {own}}}}} for the service's own, {{}} for any"
        yield term.lacks("labelSelector", reason, remedy)


def _meant(term: DocumentPart) -> object:
    return canonical_form.of_pod_term(term.read(PodAffinityTerm), "")
