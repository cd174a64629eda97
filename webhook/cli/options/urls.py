"""URLs in options."""

from urllib.parse import SplitResult, urlsplit

from webhook.errors import UserError
from webhook.support.redaction import masked


def base_url(flag: str, text: str, scheme: str = "https") -> SplitResult:
    """Parse the URL of a server: scheme, host and port only; UserError names the flag and quotes no password."""
    remedy = f"write {scheme}://HOST:PORT"
    try:
        url = urlsplit(text)
        is_whole = url.scheme == scheme and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:  # its text would quote parts of the URL
        raise UserError(f"{flag} {masked(text)!r}: its host and port cannot be read", remedy) from None
    if not is_whole or url.username is not None or url.query or url.fragment or "@" in url.netloc:
        raise UserError(
            f"{flag} {masked(text)!r}: must be {scheme}, with a host, and no user, query or fragment", remedy
        )
    return url
