r"""Surrogate pairs of JSON (`\ud83d\ude00`), which YAML parsers reject: replaced before parsing, restored after it.

Each half becomes a private-use character with an escape of the same length, so that columns stay correct.
"""

import json
import re

_PAIR = re.compile(r"\\\\|\\u[dD]([89abAB][0-9a-fA-F]{2})\\u[dD]([c-fC-F][0-9a-fA-F]{2})")
_REPLACED = re.compile("([\ue000-\ue3ff])([\ue400-\ue7ff])")


def replaced(text: str) -> str | None:
    """Return a JSON text with its pairs replaced; None if it is not JSON, or has none."""
    if not any(found[1] for found in _PAIR.finditer(text)):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _PAIR.sub(_private, text)


def restored(text: str) -> str:
    """Return the characters that the pairs stand for."""
    return _REPLACED.sub(lambda found: chr(0x10000 + ((ord(found[1]) - 0xE000) << 10) + ord(found[2]) - 0xE400), text)


def _private(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]  # an escaped backslash
    high, low = int(f"d{found[1]}", 16), int(f"d{found[2]}", 16)
    return f"\\u{high - 0xD800 + 0xE000:04x}\\u{low - 0xDC00 + 0xE400:04x}"
