"""Rules of affinity to Pods and of spread constraints: those that Kubernetes rejects or no Pod can satisfy."""

from collections.abc import Iterator

from webhook.core.document.rules.match import AFFINITIES
from webhook.core.document.rules.pod_metadata import label_keys_are_kubernetes
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.types import PodAffinityTerm
from webhook.core.placement import SERVICE_LABEL, canonical_form
from webhook.core.placement.affinity import PREFERRED
from webhook.core.placement.required import REQUIRED


def spreads_are_kubernetes(service: DocumentPart) -> Iterator[Problem]:
    """`topologySpreadConstraints`: each topologyKey once with each whenUnsatisfiable; `minDomains` with DoNotSchedule.

    Refuse repeated pairs, `minDomains` with ScheduleAnyway, and `matchLabelKeys` that Kubernetes rejects.
    """
    first: dict[tuple[str, str], DocumentPart] = {}
    for part in service.select("placement", "topologySpreadConstraints", "*"):
        yield from stop_at_invalid(_check_spread(part, first))
        # A constraint without a selector counts the service's own Pods.
        yield from stop_at_invalid(label_keys_are_kubernetes(part, default={SERVICE_LABEL}))


def fields_of_if_absent_are_set(service: DocumentPart) -> Iterator[Problem]:
    """`placement.ifAbsent`: fields that placement sets. Refuse others, and fields with an `onConflict` rule."""
    for placement in service.select("placement"):
        for part in placement.select("ifAbsent", "*"):
            name = part.read(str)
            path = ("affinity", name) if name == "podAntiAffinity" else (name,)
            wanted, rule = placement.get(*path), placement.get("onConflict", name)
            if wanted is None or wanted.is_empty:
                yield part.report("placement sets nothing there", f"set {'.'.join(path)}, or remove it")
            if rule is not None:
                reason = f"has no effect: ifAbsent leaves a Pod's own {name} as they are"
                yield rule.report_field(reason, "keep one of the two")


def _check_spread(part: DocumentPart, first: dict[tuple[str, str], DocumentPart]) -> Iterator[Problem]:
    key, action, domains = part.get("topologyKey"), part.get("whenUnsatisfiable"), part.get("minDomains")
    if key is None or action is None:
        return
    pair = (key.read(str), action.read(str))
    if pair in first:
        reason = f"the same topologyKey and whenUnsatisfiable as in line {first[pair].node.key_line}"
        yield part.report_field(reason, "remove one of the two")
    first.setdefault(pair, part)
    if domains is not None and pair[1] != "DoNotSchedule":
        yield domains.report_field(
            "has no effect without DoNotSchedule", "write whenUnsatisfiable: DoNotSchedule, or remove it"
        )


_KINDS = ("podAffinity", "podAntiAffinity")
_WAYS = ((REQUIRED, "*"), (PREFERRED, "*", "podAffinityTerm"))


def pod_terms_are_kubernetes(service: DocumentPart) -> Iterator[Problem]:
    """`matchLabelKeys`, `mismatchLabelKeys` of `podAffinity` and `podAntiAffinity`: those that Kubernetes accepts.

    Refuse others, as `label_keys_are_kubernetes` says.
    """
    for affinity in [part for path in AFFINITIES for part in service.select(*path)]:
        for term in [found for kind in _KINDS for way in _WAYS for found in affinity.select(kind, *way)]:
            yield from stop_at_invalid(label_keys_are_kubernetes(term))


def some_pod_can_be_near(service: DocumentPart) -> Iterator[Problem]:
    """`podAffinity`, required: terms with a `labelSelector`. Refuse a term without it: each Pod would stay Pending."""
    for term in _select_terms(service, "podAffinity", *_WAYS[0]):
        yield from stop_at_invalid(_check_selector(service, term, "selects no Pod, so every Pod would stay Pending"))


def pods_cannot_be_near_and_away(service: DocumentPart) -> Iterator[Problem]:
    """`podAntiAffinity`, required: refuse a term that required `podAffinity` has too."""
    shared = service.select(*AFFINITIES[0])
    if shared:
        yield from _check_near_and_away(shared, shared)
    for own in service.select(*AFFINITIES[1]):
        yield from _check_near_and_away([*shared, own], [own])
        yield from _check_near_and_away([own], shared)


def _check_near_and_away(near: list[DocumentPart], away: list[DocumentPart]) -> Iterator[Problem]:
    required = [term for affinity in near for term in affinity.select("podAffinity", *_WAYS[0])]
    found = {_canonicalize_term(term): term for term in reversed(required)}
    for term in [part for affinity in away for part in affinity.select("podAntiAffinity", *_WAYS[0])]:
        other = found.get(_canonicalize_term(term))
        if other is not None:
            reason = f"required podAffinity in line {other.node.key_line} requires the same Pods nearby"
            yield term.report_field(reason, "remove one of the two")


def pod_terms_have_an_effect(service: DocumentPart) -> Iterator[Problem]:
    """`podAntiAffinity`, preferred `podAffinity`: warn about a term without a `labelSelector`."""
    for kind, way in ((_KINDS[1], _WAYS[0]), (_KINDS[0], _WAYS[1]), (_KINDS[1], _WAYS[1])):
        for term in _select_terms(service, kind, *way):
            yield from _check_selector(service, term, "selects no Pod, and has no effect")


def _select_terms(service: DocumentPart, kind: str, *way: str) -> list[DocumentPart]:
    return [part for path in AFFINITIES for part in service.select(*path, kind, *way)]


def _check_selector(service: DocumentPart, term: DocumentPart, reason: str) -> Iterator[Problem]:
    """Report an absent selector: only in spread constraints does it mean the service's own Pods."""
    if term.get("labelSelector") is None:
        name = service.get("name")
        own = "NAME" if name is None else name.read(str)
        remedy = f"write labelSelector: {{matchLabels: {{{SERVICE_LABEL}: {own}}}}} for the service's own, {{}} for any"
        yield term.report_missing("labelSelector", reason, remedy)


def _canonicalize_term(term: DocumentPart) -> object:
    return canonical_form.canonicalize_pod_term(term.read(PodAffinityTerm), "")
