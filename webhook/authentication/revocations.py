"""Revocation list: valid tokens to be denied, by issuer and id, from a watched file.

Tokens are not revoked by their text: an ECDSA signature can be rewritten by anyone so that it still verifies.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from webhook.authentication.documents import convert_document_errors, read_list
from webhook.core.document.schema_problems import find_schema_problems
from webhook.core.document.yaml.document_kind import DocumentKind
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import DocumentError, Problem
from webhook.support.watched_file import WatchedFile

_FILE_BYTES_MAX = 512 * 1024
_ENTRIES_MAX = 4096
_US = 1_000_000
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?")
_REMEDY = "write a list of {iss: ISSUER, jti: TOKEN ID} with, if wanted, until (RFC 3339) and reason; [] for none"
_KIND = DocumentKind.from_keys("a list of tokens", "iss", "jti", remedy=_REMEDY)
_Text = Annotated[str, Meta(min_length=1, max_length=512)]

Revocations = Mapping[tuple[str, str], float]
"""End of the revocation in microseconds since the Unix epoch, by issuer and token id."""


class _Revocation(Struct):
    """One entry as written. `until` is checked by `_parse_until_us`; `reason` is for human readers."""

    iss: _Text
    jti: _Text
    until: Any = None
    reason: Any = None


class RevocationFile(WatchedFile[Revocations]):
    """Revocations from a file, read again when it changes."""

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        super().__init__(
            [path], _FILE_BYTES_MAX, lambda contents: parse_revocations(contents[0], str(path)), on_reading
        )

    def is_revoked(self, issuer: str, jti: str, now_us: int) -> bool:
        return now_us < self.value.get((issuer, jti), 0)


def parse_revocations(content: bytes, name: str) -> Revocations:
    """Parse the list; UserError lists every problem, one per line. An empty file is an error: it may be incomplete."""
    with convert_document_errors(name, content, _KIND):
        root, problems = read_list(content, _REMEDY)
        assert isinstance(root.value, list)  # noqa: S101  read_list has checked it
        if len(root.value) > _ENTRIES_MAX:
            problems.append(root.build_problem(f"{len(root.value)} entries", f"write at most {_ENTRIES_MAX}"))
            raise DocumentError(problems)
        for entry in root.value:
            problems += _find_problems(entry)
        if problems:
            raise DocumentError(problems)
        revoked: dict[tuple[str, str], float] = {}
        for entry in root.value:
            token = (str(entry.child("iss").value), str(entry.child("jti").value))
            revoked[token] = max(_parse_until_us(entry), revoked.get(token, 0))
        return revoked


def _find_problems(entry: Node) -> Iterator[Problem]:
    if not isinstance(entry.value, dict):
        yield entry.build_problem("not a mapping", "write {iss: ISSUER, jti: TOKEN ID}")
        return
    for mistake in find_schema_problems(entry, _Revocation):
        yield mistake.problem
    try:
        _parse_until_us(entry)
    except ValueError:
        yield entry.child("until").build_problem("not a time", "write one such as 2030-01-31T12:00:00Z")


def _parse_until_us(entry: Node) -> float:
    """Return the end of a revocation; ValueError if it is not a time. A time without an offset is in UTC."""
    until = entry.value.get("until") if isinstance(entry.value, dict) else None
    if until is None or until.value is None:
        return float("inf")
    if not isinstance(until.value, str) or (_DATE.fullmatch(until.text) and not until.quoted):
        raise ValueError(until.text)
    moment = datetime.fromisoformat(until.value)
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * _US
