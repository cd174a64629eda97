"""Repeats what a user wrote, in a message: short, and harmless to a terminal."""

import json
from typing import Any

_LONGEST = 60  # characters of a value


def value(given: Any) -> str:
    """Return a value as JSON, cut off where it is long."""
    text = json.dumps(given, ensure_ascii=False)
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def printable(text: str) -> str:
    """Return a text that moves no cursor and changes no colour."""
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)
