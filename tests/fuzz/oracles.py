"""What several oracles share: readers of JSON that are independent of msgspec, and demands on messages."""

import json
import sys
from math import isfinite
from typing import Any

_DIGITS_MAX = 1000
MESSAGE_CHARACTERS_MAX = 20_000
"""Each fault of a Pod is told: a few times what an input may have."""


def read_json(data: bytes) -> Any:
    """Return a document that msgspec has read as Python's own library reads it, which nests less deeply by itself."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3 * limit)
    try:
        return json.loads(data.decode("utf-8", "surrogateescape"), parse_int=_parse_whole, parse_float=_parse_float)
    finally:
        sys.setrecursionlimit(limit)


def read_strict_json(data: bytes) -> Any:
    """Return a document by the letter of RFC 8259. ValueError, RecursionError: it is none, or has a name twice."""
    return json.loads(
        data.decode(), parse_int=_parse_whole, parse_constant=_refuse_constant, object_pairs_hook=_read_unique
    )


def check_message(text: str) -> None:
    """Demand that a message for people is one printable line of bounded length."""
    assert text
    assert text.isprintable(), ascii(text)
    assert len(text) <= MESSAGE_CHARACTERS_MAX, len(text)


def _parse_whole(text: str) -> int:
    """Python refuses to read longer ones."""
    return int(text[:_DIGITS_MAX])


def _parse_float(text: str) -> float:
    """JSON has no infinite ones to write it again."""
    value = float(text)
    return value if isfinite(value) else 0.0


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _read_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name twice")
    return document
