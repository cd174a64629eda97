"""Effective policy after the merge, with the source of each value: the document, `defaults`, or built in."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from webhook.core.document.loading import load_effective
from webhook.core.document.rules.scheduling import MEASURED
from webhook.core.document.yaml.nodes import ExactNumber, Node, resolve_scalar
from webhook.core.document.yaml.problems import Path, format_path
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields import OutcomeSource

# Strings that no YAML parser reads as another type; the last alternative is for durations and percentages.
_PLAIN = re.compile(r"[A-Za-z_][\w./*%@+-]+|[A-MO-XZa-mo-xz]|[1-9]\d*[A-Za-z%]+", re.ASCII)
_COMMENT_COLUMN = 48


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Source of a value; `line` None: built in."""

    origin: str
    line: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.origin
        return f"line {self.line}" if self.origin == "document" else f"{self.origin}, line {self.line}"


BUILT_IN = ValueSource("built in")


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """An effective value: a scalar, a mapping or a list."""

    value: "dict[str, SourcedValue] | list[SourcedValue] | str | int | float | bool"
    source: ValueSource


def render(raw: bytes, service: str | None = None) -> SourcedValue | None:
    """Return the effective document, or one service of it; None if there is no such service.

    Unsupported stanzas are shown too. DocumentError as `load`.
    """
    effective = load_effective(raw, None)
    policy = msgspec.to_builtins(effective.policy, enc_hook=_encode_amount)
    if policy["nodes"] is None:
        _drop_measured(policy["services"])
    if service is None:
        return _join_sources(policy, effective.document)
    names = [entry["name"] for entry in policy["services"]]
    if service not in names:
        return None
    index = names.index(service)
    return _join_sources(policy["services"][index], effective.document.child("services").child(index))


def _drop_measured(services: list[dict[str, Any]]) -> None:
    """Remove the built-in values of fields that are an error where nothing measures the load of nodes."""
    for service in services:
        scheduling = service["scheduling"] or {}
        for name in MEASURED:
            scheduling.pop(name, None)


def _encode_amount(value: object) -> float | str:
    """Return an amount as a document has it."""
    return float(value) if isinstance(value, Number) else str(value)


def _join_sources(value: Any, node: Node | None) -> SourcedValue:
    """Join effective values with their sources, without absent values and those that are empty by default."""
    source = _find_source(node) if node is not None else BUILT_IN
    below = node.value if node is not None else None
    if isinstance(value, dict):
        written = below if isinstance(below, dict) else {}
        fields = {key: _join_sources(inner, written.get(key)) for key, inner in value.items() if inner is not None}
        if value.get("source") == OutcomeSource.PUSHED:
            fields.pop("startDeadline", None)  # only for PodStart, an error with Pushed
        return SourcedValue({k: v for k, v in fields.items() if v.value not in ({}, []) or k in written}, source)
    if isinstance(value, list | tuple):
        items: list[Any] = below if isinstance(below, list) else [None] * len(value)
        return SourcedValue([_join_sources(inner, item) for inner, item in zip(value, items, strict=True)], source)
    return SourcedValue(value, source)


def _find_source(node: Node) -> ValueSource:
    return ValueSource("defaults" if node.path[:1] == ("defaults",) else "document", node.key_line)


def strip_sources(sourced: SourcedValue) -> Any:
    """Return the values alone."""
    value = sourced.value
    if isinstance(value, dict):
        return {key: strip_sources(inner) for key, inner in value.items()}
    return [strip_sources(inner) for inner in value] if isinstance(value, list) else value


def list_sources(sourced: SourcedValue, path: Path = ()) -> Iterator[tuple[str, ValueSource]]:
    """Yield the path of every scalar, and every empty list or mapping, with its source."""
    value = sourced.value
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from list_sources(inner, (*path, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from list_sources(inner, (*path, index))
    else:
        yield format_path(path), sourced.source


def format_yaml_lines(sourced: SourcedValue) -> Iterator[str]:
    """Yield the document as YAML, each value with its source as a comment."""
    yield from _format_lines(sourced, "", "")


def _format_lines(sourced: SourcedValue, lead: str, indent: str) -> Iterator[str]:
    """Yield lines; the first begins with `lead`, the others with `indent`."""
    value = sourced.value
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _format_entry(f"{lead}{_format_scalar(key)}:", inner, indent)
            lead = indent
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _format_lines(inner, f"{lead}- ", f"{indent}  ")
            lead = indent
    else:
        shown = json.dumps(value) if isinstance(value, dict | list) else _format_scalar(value)
        yield f"{lead}{shown}".ljust(_COMMENT_COLUMN) + f"  # {sourced.source}"


def _format_entry(opening: str, inner: SourcedValue, indent: str) -> Iterator[str]:
    if isinstance(inner.value, dict | list) and inner.value:
        yield opening
        deeper = indent if isinstance(inner.value, list) else f"{indent}  "
        yield from _format_lines(inner, deeper, deeper)
    else:
        yield from _format_lines(inner, f"{opening} ", indent)


def _format_scalar(value: Any) -> str:
    if isinstance(value, str) and not isinstance(resolve_scalar(value), bool | int | ExactNumber | None):
        return value if _PLAIN.fullmatch(value) else json.dumps(value)
    return json.dumps(value)
