"""Plain text: text from outside, without characters that move the cursor, hide or reorder text, or begin a line."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

from msgspec import Struct, structs

_T = TypeVar("_T")
_DELETE = "\x7f"
_RUN = re.compile(r"[^\n -~]+")
"""Characters other than printable ASCII and line breaks; large documents have few of them."""
_VALUE_CHARACTERS_MAX = 60


def escape_line(text: str) -> str:
    """Return a text on one line, with each unprintable character escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape_character(c) for c in text)


def escape_lines(text: str) -> str:
    """Return a text of several lines, with the unprintable characters of each escaped."""
    return "\n".join(map(escape_line, text.split("\n")))


def escape_document(value: _T) -> _T:
    """Return a document with all its texts escaped, keys included, so that a page needs to do it only once."""
    return cast("_T", _escape_values(value))


def _escape_values(value: Any) -> Any:
    match value:
        case str():
            value = escape_line(value)
        case dict():
            value = {_escape_values(key): _escape_values(inner) for key, inner in value.items()}
        case list():
            value = [_escape_values(inner) for inner in value]
        case tuple():
            parts = map(_escape_values, value)
            value = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)  # a NamedTuple has fields
        case Struct():
            value = structs.replace(
                value, **{name: _escape_values(getattr(value, name)) for name in value.__struct_fields__}
            )
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [item.name for item in fields(value) if item.init]
            value = replace(value, **{name: _escape_values(getattr(value, name)) for name in names})
    return value


def escape_json(text: str) -> str:
    """Return JSON of the same meaning, with each unprintable character in its texts escaped."""
    if text.isascii() and _DELETE not in text:  # JSON encoders escape the other control characters
        return text
    return _RUN.sub(partial(_escape_match, _escape_json_character), text)


def escape_yaml(text: str) -> str:
    """Return YAML with each unprintable character escaped; texts with such characters must be in double quotes."""
    return _RUN.sub(partial(_escape_match, _escape_yaml_character), text)


def _escape_match(escape: Callable[[str], str], run: re.Match[str]) -> str:
    return _escape_run(escape, run[0])


@lru_cache(maxsize=1024)  # the records of a page repeat their names
def _escape_run(escape: Callable[[str], str], found: str) -> str:
    return found if found.isprintable() else "".join(c if c.isprintable() else escape(c) for c in found)


def _escape_character(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else _escape_yaml_character(character)  # noqa: PLR2004  two digits


def _escape_yaml_character(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004  four digits


def _escape_json_character(character: str) -> str:
    """Return the JSON escape; a character beyond four digits takes two parts."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def quote_value(given: Any) -> str:
    """Return a value of a user as JSON on one line, truncated."""
    text = json.dumps(given, ensure_ascii=False)
    return escape_line(text if len(text) <= _VALUE_CHARACTERS_MAX else f"{text[:_VALUE_CHARACTERS_MAX]}...")
