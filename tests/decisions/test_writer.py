"""The writer loses no record while the store is away for a short time, and drops and counts beyond its bound."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.decisions.records import NOW_MS, MemoryRecords, encode_record
from tests.timeouts import HANG_SECONDS
from webhook.decisions import writer
from webhook.decisions.policy_documents import PolicyDocuments
from webhook.decisions.writer import DecisionWriter
from webhook.ports import WatchReports


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not is_so():  # noqa: ASYNC110 - a task of its own makes it so
            await asyncio.sleep(0.001)


class Written:
    """A writer, its store and its reports."""

    def __init__(self) -> None:
        self.shared, self.documents = MemoryRecords(), PolicyDocuments()
        self.told: list[str] = []
        reports = WatchReports(int, self.told.append, lambda reason: self.told.append(f"over: {reason}"))
        self.writer = DecisionWriter(self.shared, self.documents, reports)


async def test_records_are_written_in_order() -> None:
    written = Written()
    records = [encode_record(NOW_MS + number) for number in range(250)]
    for record in records:
        written.writer.put(record)
    await written.writer.flush()
    assert [record.record for record in written.shared.records] == [record.shared for record in records]
    assert written.writer.count_records() == {"written": 250, "dropped": 0}


async def test_records_wait_until_the_store_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE_SECONDS", "_FIRST_PAUSE_SECONDS", "_PAUSE_SECONDS_MAX"):
        monkeypatch.setattr(writer, name, 0.001)
    written = Written()
    written.shared.error = "unreachable: nothing listens"
    written.writer.put(encode_record(NOW_MS))
    running = asyncio.create_task(written.writer.run())
    await wait_until(lambda: written.writer.error == "unreachable: nothing listens")
    written.shared.error = ""
    await wait_until(lambda: not written.writer.error)
    running.cancel()
    assert written.told == ["unreachable: nothing listens", "over: unreachable: nothing listens"]
    assert written.writer.count_records() == {"written": 1, "dropped": 0}


async def test_records_beyond_the_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "WAITING_MAX", 3)
    written = Written()
    for number in range(5):
        written.writer.put(encode_record(NOW_MS + number))
    await written.writer.flush()
    assert written.writer.count_records() == {"written": 3, "dropped": 2}


async def test_records_that_redis_does_not_permit_are_dropped_at_once() -> None:
    written = Written()
    written.shared.error = "authentication: this user has no permissions to run the 'xadd' command"
    written.writer.put(encode_record(NOW_MS))
    await written.writer.flush()
    assert written.writer.count_records() == {"written": 0, "dropped": 1}
    await written.writer.flush()
    assert written.writer.error == written.shared.error, "it stays until a record is written"
    written.shared.error = ""
    written.writer.put(encode_record(NOW_MS))
    await written.writer.flush()
    assert (written.writer.error, written.writer.count_records()) == ("", {"written": 1, "dropped": 1})


async def test_policy_documents_are_written_before_records() -> None:
    written = Written()
    written.documents.keep("9640bfdb9640bfdb", b"kind: Policy")
    written.writer.put(encode_record(NOW_MS))
    await written.writer.flush()
    assert written.shared.policies == {"9640bfdb9640bfdb": b"kind: Policy"}


def test_policy_documents_are_bounded() -> None:
    documents = PolicyDocuments()
    for number in range(100):
        documents.keep(f"{number:016d}", b"x" * (1 << 20))
    assert len(documents.list_hashes()) == 8
    documents.keep("large", b"x" * (20 << 20))
    assert documents.list_hashes() == ("large",)


async def test_large_record_is_dropped_and_counted() -> None:
    written = Written()
    records = [encode_record(NOW_MS, user="u" * 70_000), encode_record(NOW_MS + 1)]
    for record in records:
        written.writer.put(record)
    await written.writer.flush()
    assert [record.record for record in written.shared.records] == [records[1].shared]
    assert written.writer.count_records() == {"written": 1, "dropped": 1}


async def test_waiting_records_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE_SECONDS", "_FIRST_PAUSE_SECONDS", "_PAUSE_SECONDS_MAX"):
        monkeypatch.setattr(writer, name, 0.001)
    monkeypatch.setattr(writer, "WAITING_BYTES_MAX", 10_000)
    written = Written()
    written.shared.error = "unreachable: nothing listens"
    for number in range(30):
        written.writer.put(replace(encode_record(NOW_MS + number), size=1_000))
    running = asyncio.create_task(written.writer.run())
    await wait_until(lambda: written.writer.count_records()["dropped"] == 20)
    written.shared.error = ""
    await wait_until(lambda: written.writer.count_records()["written"] == 10)
    running.cancel()
