"""Rules of `placement.labels` and `annotations`, and of `matchLabelKeys` and `mismatchLabelKeys`.

Kubernetes writes the Pod's own values of these labels into the labelSelector, and rejects the Pod if it cannot.
"""

from collections.abc import Collection, Iterator, Sequence

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import build_constraints, list_covering_patterns
from webhook.core.kubernetes.name_patterns import meet
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.placement.plan import SERVICE_LABEL, VARIANT_LABEL
from webhook.core.policy_fields import LabelSource, OnConflict

_MATCH, _MISMATCH = "matchLabelKeys", "mismatchLabelKeys"


def label_keys_are_kubernetes(term: DocumentPart, default: Collection[str] | None = None) -> Iterator[Problem]:
    """`matchLabelKeys`, `mismatchLabelKeys`: each key once, in one of the two lists, and not in the `labelSelector`.

    Refuse others, and keys without a selector. `default`: labels of the selector that an absent one stands for.
    """
    match, mismatch, selector = term.get(_MATCH), term.get(_MISMATCH), term.get("labelSelector")
    selected = default if selector is None else build_constraints(selector.read(LabelSelector)).keys()
    unwanted = {} if mismatch is None else dict.fromkeys(mismatch.read(tuple[str, ...]))
    for keys in (match, mismatch):
        if keys is None or keys.is_empty:
            continue
        if selected is None:
            yield keys.report_field("has no effect without a labelSelector", "add labelSelector, or remove it")
        yield from _check_listed_once(keys)
    for key in () if match is None else match.items():
        name = key.read(str)
        if selector is None and name in (selected or ()):
            yield key.report("an absent labelSelector selects by it already", "remove it, or write a labelSelector")
        elif name in (selected or ()):
            reason = f"the labelSelector already selects by {name}, and Kubernetes allows only one of the two"
            yield key.report(reason, "remove it here or there")
        elif name in unwanted:
            yield key.report(f"also in {_MISMATCH}", "remove it here or there")


def _check_listed_once(keys: DocumentPart) -> Iterator[Problem]:
    seen: set[str] = set()
    for key in keys.items():
        name = key.read(str)
        if name in seen:
            yield key.report("listed twice", "remove one of the two")
        seen.add(name)


_ByPattern = dict[str, DocumentPart]
_MAPS = ("labels", "annotations")
_COMMON_SELECTORS = frozenset({"app", "component", "name", "release", "role", "run", "tier"})


def sources_are_labels_of_others(service: DocumentPart) -> Iterator[Problem]:
    """Values of `placement.labels`, `annotations`: a text, `fromPod` or `fromNamespace`.

    Refuse both and neither, and `fromPod` of a label that Podgate writes: a second rewrite would change the Pod again.
    """
    placement = service.get("placement")
    labels = None if placement is None else placement.get("labels")
    written = {SERVICE_LABEL, VARIANT_LABEL, *(() if labels is None else labels.fields())}
    for values in [] if placement is None else [part for name in _MAPS for part in placement.select(name)]:
        for value in values.fields().values():
            yield from stop_at_invalid(_check_source(value, written))


def _check_source(value: DocumentPart, written: set[str]) -> Iterator[Problem]:
    if not isinstance(value.node.value, dict):
        return
    source = value.read(LabelSource)
    own = value.get("fromPod")
    if source.from_pod is None and source.from_namespace is None:
        yield value.report_field("names no label", "add fromPod: LABEL or fromNamespace: LABEL, or write the value")
    elif own is not None and source.from_namespace is not None:
        yield own.report_field("fromNamespace already names the label", "remove one of the two")
    elif own is not None and source.from_pod in written:
        is_variant = source.from_pod == VARIANT_LABEL
        remedy = f"let its reader use {VARIANT_LABEL} itself" if is_variant else "write the same value or source here"
        yield own.report("a label that Podgate itself writes into the Pod", remedy)


def labels_decide_no_owner(document: DocumentPart) -> Iterator[Problem]:
    """`placement.labels`: refuse a key that a podSelector for the same namespace reads: the service could change."""
    selectors: dict[str, _ByPattern] = {}
    for service in document.select("services", "*"):
        for selector in service.select("match", "podSelector"):
            for key in build_constraints(selector.read(LabelSelector)):
                of_key = selectors.setdefault(key, {})
                of_key.update((pattern, of_key.get(pattern, selector)) for pattern in _list_namespaces(service))
    for service in document.select("services", "*"):
        for key, value in [
            entry for labels in service.select("placement", "labels") for entry in labels.fields().items()
        ]:
            reader = _find_reader(selectors.get(key, {}), _list_namespaces(service))
            if reader is not None:
                line = reader.node.key_line
                reason = f"the podSelector in line {line} reads it: the rewritten Pod could belong to another service"
                yield value.report_field(reason, "set another label, or select by another one")


def _list_namespaces(service: DocumentPart) -> list[str]:
    """Return the patterns of a service's namespaces, "" for all."""
    return [part.read(str) for part in service.select("match", "namespaces", "*")] or [""]


def _find_reader(selectors: _ByPattern, namespaces: Sequence[str]) -> DocumentPart | None:
    """Return a selector for one of these namespaces, None if there is none."""
    for name in namespaces:
        if name and "*" not in name:
            found = [selectors[pattern] for pattern in ("", *list_covering_patterns(name)) if pattern in selectors]
        else:
            found = [part for pattern, part in selectors.items() if not (pattern and name) or meet(pattern, name)]
        if found:
            return found[0]
    return None


def overridden_labels_select_no_pods(service: DocumentPart) -> Iterator[Problem]:
    """`placement.labels` with `onConflict: Override`: warn about keys by which controllers commonly select Pods."""
    for placement in service.select("placement"):
        rule = placement.get("onConflict", "labels") or placement.get("onConflict", "default")
        if rule is None or rule.read(str) != OnConflict.OVERRIDE:
            continue
        for labels in placement.select("labels"):
            for key, value in labels.fields().items():
                if key in _COMMON_SELECTORS:
                    reason = "a controller that selects its Pods by it would lose them, and create others without end"
                    yield value.report_field(reason, "set another label, or write onConflict: {labels: Deny}")
