"""YAML in a hand-written style: values on one line if they fit, double quotes, folded sentences."""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

_WIDTH = 110
_ENDLESS = 1_000_000


def format_document(document: Mapping[str, Any]) -> str:
    """Return a mapping as a YAML document, in the given order."""
    text = "\n".join(_format_mapping(document, _WIDTH)) + "\n"
    if yaml.safe_load(text) != document:
        raise ValueError(f"this would be read as another document:\n{text}")
    return text


def _format_mapping(mapping: Mapping[str, Any], room: int) -> list[str]:
    lines: list[str] = []
    for key, value in mapping.items():
        head = f"{_format_scalar(key)}:"
        if _is_fitting(value, room - len(head) - 1):
            lines.append(f"{head} {_format_line(value)}")
        elif isinstance(value, str):
            lines += [f"{head} >-", *_indent(_fold(value, room - 2), "  ")]
        elif isinstance(value, Mapping):
            lines += [head, *_indent(_format_mapping(value, room - 2), "  ")]
        else:
            lines += [head, *_format_list(value, room)]
    return lines


def _format_list(entries: list[Any], room: int) -> list[str]:
    lines: list[str] = []
    for entry in entries:
        if isinstance(entry, Mapping) and not _is_fitting(entry, room - 2):
            first, *rest = _format_mapping(entry, room - 2)
            lines += [f"- {first}", *_indent(rest, "  ")]
        else:
            lines.append(f"- {_format_line(entry)}")
    return lines


def _indent(lines: list[str], by: str) -> list[str]:
    return [by + line for line in lines]


def _fold(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _is_fitting(value: Any, room: int) -> bool:
    return not _has_a_sentence(value) and len(_format_line(value)) <= room


def _has_a_sentence(value: Any) -> bool:
    """Return whether it contains a message of Podgate: that needs quotes, and has many itself."""
    if isinstance(value, Mapping):
        return any(map(_has_a_sentence, value.values()))
    if isinstance(value, list):
        return any(map(_has_a_sentence, value))
    return isinstance(value, str) and ": " in value


def _format_line(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{_format_scalar(key)}: {_format_line(element)}" for key, element in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_line, value)) + "]"
    return _format_scalar(value)


def _format_scalar(value: Any) -> str:
    """Return the value plain, or in double quotes if it would be parsed as another value."""
    # PyYAML judges by the place: inside a flow list more has to be quoted than elsewhere.
    plain = yaml.safe_dump([value], default_flow_style=True, width=_ENDLESS).strip()[1:-1]
    return json.dumps(value, ensure_ascii=False) if plain.startswith(("'", '"')) else plain
