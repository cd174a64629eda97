"""Durations in options."""

from webhook.core.kubernetes.quantity import Duration
from webhook.errors import UserError

_US = 1_000_000


def seconds(flag: str, text: str) -> float:
    """Parse a duration such as 1h; UserError names the flag."""
    try:
        return Duration.parse(text).us / _US
    except ValueError as error:
        raise UserError(f"{flag} {text!r}: {error}") from None  # it says what to write


def whole_seconds(flag: str, text: str) -> int:
    """Parse a duration of at least a second, rounded down to whole seconds; UserError names the flag."""
    found = int(seconds(flag, text))
    if not found:
        raise UserError(f"{flag} {text!r}: shorter than a second", "write for example 1h")
    return found
