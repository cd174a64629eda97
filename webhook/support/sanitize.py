"""User input in messages: shortened, and printable."""

import json
from typing import Any

from webhook.core.plain_text import printable

__all__ = ["printable", "value"]

_LONGEST = 60  # of a value


def value(given: Any) -> str:
    """Return a value as JSON, truncated."""
    text = json.dumps(given, ensure_ascii=False)
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
