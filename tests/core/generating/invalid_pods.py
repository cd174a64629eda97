"""Pods that the API server will reject after mutation: it validates the result of mutating webhooks."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from tests.core.generating.pods import pods
from tests.core.generating.vocabulary import Json

_LISTS = ("values", "nodeSelectorTerms", "matchLabelKeys", "namespaces")
_NUMBERS = ("weight", "maxSkew", "minDomains", "tolerationSeconds", "priority")
_WORDS = ("operator", "topologyKey", "whenUnsatisfiable", "effect", "value", "runtimeClassName", "preemptionPolicy")


def _collect_fields(value: Any, found: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """Collect every field for which there is an illegal value of the right type."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if item is not None and key in {*_LISTS, *_NUMBERS, *_WORDS}:
            found.append((value, key))
        _collect_fields(item, found)
    return found


def _illegal_value(field: str) -> st.SearchStrategy[Any]:
    if field in _LISTS:
        return st.sampled_from([[], ["", "", "é"], ["x"] * 3])
    if field in _NUMBERS:
        return st.sampled_from([0, -1, 2**31, 2**63 - 1])
    return st.sampled_from(["", "Like", "NotIn", "Gt", "Exists", "é/~"])


def _duplicate(spec: Json, field: str) -> None:
    if spec.get(field):
        spec[field] = [*spec[field], *spec[field]]


@st.composite
def _spoil_pod(draw: st.DrawFn) -> Json:
    pod: Json = deepcopy(draw(pods))
    spots = _collect_fields(pod["spec"], [])
    for _ in range(draw(st.integers(1, 3))):
        if spots:
            parent, field = draw(st.sampled_from(spots))
            parent[field] = draw(_illegal_value(field)) if field != "nodeSelectorTerms" else []
    if draw(st.booleans()):
        _duplicate(pod["spec"], "topologySpreadConstraints")
    return pod


illegal_pods = st.deferred(_spoil_pod)
