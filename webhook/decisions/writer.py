"""Writer of decision records to the store that replicas share: a bounded queue, and a task that writes batches."""

import asyncio
from collections import deque
from collections.abc import Mapping

from webhook.core.reporting.record_codec import EncodedRecord
from webhook.decisions.policy_documents import PolicyDocuments
from webhook.errors import StoreFailure, StoreFault, StoreUnavailableError
from webhook.ports import SharedDecisions, WatchReports
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition

WAITING_MAX = 10_000
WAITING_BYTES_MAX = 24 << 20
"""Limits of waiting records, for instance while the store does not answer; further ones are dropped."""
RECORD_BYTES_MAX = 64 * 1024
"""A larger record is dropped: what Podgate records of a Pod is far below it."""
_BATCH_RECORDS_MAX = 100
_PAUSE_SECONDS = 0.25
_BATCH_SECONDS = 0.1
"""Pause between full batches: it bounds the cost of a flood of records here and in Redis."""
_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.5, 5.0
_LAST_SECONDS = 2.0
_REFRESH_SECONDS = 600.0
"""How often policy documents are written again: they expire in the store, and it may lose them."""


class DecisionWriter:
    """Writes what `put` receives. A batch is tried again, except if the store has refused it."""

    def __init__(self, shared: SharedDecisions, documents: PolicyDocuments, reports: WatchReports) -> None:
        self._shared = shared
        self._documents = documents
        self._waiting: deque[EncodedRecord] = deque()
        self._written = self._dropped = 0
        self._stored: dict[str, float] = {}
        """When each policy document was stored, by the loop's clock."""
        self._failure = Condition[StoreFailure](
            lambda failure: reports.on_trouble(str(failure)),
            lambda failure: reports.on_over(str(failure)),
            key=lambda failure: failure.fault,
        )
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS_MAX)
        self.error = ""
        """Why nothing is written now; a missing right stays the reason until a record is written."""
        self._is_forbidden = False

    def put(self, record: EncodedRecord) -> None:
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(record)
        else:
            self._dropped += 1

    def count_records(self) -> Mapping[str, int]:
        """Return the number of records by result: written or dropped."""
        return {"written": self._written, "dropped": self._dropped}

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            has_written = await self._write_all()
            await self._pause(_PAUSE_SECONDS if has_written else self._backoff.next_seconds())

    async def _pause(self, seconds: float) -> None:
        """Wait, and keep the waiting records within their bytes meanwhile: `put` only counts them."""
        while seconds > 0:
            await asyncio.sleep(min(seconds, _FIRST_PAUSE_SECONDS))
            seconds -= _FIRST_PAUSE_SECONDS
            self._drop_beyond_bytes()

    async def flush(self) -> None:
        """Write the waiting records at shutdown, for at most a moment."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._write_all(pause_seconds=0.0)
        except TimeoutError:
            pass
        self._drop_all()

    async def _write_all(self, pause_seconds: float = _BATCH_SECONDS) -> bool:
        """Return whether everything is written."""
        if self._is_forbidden and not self._waiting:
            return False
        try:
            await self._write_documents()
            while self._waiting:
                await self._write_batch()
                self._drop_beyond_bytes()
                if self._waiting:
                    await asyncio.sleep(pause_seconds)
        except StoreUnavailableError as error:
            self.error = str(error)
            self._failure.enter(error.failure)
            return False
        self.error = ""
        self._failure.leave()
        self._backoff.reset()
        return True

    async def _write_batch(self) -> None:
        count = min(len(self._waiting), _BATCH_RECORDS_MAX)
        batch = [self._waiting[index] for index in range(count)]
        records = [packed for record in batch if len(packed := record.shared) <= RECORD_BYTES_MAX]
        try:
            if records:
                await self._shared.append(records)
        except StoreUnavailableError as error:
            self._is_forbidden = error.failure.fault is StoreFault.AUTHENTICATION
            if self._is_forbidden:  # later attempts fail, too
                self._drop_all()
            raise
        self._is_forbidden = False
        for _ in range(count):
            self._waiting.popleft()
        self._written += len(records)
        self._dropped += count - len(records)

    def _drop_beyond_bytes(self) -> None:
        """Drop the newest records, as `put` does."""
        left = WAITING_BYTES_MAX
        for kept, record in enumerate(self._waiting):
            left -= record.size
            if left < 0:
                self._dropped += len(self._waiting) - kept
                while len(self._waiting) > kept:
                    self._waiting.pop()
                return

    def _drop_all(self) -> None:
        self._dropped += len(self._waiting)
        self._waiting.clear()

    async def _write_documents(self) -> None:
        now = asyncio.get_running_loop().time()
        for policy_hash in self._documents.list_hashes():
            document = self._documents.get(policy_hash)
            if document is not None and now - self._stored.get(policy_hash, -_REFRESH_SECONDS) >= _REFRESH_SECONDS:
                await self._shared.keep_policy(policy_hash, document)
                self._stored[policy_hash] = now
        self._stored = {name: at for name, at in self._stored.items() if self._documents.get(name) is not None}
