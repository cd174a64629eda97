"""Placeholders for values that differ between runs; equal values in a review stay equal."""

import re
from typing import Any

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_A_TIME = "2027-01-15T08:00:00Z"  # one for all: whether two fall into the same second differs too
_NUMBERED = (
    (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"), "00000000-0000-4000-8000-{:012}"),
    (re.compile(r"(?<=X509SHA256=)[0-9a-f]{64}"), "{:064}"),  # of the user's certificate
    (re.compile(r"(?<=kube-api-access-)[a-z0-9]{5}\b"), "{:05}"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "192.0.2.{}"),
)
_GENERATED = "x2k9p"


def normalized(review: dict[str, Any]) -> dict[str, Any]:
    """Return an AdmissionReview with stand-ins, numbered as they come."""
    walked: dict[str, Any] = _Review(review).walk(review)
    return walked


class _Review:
    """What has been met so far in one review."""

    def __init__(self, review: dict[str, Any]) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        for which in ("object", "oldObject"):
            metadata = (review["request"].get(which) or {}).get("metadata", {})
            if "generateName" in metadata and "name" in metadata:
                self._names[metadata["name"]] = metadata["generateName"] + _GENERATED

    def walk(self, found: Any, key: str = "") -> Any:
        if isinstance(found, dict):
            return {self._text(name): self.walk(value, name) for name, value in found.items()}
        if isinstance(found, list):
            # The API server orders these by their times.
            ordered = sorted(found, key=_writer) if key == "managedFields" else found
            return [self.walk(value) for value in ordered]
        if key == "resourceVersion":
            return self._numbered(found, "{}")
        return self._text(found) if isinstance(found, str) else found

    def _text(self, text: str) -> str:
        for name, stand_in in self._names.items():
            text = text.replace(name, stand_in)
        for pattern, stand_in in _NUMBERED:
            text = pattern.sub(lambda match, stand_in=stand_in: self._numbered(match[0], stand_in), text)
        return _TIME.sub(_A_TIME, text)

    def _numbered(self, text: str, stand_in: str) -> str:
        if (stand_in, text) not in self._numbers:
            self._counts[stand_in] = self._counts.get(stand_in, 0) + 1
            self._numbers[stand_in, text] = self._counts[stand_in]
        return stand_in.format(self._numbers[stand_in, text])


def _writer(entry: dict[str, Any]) -> tuple[str, ...]:
    return entry["operation"], entry["manager"], entry.get("subresource", "")
