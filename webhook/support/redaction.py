"""Redaction of text from users and libraries: masks passwords in URLs, and pasted secrets."""

import re
from pathlib import Path

HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,40}://)([^\s'\"<>]+)")
_QUERY = re.compile(r"\?[\w.%+-]+=[^\s'\"<>)]*")
_PASTED = re.compile(r"[\r\n]|-----BEGIN|eyJ[A-Za-z0-9_-]{8}")
"""A key, a token or a whole file pasted in place of a word."""
_SHOWN_CHARACTERS_MAX = 80
_FILE_NAME = re.compile(r"[\w.-]{1,40}\.(crt|pem|key|json|jsonl|ya?ml|txt|conf|cfg)", re.ASCII)


def mask(text: str) -> str:
    """Return a URL, valid or not, with `***` in place of everything that may be a password."""
    if _PASTED.search(text):
        return HIDDEN
    found = _SCHEME.match(text)
    scheme = found[0] if found else ""
    rest = re.sub(r".*@", f"{HIDDEN}@", text[len(scheme) :], flags=re.DOTALL)
    authority, slash, path = rest.partition("/")
    # After a colon, anything but a port is a password without its host. Anything may follow a question mark.
    authority = re.sub(r":(?!\d{1,5}(,|\?|$))(?![0-9a-fA-F:]*\])[^,]*", f":{HIDDEN}", authority)
    rest = re.sub(r"[?#](?!db=\d+$).*", f"?{HIDDEN}", authority + slash + path, flags=re.DOTALL)
    return scheme + rest


def mask_credentials(text: str) -> str:
    """Return a library's message with every URL and query masked."""
    if "://" in text:
        text = _URL.sub(lambda found: mask(found[0]), text)
    return _QUERY.sub(f"?{HIDDEN}", text) if "?" in text else text


def redact_value(text: str) -> str:
    """Return the value of a setting for its error message: one short line, without possible secrets."""
    if _PASTED.search(text) or "@" in text or "://" in text:
        return mask(text)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def redact_path(text: str) -> str:
    """Return a text if it looks like the path of a file, otherwise `***`: it may be the file's content instead."""
    try:
        is_path = not text or _FILE_NAME.fullmatch(text) or ("/" in text and Path(text).parent.is_dir())
    except (OSError, ValueError):
        is_path = False
    return text if is_path and not _PASTED.search(text) else HIDDEN
