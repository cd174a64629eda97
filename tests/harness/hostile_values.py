"""Values of any declared type, all of whose texts are hostile: they move the cursor, forge a line, hide and reorder."""

import collections.abc
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Raw

FORGED = "FORGED line"
HOSTILE = f"a\x1b[2J\x1b[31m\x9b1A\x07\b\x7f\u202eb\u2066\u200b\ufeff\x00\t\u2028\u0085\r\n{FORGED}\n\U000e0041"
ALONE = "\ud800"
"""Half of a surrogate pair: no UTF-8 has it, but JSON may."""
TIME = "2027-01-15T08:00:00.000Z"
_TIMES = frozenset({"at", "time", "since", "until", "expires_at", "expected_at", "free_at"})
_LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_PAIR = 2
_MAPS = (dict, Mapping, collections.abc.Mapping)


_PLAIN = {bool: True, int: 1, float: 1.0, bytes: b"x", datetime: datetime(2027, 1, 15, tzinfo=UTC), Raw: Raw(b"null")}


def hostile(kind: Any, name: str = "", text: str = HOSTILE) -> Any:
    """Return a value of a declared type with every text hostile, except times, which pages parse."""
    origin, arguments = get_origin(kind), get_args(kind)
    value: Any = text
    if origin is None:
        value = _make_of_class(kind, name, text)
    elif origin in {Union, types.UnionType}:
        value = hostile(next(argument for argument in arguments if argument is not type(None)), name, text)
    elif origin is Literal:
        value = arguments[0]
    elif origin is Counter:
        value = Counter({text: 1})
    elif origin in _LISTS:
        items = arguments[:1] if len(arguments) < _PAIR or arguments[1] is Ellipsis else arguments
        value = tuple(hostile(item, name, text) for item in items)
    elif origin in _MAPS:
        value = {hostile(arguments[0], name, text): hostile(arguments[1], name, text)}
    return value


def _make_of_class(kind: Any, name: str, text: str) -> Any:
    value: Any = TIME if kind is str and name in _TIMES else _PLAIN.get(kind, text)
    if not isinstance(kind, type) or kind in _PLAIN or kind is str:
        return value
    names = _names(kind)
    if names:
        hints = get_type_hints(kind)
        value = kind(**{name: hostile(hints[name], name, text) for name in names})
    elif issubclass(kind, Exception):
        value = kind(text, text)
    elif issubclass(kind, Enum):
        value = next(iter(kind))
    elif issubclass(kind, tuple):
        value = kind()
    return value


def _names(kind: type) -> tuple[str, ...]:
    """Return the fields of a record; none for other types."""
    if is_dataclass(kind):
        return tuple(item.name for item in fields(kind) if item.init)
    found: tuple[str, ...] = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", ())
    return found
