"""Tokens that are denied although they are good: by issuer and id, from a file that is read again when it changes.

Never by a token's text: one token has many (an ECDSA signature can be rewritten by anybody, and still verifies).
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from webhook.core.document.yaml.document_kind import DocumentKind
from webhook.errors import UserError
from webhook.support.strict_yaml import read_yaml, shown_only_as
from webhook.support.watched_file import Reloading

_FILE_BYTES_MAX = 512 * 1024
_ENTRIES_MAX = 4096
_TEXT_LENGTH_MAX = 512
_KEYS = ("iss", "jti", "until", "reason")
_US = 1_000_000
_REMEDY = "write a list of {iss: ISSUER, jti: TOKEN ID} with, if wanted, until (RFC 3339) and reason; [] for none"
_KIND = DocumentKind.of_keys("a list of tokens", "iss", "jti", remedy=_REMEDY)

Denied = Mapping[tuple[str, str], float]
"""Until when, in microseconds since the Unix epoch, by issuer and id."""


class RevocationFile(Reloading[Denied]):
    """Denials from a file."""

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        super().__init__(
            [path], _FILE_BYTES_MAX, lambda contents: parse_revocations(contents[0], str(path)), on_reading
        )

    def denies(self, issuer: str, jti: str, now_us: int) -> bool:
        return now_us < self.value.get((issuer, jti), 0)


def parse_revocations(content: bytes, name: str) -> Denied:
    """Read the list; UserError with every mistake, one a line. An empty file is one: it may be half written."""
    with shown_only_as(_KIND, content, name):
        return _parsed(content, name)


def _parsed(content: bytes, name: str) -> Denied:
    document = read_yaml(content, name)
    if not isinstance(document, list) or len(document) > _ENTRIES_MAX:
        raise UserError(f"{name}: must be a list of at most {_ENTRIES_MAX} tokens", _REMEDY)
    denied: dict[tuple[str, str], float] = {}
    mistakes = []
    for position, entry in enumerate(document):
        try:
            token, until_us = _entry(entry)
            denied[token] = max(until_us, denied.get(token, 0))
        except ValueError as error:
            mistakes.append(f"{name}: [{position}]{error}")
    if mistakes:
        raise UserError("\n".join(mistakes), _REMEDY)
    return denied


def _entry(entry: Any) -> tuple[tuple[str, str], float]:
    if not isinstance(entry, dict):
        raise ValueError(": must be a mapping with iss and jti")  # noqa: TRY004 - a document's fault
    for key in entry:
        if key not in _KEYS:
            raise ValueError(f".{str(key)[:80]}: unknown key: the keys are {', '.join(_KEYS)}")
    for name in ("iss", "jti"):
        value = entry.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= _TEXT_LENGTH_MAX:
            shown = "missing" if value is None else repr(value)[:80]
            raise ValueError(f".{name}: {shown}: must be a text as in the token: put it in quotes")
    return (entry["iss"], entry["jti"]), _until_us(entry.get("until"))


def _until_us(value: Any) -> float:
    """Read a time as YAML gives it, or as the text that JSON has."""
    if value is None:
        return float("inf")
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = None
    if not isinstance(moment, datetime):
        raise ValueError(f".until: {str(value)[:80]!r}: must be a time such as 2030-01-31T12:00:00Z")  # noqa: TRY004 - as above
    # PyYAML gives times with an offset as UTC without one.
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * _US
