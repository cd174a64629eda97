"""Placeholders for values that differ between runs; equal values in a review stay equal."""

import re
from typing import Any

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_TIME_PLACEHOLDER = "2027-01-15T08:00:00Z"  # one for all: which times are equal also differs between runs
_NUMBERED = (
    (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"), "00000000-0000-4000-8000-{:012}"),
    (re.compile(r"(?<=X509SHA256=)[0-9a-f]{64}"), "{:064}"),  # of the user's certificate
    (re.compile(r"(?<=kube-api-access-)[a-z0-9]{5}\b"), "{:05}"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "192.0.2.{}"),
)
_GENERATED = "x2k9p"


def normalize(review: dict[str, Any]) -> dict[str, Any]:
    """Return an AdmissionReview with placeholders, numbered by first occurrence."""
    normalized_review: dict[str, Any] = _Review(review).walk(review)
    return normalized_review


class _Review:
    """Placeholders of one review so far."""

    def __init__(self, review: dict[str, Any]) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        for which in ("object", "oldObject"):
            metadata = (review["request"].get(which) or {}).get("metadata", {})
            if "generateName" in metadata and "name" in metadata:
                self._names[metadata["name"]] = metadata["generateName"] + _GENERATED

    def walk(self, document: Any, key: str = "") -> Any:
        if isinstance(document, dict):
            return {self._text(name): self.walk(value, name) for name, value in document.items()}
        if isinstance(document, list):
            # The API server orders these by their times.
            ordered = sorted(document, key=_writer) if key == "managedFields" else document
            return [self.walk(value) for value in ordered]
        if key == "resourceVersion":
            return self._number(document, "{}")
        return self._text(document) if isinstance(document, str) else document

    def _text(self, text: str) -> str:
        for name, placeholder in self._names.items():
            text = text.replace(name, placeholder)
        for pattern, placeholder in _NUMBERED:
            text = pattern.sub(lambda match, placeholder=placeholder: self._number(match[0], placeholder), text)
        return _TIME.sub(_TIME_PLACEHOLDER, text)

    def _number(self, text: str, placeholder: str) -> str:
        if (placeholder, text) not in self._numbers:
            self._counts[placeholder] = self._counts.get(placeholder, 0) + 1
            self._numbers[placeholder, text] = self._counts[placeholder]
        return placeholder.format(self._numbers[placeholder, text])


def _writer(entry: dict[str, Any]) -> tuple[str, ...]:
    return entry["operation"], entry["manager"], entry.get("subresource", "")
