"""Faults that msgspec finds in objects: the field, its value, and what is wrong, from the text of its errors."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

_VALUE_CHARACTERS_MAX = 40
_AT = re.compile(r"^(?P<what>.*) - at `(?P<path>\$[^`]*)`$", re.DOTALL)
_TOKEN = re.compile(r"\.([^.\[\]]+)|(\[[^\]]*\])")
EACH = "[...]"
"""Any value of an object: msgspec does not say which one."""


def describe_fault(error: msgspec.ValidationError, document: Any) -> str:
    """Return the field and the value that an object was not decoded for, and the reason."""
    path, what = split_fault(error)
    shown = [repr(value) for value in _find_values(document, path) if isinstance(value, str | int | float)]
    value = f"{shown[0][:_VALUE_CHARACTERS_MAX]}: " if len(shown) == 1 else ""
    return f"{path.removeprefix('$.')}: {value}{what}" if path else f"{value}{what}"


def split_fault(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the path of the field, "" for the whole object, and what is wrong with it."""
    found = _AT.match(str(error))
    return ("", str(error)) if found is None else (found["path"], found["what"])


def parse_path(path: str) -> tuple[str | int, ...]:
    """Return the keys and indexes of a path of msgspec."""
    found = (name or element for name, element in _TOKEN.findall(path))
    return tuple(int(token[1:-1]) if token[1:-1].isdecimal() and token[0] == "[" else token for token in found)


def list_children(place: Any, token: str | int) -> Iterator[Any]:
    """Yield what is at a key or an index of a value."""
    if token == EACH and isinstance(place, dict):
        yield from place.values()
    elif has_child(place, token):
        yield place[token]


def has_child(place: Any, token: str | int) -> bool:
    if isinstance(token, int):
        return isinstance(place, list) and token < len(place)
    return isinstance(place, dict) and token in place


def _find_values(document: Any, path: str) -> list[Any]:
    places = [document]
    for token in parse_path(path):
        places = [child for place in places for child in list_children(place, token)]
    return places
