"""Durations in options."""

from webhook.core.kubernetes.quantity import Duration
from webhook.errors import UserError

_US = 1_000_000
YEARS = "87600h"
"""Ten years: longer than any key or token should live."""
MONTH = "720h"
"""The longest duration of a policy, and so of its overrides."""


def microseconds(flag: str, text: str, longest: str = YEARS) -> int:
    """Parse a duration such as 1h; UserError names the flag."""
    try:
        found = Duration.parse(text).us
    except ValueError as error:
        raise UserError(f"{flag} {text!r}: {error}") from None  # it says what to write
    if found > Duration.parse(longest).us:
        raise UserError(f"{flag} {text!r}: longer than {longest}", f"write at most {longest}")
    return found


def seconds(flag: str, text: str, longest: str = YEARS) -> float:
    """Parse a duration such as 1h; UserError names the flag."""
    return microseconds(flag, text, longest) / _US


def whole_seconds(flag: str, text: str) -> int:
    """Parse a duration of at least a second, rounded down to whole seconds; UserError names the flag."""
    found = int(seconds(flag, text))
    if not found:
        raise UserError(f"{flag} {text!r}: shorter than a second", "write for example 1h")
    return found
