"""Durations and URLs in options."""

from urllib.parse import SplitResult, urlsplit

from webhook.core.kubernetes.quantity import Duration
from webhook.errors import UserError
from webhook.support.redaction import mask


def parse_base_url(flag: str, text: str, scheme: str = "https") -> SplitResult:
    """Parse the URL of a server: scheme, host and port only; UserError names the flag and quotes no password."""
    remedy = f"write {scheme}://HOST:PORT"
    try:
        url = urlsplit(text)
        is_whole = url.scheme == scheme and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:  # its text would quote parts of the URL
        raise UserError(f"{flag} {mask(text)!r}: its host and port cannot be read", remedy) from None
    if not is_whole or url.username is not None or url.query or url.fragment or "@" in url.netloc:
        raise UserError(f"{flag} {mask(text)!r}: must be {scheme}, with a host, and no user, query or fragment", remedy)
    return url


_US = 1_000_000
YEARS = "87600h"
"""Ten years: longer than any key or token should live."""
MONTH = "720h"
"""The longest duration of a policy, and so of its overrides."""


def parse_microseconds(flag: str, text: str, longest: str = YEARS) -> int:
    """Parse a duration such as 1h; UserError names the flag."""
    try:
        found = Duration.parse(text).us
    except ValueError as error:
        raise UserError(f"{flag} {text!r}: {error}") from None  # it says what to write
    if found > Duration.parse(longest).us:
        raise UserError(f"{flag} {text!r}: longer than {longest}", f"write at most {longest}")
    return found


def parse_seconds(flag: str, text: str, longest: str = YEARS) -> float:
    """Parse a duration such as 1h; UserError names the flag."""
    return parse_microseconds(flag, text, longest) / _US


def parse_whole_seconds(flag: str, text: str) -> int:
    """Parse a duration of at least a second, rounded down to whole seconds; UserError names the flag."""
    found = int(parse_seconds(flag, text))
    if not found:
        raise UserError(f"{flag} {text!r}: shorter than a second", "write for example 1h")
    return found
