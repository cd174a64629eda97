"""Lines of logs, and moments as the product writes them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec


def list_log_lines(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a log; other lines are left out."""
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(found, dict):
                yield found


def parse_moment(text: str) -> float:
    """Return a moment in UTC, as logs, records and pages write it."""
    return datetime.fromisoformat(text).timestamp()


def format_moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
