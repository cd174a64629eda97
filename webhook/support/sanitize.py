"""User input in messages: shortened, and printable."""

import json
from typing import Any

from webhook.core.plain_text import escape_line

__all__ = ["escape_line", "quote_value"]

_CHARACTERS_MAX = 60  # of a value


def quote_value(given: Any) -> str:
    """Return a value as JSON, truncated."""
    text = json.dumps(given, ensure_ascii=False)
    return escape_line(text if len(text) <= _CHARACTERS_MAX else f"{text[:_CHARACTERS_MAX]}...")
