"""Search of decision records: those of this server, and, with a store that replicas share, those of all."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from webhook.core.reporting.decision_query import DecisionQuery, parse_milliseconds
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.record_codec import EncodedRecord, decode_shared_head, decode_shared_record
from webhook.decisions.policy_documents import PolicyDocuments
from webhook.errors import StoreUnavailableError
from webhook.ports import SharedDecisions, SharedPage

_TURN_RECORDS_MAX = 100
"""Records that are read per turn of the event loop. More would delay reviews."""
_PAGE_RECORDS_MAX = 200
_SECONDS_MAX = 3.0
_LATE_MS = 60_000
"""Records are written to the store within this time, unless it did not answer for longer."""
_AHEAD_MS = 5_000
"""No replica's clock is further ahead of the store's."""


_Read = Callable[[], DecisionRecord]
"""Reads a record that was found."""


class OwnRecords(Protocol):
    """The records of this server, such as a `DecisionRing`."""

    def newest_first(self) -> Iterable[EncodedRecord]: ...


class FoundDecisions(NamedTuple):
    """Records, newest first. `next_before` begins the next page, "" if there is none.

    `error` is why the records of other servers, or some of them, are missing.
    """

    records: list[DecisionRecord]
    next_before: str
    error: str = ""


class DecisionSearch:
    """Reads the ring and the shared records. Bounded in time: an answer may say that there are more."""

    def __init__(
        self,
        ring: OwnRecords,
        documents: PolicyDocuments,
        shared: SharedDecisions | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._ring = ring
        self._documents = documents
        self._shared = shared
        self._now = now or (lambda: asyncio.get_running_loop().time())

    async def find(self, query: DecisionQuery) -> FoundDecisions:
        """Return the newest records that match."""
        found: dict[str, _Read] = {}
        await self._find_own(query, found)
        error = ""
        if self._shared is not None:
            try:
                error = await self._find_shared(self._shared, query, found)
            except StoreUnavailableError as failure:
                error = f"only decisions of this server: {failure}"
        newest = sorted(found, reverse=True)
        kept = newest[: query.limit]
        has_more = len(newest) > len(kept) or len(kept) == query.limit
        records = await _read_all([found[record_id] for record_id in kept])
        return FoundDecisions(records, kept[-1] if has_more and kept else "", error)

    async def policy(self, policy_hash: str) -> bytes | None:
        """Return a policy document. StoreUnavailableError: it may be in the store, which does not answer."""
        found = self._documents.get(policy_hash)
        if found is None and self._shared is not None:
            found = await self._shared.read_policy(policy_hash)
        return found

    async def _find_own(self, query: DecisionQuery, found: dict[str, _Read]) -> None:
        for read, record in enumerate(self._ring.newest_first(), 1):
            if read % _TURN_RECORDS_MAX == 0:
                await asyncio.sleep(0)
            if query.matches(head := record.head):
                found[head.own.id] = record.read
            if len(found) > query.limit:
                return

    async def _find_shared(self, shared: SharedDecisions, query: DecisionQuery, found: dict[str, _Read]) -> str:
        """Add matching records until no older one can be among the newest; return why it stopped earlier, else ""."""
        begin = str(parse_milliseconds(query.before) + _LATE_MS) if query.before else ""
        ends_at = self._now() + _SECONDS_MAX
        while True:
            page = await shared.read_page(begin, _PAGE_RECORDS_MAX)
            found.update(_find_matching(query, page))
            await asyncio.sleep(0)
            if page.next_page is None:
                return ""
            # A record is older than its writing, except for differences between clocks.
            written_ms = page.records[-1].written_ms + _AHEAD_MS
            if written_ms < max(query.since_ms, _find_oldest_wanted_ms(found, query.limit)):
                return ""
            if self._now() > ends_at:
                return f"not all decisions were read within {_SECONDS_MAX:g} s: ask for fewer, or later ones"
            begin = page.next_page


def _find_matching(query: DecisionQuery, page: SharedPage) -> Iterator[tuple[str, _Read]]:
    for shared in page.records:
        with suppress(msgspec.MsgspecError):  # written by another version, or by another program
            if query.matches(head := decode_shared_head(shared.record)):
                yield head.own.id, partial(decode_shared_record, shared.record)


async def _read_all(found: Iterable[_Read]) -> list[DecisionRecord]:
    records = []
    for number, read in enumerate(found, 1):
        with suppress(ValueError):  # MsgspecError is one, too
            records.append(read())
        if number % _TURN_RECORDS_MAX == 0:
            await asyncio.sleep(0)
    return records


def _find_oldest_wanted_ms(found: Iterable[str], limit: int) -> int:
    newest = sorted(found, reverse=True)
    return parse_milliseconds(newest[limit - 1]) if len(newest) >= limit else 0
