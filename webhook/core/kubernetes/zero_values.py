"""Nulls of manifests, which `kubectl` sends as they are: the API server's decoder makes each its field's zero value.

Objects in AdmissionReviews have none: the API server encodes what it has decoded, as `kubectl set image --local` does.
"""

from typing import Any

_ZERO_ENTRIES: dict[str, Any] = {
    **dict.fromkeys(("labels", "annotations", "nodeSelector", "matchLabels"), ""),
    **dict.fromkeys(("requests", "limits", "overhead"), "0"),
    **dict.fromkeys(("values", "namespaces", "matchLabelKeys", "mismatchLabelKeys", "command", "args"), ""),
    "nodeSelectorTerms": {},
}
"""The zero value of an entry, by the field with the map or list. Empty entries of other lists are invalid objects."""


def fill_zero_values(value: Any, field: str = "") -> Any:
    """Return an object, or the value of a field, without nulls: a field with one is left out, as its zero value is."""
    if isinstance(value, dict):
        return {
            key: _ZERO_ENTRIES[field] if inner is None else fill_zero_values(inner, key)
            for key, inner in value.items()
            if inner is not None or field in _ZERO_ENTRIES
        }
    if isinstance(value, list):
        return [_ZERO_ENTRIES.get(field) if inner is None else fill_zero_values(inner) for inner in value]
    return value
