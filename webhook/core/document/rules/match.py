"""Rules of `match`: namespaces, selectors, services that earlier services shadow, and names with a `*`."""

from collections.abc import Iterator, Sequence
from itertools import product

from webhook.core.document.yaml.parts import DocumentPart, InvalidFieldError, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import Constraints, build_constraints, imply, list_covering_patterns
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.policy.model import Match, OwnerKind

_PATTERNS = (
    ("match", "namespaces"),
    *(("placement", "allow", names) for names in ("priorityClassNames", "schedulerNames", "runtimeClassNames")),
)


def patterns_do_not_overlap(service: DocumentPart) -> Iterator[Problem]:
    """`match.namespaces` and the names of `placement.allow`: warn about a name that a pattern of the list covers."""
    for patterns in [part for path in _PATTERNS for part in service.select(*path)]:
        names = [(part, part.read(str)) for part in patterns.items()]
        listed = {name for _, name in names}
        for part, name in names if len(names) > 1 else ():
            wider = next((other for other in list_covering_patterns(name) if other != name and other in listed), None)
            if wider is not None:
                yield part.report(f"{wider} already covers it", "remove it")


AFFINITIES = (("placement", "affinity"), ("placement", "shares", "variants", "*", "affinity"))
"""Paths of all affinity: of every Pod, and of the Pods of one variant."""
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")
_OF_AFFINITY = tuple(
    (kind, term, "*", *path, selector)
    for kind in ("podAffinity", "podAntiAffinity")
    for term, path in ((_TERMS[0], ()), (_TERMS[1], ("podAffinityTerm",)))
    for selector in ("labelSelector", "namespaceSelector")
)
_SELECTORS: tuple[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]], ...] = (
    (("match",), (("namespaceSelector",), ("podSelector",))),
    (("placement", "topologySpreadConstraints", "*"), (("labelSelector",),)),
    *((affinity, _OF_AFFINITY) for affinity in AFFINITIES),
)
"""Paths of label selectors, by the field that all of them are within: most services have none of these fields."""


def a_match_says_where(service: DocumentPart) -> Iterator[Problem]:
    """`match`: `namespaces`, a `namespaceSelector` with labels, or `anyNamespace: true` alone.

    Refuse a match with none of them, an empty selector, and the others beside `anyNamespace: true`.
    """
    part = service.get("match")
    if part is None:
        return
    match = part.read(Match)
    selector = part.get("namespaceSelector")
    if match.any_namespace:
        for field in (part.get("namespaces"), selector):
            if field is not None:
                reason = "contradicts `anyNamespace: true`, which is every namespace"
                yield field.report_field(reason, "remove one of the two")
    elif selector is not None and not build_constraints(match.namespace_selector):
        reason = "an empty selector selects every namespace"
        yield selector.report_field(reason, "give it labels, or write `anyNamespace: true` instead")
    elif not match.namespaces and selector is None:
        remedy = "add namespaces, namespaceSelector or `anyNamespace: true`"
        yield part.report_field("selects no namespaces", remedy)


def selectors_make_sense(service: DocumentPart) -> Iterator[Problem]:
    """Label selectors of `match` and `placement`: refuse values that do not fit the operator, and contradictions."""
    for field, paths in _SELECTORS:
        for part in service.select(*field):
            for selector in [found for path in paths for found in part.select(*path)]:
                for expression in selector.select("matchExpressions", "*"):
                    yield from stop_at_invalid(values_fit_the_operator(expression))
                yield from stop_at_invalid(check_can_match(selector))


def values_fit_the_operator(expression: DocumentPart) -> Iterator[Problem]:
    """`values`: at least one with In and NotIn, none with Exists and DoesNotExist, one whole number with Gt and Lt.

    Refuse others.
    """
    operator, values = expression.get("operator"), expression.get("values")
    if operator is None:
        return
    word = operator.read(str)
    listed = [] if values is None else values.read(list[str])
    at = expression if values is None else values
    if word in {"In", "NotIn"} and not listed:
        yield at.report_field(f"{word} needs values", "add values, or use Exists or DoesNotExist")
    elif word in {"Exists", "DoesNotExist"} and listed:
        yield at.report_field(f"{word} takes no values", "remove values, or use In or NotIn")
    elif word in {"Gt", "Lt"} and not (len(listed) == 1 and _is_integer(listed[0])):
        yield at.report_field(f"{word} takes a single whole number", 'write it in quotes, such as values: ["4"]')


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()


def check_can_match(selector: DocumentPart) -> Iterator[Problem]:
    """Refuse a label selector that contradicts itself."""
    label_selector = selector.read(LabelSelector)
    if any(entry.operator == "In" and not entry.values for entry in label_selector.match_expressions or ()):
        return  # reported by values_fit_the_operator
    for key, constraint in build_constraints(label_selector).items():
        if constraint.is_impossible:
            reason = f"contradicts itself about {key}: nothing can match"
            yield selector.report_field(reason, f"fix its requirements on {key}")


def list_exact_labels(constraints: Constraints) -> list[tuple[str, str]]:
    """Return the labels for which a single value is accepted."""
    return [
        (key, value)
        for key, constraint in constraints.items()
        if constraint.allowed is not None and len(constraint.allowed) == 1
        for value in constraint.allowed
    ]


class _Reach:
    """A service's match as patterns and constraints."""

    def __init__(self, service: DocumentPart, order: int) -> None:
        part, name = service.get("match"), service.get("name")
        if part is None or name is None:
            raise InvalidFieldError
        match = part.read(Match)
        self.order = order
        self.part = part
        self.name = name.read(str)
        self.says_where = bool(match.namespaces or match.any_namespace or match.namespace_selector)
        self.namespaces = match.namespaces
        self.patterns = frozenset(match.namespaces)
        self.namespace_labels: Constraints = build_constraints(match.namespace_selector)
        self.pod_labels: Constraints = build_constraints(match.pod_selector)
        self.owner_kinds = frozenset(match.owner_kinds)
        self.exact_labels = list_exact_labels(self.pod_labels)
        """Labels of Pods with a single value: a service that requires such a label covers only services that do too."""

    def is_within(self, other: "_Reach") -> bool:
        """Return whether `other` matches everything that this service matches."""
        return self.is_narrower(other) and (
            not other.namespaces or (bool(self.namespaces) and all(map(other.names, self.namespaces)))
        )

    def is_narrower(self, other: "_Reach") -> bool:
        """Return whether `other` matches all Pods of this service in each namespace that both name."""
        return (
            (not other.owner_kinds or (bool(self.owner_kinds) and self.owner_kinds <= other.owner_kinds))
            and imply(self.pod_labels, other.pod_labels)
            and imply(self.namespace_labels, other.namespace_labels)
        )

    def names(self, pattern: str) -> bool:
        """Return whether the service names all namespaces of a pattern."""
        return not self.namespaces or not self.patterns.isdisjoint(list_covering_patterns(pattern))


ReachKey = tuple[str, tuple[str, str] | None]
"""A namespace pattern, "" for none, and the first exact label of Pods: by these, few services are compared."""
_Earlier = dict[ReachKey, list[_Reach]]


def list_reach_keys(namespaces: Sequence[str], exact_labels: Sequence[tuple[str, str]]) -> list[ReachKey]:
    """Return the keys of a service."""
    first = exact_labels[0] if exact_labels else None
    return [(pattern, first) for pattern in namespaces or ("",)]


def list_covering_keys(pattern: str, exact_labels: Sequence[tuple[str, str]]) -> Iterator[ReachKey]:
    """Return the keys of services that name all namespaces of a pattern and may require no more of Pods."""
    return product(("", *(list_covering_patterns(pattern) if pattern else ())), (None, *exact_labels))


def every_service_can_be_reached(document: DocumentPart) -> Iterator[Problem]:
    """`match`: Pods that no service above matches. Refuse a match whose Pods all belong to services above."""
    earlier: _Earlier = {}
    for order, service in enumerate(document.select("services", "*")):
        try:
            reach = _Reach(service, order)
        except InvalidFieldError:
            continue
        if reach.says_where:
            yield from _check_shadowed(reach, earlier)
            for key in list_reach_keys(reach.namespaces, reach.exact_labels):
                earlier.setdefault(key, []).append(reach)


def _check_shadowed(reach: _Reach, earlier: _Earlier) -> Iterator[Problem]:
    # A service that covers all namespaces covers the first one.
    candidates = _list_candidates(reach, reach.namespaces[0] if reach.namespaces else "", earlier)
    shadow = min((other for other in candidates if reach.is_within(other)), key=lambda other: other.order, default=None)
    if shadow is not None:
        line = shadow.part.node.key_line
        reason = f"service {shadow.name} above (line {line}) matches every Pod that this one would match"
        yield reach.part.report_field(reason, f"move it above {shadow.name}, or narrow {shadow.name}'s match")
        return
    by_name = [
        next((other for other in _list_candidates(reach, pattern, earlier) if reach.is_narrower(other)), None)
        for pattern in reach.namespaces
    ]
    together = {other.order: other for other in by_name if other is not None}
    if by_name and None not in by_name:
        names = ", ".join(f"{other.name} (line {other.part.node.key_line})" for _, other in sorted(together.items()))
        reason = f"services above match every Pod that this one would match: {names}"
        yield reach.part.report_field(reason, "move it above them, or narrow their matches")


def _list_candidates(reach: _Reach, pattern: str, earlier: _Earlier) -> Iterator[_Reach]:
    """Yield the earlier services that name all namespaces of a pattern and may require no more of Pods."""
    for key in list_covering_keys(pattern, reach.exact_labels):
        yield from earlier.get(key, ())


def daemon_sets_are_not_exempt(document: DocumentPart) -> Iterator[Problem]:
    """`match.ownerKinds`: DaemonSet only with `exemptions.daemonSets: false`. Refuse it otherwise."""
    exempt = document.get("exemptions", "daemonSets")
    if exempt is None or exempt.read(bool):
        for kind in document.select("services", "*", "match", "ownerKinds", "*"):
            if kind.read(str) == OwnerKind.DAEMON_SET:
                yield kind.report("Pods of DaemonSets are exempt", "remove it, or write exemptions.daemonSets: false")


def any_namespace_is_wide(service: DocumentPart) -> Iterator[Problem]:
    """`match.anyNamespace`: warn about true, with which the webhook is called for all namespaces."""
    chosen = service.get("match", "anyNamespace")
    if chosen is not None and chosen.read(bool):
        reason = "the webhook will be called for Pods of every namespace that is not exempt"
        yield chosen.report_field(reason, "name the namespaces, or select them by label, where you can")
