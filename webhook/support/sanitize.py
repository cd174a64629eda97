"""User input in messages: shortened, without control characters."""

import json
from typing import Any

_LONGEST = 60  # characters of a value


def value(given: Any) -> str:
    """Return a value as JSON, truncated."""
    text = json.dumps(given, ensure_ascii=False)
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def printable(text: str) -> str:
    """Return a text with non-printable characters escaped."""
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)
