"""Rules of `matchLabelKeys` and `mismatchLabelKeys`, as in the API server (ValidatePodSpec, 1.36).

It writes the Pod's own values of these labels into the labelSelector, and rejects the Pod if that is impossible.
"""

from collections.abc import Collection, Iterator

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import constraints
from webhook.core.kubernetes.types import LabelSelector

_MATCH, _MISMATCH = "matchLabelKeys", "mismatchLabelKeys"


def label_keys_are_kubernetes(term: DocumentPart, default: Collection[str] | None = None) -> Iterator[Problem]:
    """`matchLabelKeys`, `mismatchLabelKeys`: each key once, in one of both, and not in the `labelSelector`.

    Refuse others. `default`: labels of the selector that is used if none is given.
    """
    match, mismatch, selector = term.get(_MATCH), term.get(_MISMATCH), term.get("labelSelector")
    selected = default if selector is None else constraints(selector.read(LabelSelector)).keys()
    unwanted = {} if mismatch is None else dict.fromkeys(mismatch.read(tuple[str, ...]))
    for keys in (match, mismatch):
        if keys is None or keys.is_empty:
            continue
        if selected is None:
            yield keys.wrong_field("has no effect without a labelSelector", "add labelSelector, or remove it")
        yield from _listed_once(keys)
    for key in () if match is None else match.items():
        name = key.read(str)
        if selector is None and name in (selected or ()):
            yield key.wrong("an absent labelSelector selects by it already", "remove it, or write a labelSelector")
        elif name in (selected or ()):
            reason = f"the labelSelector already selects by {name}, and Kubernetes allows only one of the two"
            yield key.wrong(reason, "remove it here or there")
        elif name in unwanted:
            yield key.wrong(f"also in {_MISMATCH}", "remove it here or there")


def _listed_once(keys: DocumentPart) -> Iterator[Problem]:
    seen: set[str] = set()
    for key in keys.items():
        name = key.read(str)
        if name in seen:
            yield key.wrong("listed twice", "remove one of the two")
        seen.add(name)
