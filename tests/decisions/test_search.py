"""A search merges this server's records with those of all replicas, newest first, in pages."""

from tests.decisions.records import NOW_MS, MemoryRecords, encode_record
from webhook.core.admission.decision import Verdict
from webhook.core.reporting.decision_query import DecisionQuery
from webhook.core.reporting.decision_record import RecordedController
from webhook.core.reporting.record_codec import EncodedRecord
from webhook.decisions.policy_documents import PolicyDocuments
from webhook.decisions.search import DecisionSearch, FoundDecisions


class Kept:
    """A ring with these records, oldest first."""

    def __init__(self, *records: EncodedRecord) -> None:
        self.records = records

    def newest_first(self) -> list[EncodedRecord]:
        return list(self.records[::-1])


def build_search(*own: EncodedRecord, shared: MemoryRecords | None = None) -> DecisionSearch:
    return DecisionSearch(Kept(*own), PolicyDocuments(), shared)


def list_names(found: FoundDecisions) -> list[str]:
    return [record.name for record in found.records]


async def test_conditions_must_all_be_met() -> None:
    owner = RecordedController("ReplicaSet", "web-7d9c", "r1")
    search = build_search(
        encode_record(NOW_MS, name="a", service="web", decision=Verdict.DENY),
        encode_record(NOW_MS + 1, name="b", service="web", uid="u1", owner=owner),
        encode_record(NOW_MS + 2, name="c", service="api", namespace="payments"),
    )
    for query, expected in (
        (DecisionQuery(), "cba"),
        (DecisionQuery(service="web"), "ba"),
        (DecisionQuery(service="web", denied=True), "a"),
        (DecisionQuery(namespace="payments"), "c"),
        (DecisionQuery(name="b"), "b"),
        (DecisionQuery(uid="u1"), "b"),
        (DecisionQuery(owner="web-7d9c"), "b"),
        (DecisionQuery(owner="r1"), "b"),
        (DecisionQuery(since_ms=NOW_MS + 2), "c"),
        (DecisionQuery(uid="u2"), ""),
    ):
        assert "".join(list_names(await search.find(query))) == expected, query


async def test_pages_have_all_records_once() -> None:
    shared = MemoryRecords()
    own = [encode_record(NOW_MS + number, "a", name=f"own-{number}") for number in range(0, 700, 2)]
    for number in range(700):
        foreign = encode_record(NOW_MS + number, "b", name=f"foreign-{number}")
        shared.add(NOW_MS + number + 300, own[number // 2] if number % 2 == 0 else foreign)
    search, found, before = build_search(*own, shared=shared), list[str](), ""
    while True:
        page = await search.find(DecisionQuery(before=before, limit=90))
        found += list_names(page)
        if not page.next_before:
            break
        before = page.next_before
    expected = [f"own-{number}" if number % 2 == 0 else f"foreign-{number}" for number in range(700)]
    assert found == expected[::-1]


async def test_record_that_was_written_late_is_in_its_place() -> None:
    shared = MemoryRecords()
    for number in range(1000):
        shared.add(NOW_MS + 100 * number, encode_record(NOW_MS + 100 * number, "b", name=str(number)))
    shared.records[-1:] = [shared.records[-1]._replace(record=encode_record(NOW_MS + 99_650, "c", name="late").shared)]
    found = await build_search(shared=shared).find(DecisionQuery(limit=5))
    assert list_names(found) == ["998", "997", "late", "996", "995"]


async def test_search_reads_no_more_of_the_store_than_it_needs() -> None:
    shared = MemoryRecords()
    for number in range(50_000):
        shared.add(NOW_MS + 1000 * number, encode_record(NOW_MS + 1000 * number, "b", name=str(number)))
    await build_search(shared=shared).find(DecisionQuery(limit=10))
    assert shared.pages == 1
    await build_search(shared=shared).find(DecisionQuery(service="none", since_ms=NOW_MS + 49_500_000))
    assert shared.pages < 6


async def test_search_ends_in_time_and_says_so() -> None:
    shared = MemoryRecords()
    for number in range(1000):
        shared.add(NOW_MS, encode_record(NOW_MS + number, "b"))
    times = iter(range(100))
    search = DecisionSearch(Kept(), PolicyDocuments(), shared, lambda: float(next(times)))
    found = await search.find(DecisionQuery(service="none"))
    assert "not all decisions were read" in found.error


async def test_without_the_store_own_records_are_found() -> None:
    shared = MemoryRecords()
    shared.error = "timeout: no answer"
    found = await build_search(encode_record(NOW_MS, name="own"), shared=shared).find(DecisionQuery())
    assert list_names(found) == ["own"]
    assert found.error == "only decisions of this server: timeout: no answer"


async def test_unreadable_shared_record_is_left_out() -> None:
    shared = MemoryRecords()
    await shared.append([b"{", b"{}", encode_record(NOW_MS, name="good").shared])
    assert list_names(await build_search(shared=shared).find(DecisionQuery())) == ["good"]


async def test_policy_of_another_replica_is_found_in_the_store() -> None:
    shared = MemoryRecords()
    await shared.keep_policy("9640bfdb9640bfdb", b"kind: Policy")
    assert await build_search(shared=shared).policy("9640bfdb9640bfdb") == b"kind: Policy"
    assert await build_search().policy("9640bfdb9640bfdb") is None
