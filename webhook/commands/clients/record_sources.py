"""Sources of decision records: a file, or the decision port of a server."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.errors import NoSuchPageError, UserError
from webhook.support.input_files import read_content

_LIMIT = 500
_decision = msgspec.json.Decoder(DecisionRecord)


class RecordsQuery(Struct, frozen=True, omit_defaults=True):
    """Conditions on records; all records meet an empty one. `owner` is the controller's name or uid, `before` an id."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    owner: str = ""
    before: str = ""

    def matches(self, record: DecisionRecord) -> bool:
        owner = record.owner
        return (
            (not self.namespace or record.namespace == self.namespace)
            and (not self.name or record.name == self.name)
            and (not self.uid or record.uid == self.uid)
            and (not self.owner or (owner is not None and self.owner in {owner.name, owner.uid}))
            and (not self.before or record.id < self.before)
        )


class RecordSource(Protocol):
    """Records, newest first, and the documents of the policies that made them."""

    async def find_records(self, query: RecordsQuery) -> Sequence[DecisionRecord]: ...
    async def read_policy(self, policy_hash: str) -> bytes | None:
        """Return a document, None if it is no longer kept. UserError: the source cannot be read, or has no policies."""
        ...


class FileRecords:
    """Records of a file: a JSON line each, or the answer of the decision port. `-` is standard input."""

    def __init__(self, path: Path) -> None:
        self._records = sorted(_read(path), key=lambda record: record.id, reverse=True)

    async def find_records(self, query: RecordsQuery) -> Sequence[DecisionRecord]:
        return [record for record in self._records if query.matches(record)]

    async def read_policy(self, _policy_hash: str) -> bytes | None:
        raise UserError("records in a file come without their policy", "give it with --policy")


class _Page(Struct, frozen=True):
    decisions: tuple[DecisionRecord, ...] = ()
    error: str | None = None


_page = msgspec.json.Decoder(_Page)


def _read(path: Path) -> tuple[DecisionRecord, ...]:
    raw = read_content(path, "give a file of decision records: podgate decisions -o json")
    found: list[DecisionRecord] = []
    if raw.lstrip()[:1] == b"{" and b'"decisions"' in raw[:200]:
        return _decode_page(raw, path)
    if raw.lstrip()[:1] == b"[":
        return _decode_page(b'{"decisions":' + raw + b"}", path)
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(_decision.decode(line))
        except UNREADABLE_JSON as error:
            raise UserError(f"{path}:{number}: no decision record: {error}", _REMEDY) from None
    return tuple(found)


_REMEDY = "give what podgate decisions -o json prints"


def _decode_page(raw: bytes, path: Path) -> tuple[DecisionRecord, ...]:
    try:
        return _page.decode(raw).decisions
    except UNREADABLE_JSON as error:
        raise UserError(f"{path}: no decision records: {error}", _REMEDY) from None


class ServerRecords:
    """Records of a server's decision port, reached by `get`, which returns the body at a path."""

    def __init__(self, get: Callable[[str], Awaitable[bytes]], name: str) -> None:
        self._get = get
        self._name = name
        self.error = ""
        """Why the answers may be incomplete, such as a store that does not answer."""

    async def find_records(self, query: RecordsQuery) -> Sequence[DecisionRecord]:
        parameters = {**msgspec.to_builtins(query), "limit": _LIMIT}
        body = await self._get(f"/api/v1/decisions?{urlencode(parameters)}")
        try:
            page = _page.decode(body)
        except UNREADABLE_JSON as error:
            raise UserError(
                f"{self._name}: answers, but not as Podgate's decision port: {error}",
                "give --server the URL of the decision port (--decision-listen) of podgate serve",
            ) from None
        self.error = page.error or self.error
        return page.decisions

    async def read_policy(self, policy_hash: str) -> bytes | None:
        try:
            return await self._get(f"/api/v1/policies/{policy_hash}")
        except NoSuchPageError:
            return None
