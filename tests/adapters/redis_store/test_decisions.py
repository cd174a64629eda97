"""Decision records in a real Redis: a bounded stream, pages newest first, policies that expire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.decisions.records import NOW_MS, encode_record
from tests.redis_servers import RedisCluster, RedisServer
from webhook.adapters.redis_store import RedisDecisions, open_transport
from webhook.decisions.policy_documents import PolicyDocuments
from webhook.decisions.writer import DecisionWriter
from webhook.errors import StoreUnavailableError
from webhook.ports import WatchReports

pytest_plugins = ("tests.redis_servers.fixtures",)

STREAM = "podgate:v1:records:decisions"
POLICY = "podgate:v1:records:policy:9640bfdb9640bfdb"


@asynccontextmanager
async def open_decisions(url: str) -> AsyncIterator[RedisDecisions]:
    transport = open_transport(url)
    decisions = RedisDecisions(transport, "records", 100)
    try:
        yield decisions
    finally:
        await decisions.close()
        await transport.close()


@pytest.fixture
async def decisions(redis_server: RedisServer) -> AsyncIterator[RedisDecisions]:
    redis_server.cli("DEL", STREAM, POLICY)
    async with open_decisions(f"redis://127.0.0.1:{redis_server.port}/0") as found:
        yield found


def records(first: int, count: int) -> list[bytes]:
    return [encode_record(NOW_MS + number, name=f"web-{number}").shared for number in range(first, first + count)]


async def test_pages_are_newest_first(decisions: RedisDecisions) -> None:
    written = records(0, 5)
    await decisions.append(written)
    first = await decisions.read_page("", 3)
    assert [record.record for record in first.records] == written[:1:-1]
    assert first.next_page is not None
    second = await decisions.read_page(first.next_page, 3)
    assert [record.record for record in second.records] == written[1::-1]
    assert second.next_page is None
    begin = str(first.records[0].written_ms)
    assert [record.record for record in (await decisions.read_page(begin, 1)).records] == written[4:]


async def test_stream_is_bounded(decisions: RedisDecisions, redis_server: RedisServer) -> None:
    for batch in range(20):
        await decisions.append(records(100 * batch, 100))
    length = redis_server.cli("XLEN", STREAM)
    assert 100 <= length < 400
    newest = (await decisions.read_page("", 1)).records[0].record
    assert b"web-1999" in newest


async def test_stream_of_large_records_is_shorter(decisions: RedisDecisions, redis_server: RedisServer) -> None:
    large = [encode_record(NOW_MS, user="u" * 20_000).shared] * 10
    for _ in range(10):
        await decisions.append(large)
    assert redis_server.cli("XLEN", STREAM) <= 10, "100 records, or 1 KiB for each"
    for batch in range(6):
        await decisions.append(records(100 * batch, 100))
    assert redis_server.cli("XLEN", STREAM) >= 100


async def test_records_that_could_not_be_written_do_not_shorten_the_stream(
    decisions: RedisDecisions, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await decisions.append(records(0, 100))
    large = [encode_record(NOW_MS, user="u" * 7_000).shared] * 5

    async def refuse(*_: object) -> None:
        raise ConnectionRefusedError(111, "refused")

    with monkeypatch.context() as outage:
        outage.setattr(decisions._connection, "ask", refuse)
        for _ in range(50):
            with pytest.raises(StoreUnavailableError):
                await decisions.append(large)
    await decisions.append(large)
    assert redis_server.cli("XLEN", STREAM) >= 100


async def test_policy_is_kept_and_expires(decisions: RedisDecisions, redis_server: RedisServer) -> None:
    assert await decisions.read_policy("9640bfdb9640bfdb") is None
    await decisions.keep_policy("9640bfdb9640bfdb", b"kind: Policy")
    assert await decisions.read_policy("9640bfdb9640bfdb") == b"kind: Policy"
    assert 6 * 86_400 < redis_server.cli("TTL", POLICY) <= 7 * 86_400


async def test_cluster_has_the_stream_and_each_policy_on_some_node(redis_cluster: RedisCluster) -> None:
    hashes = [f"{number:016x}" for number in range(12)]  # on every master
    async with open_decisions(redis_cluster.url) as decisions:
        for policy_hash in hashes:
            await decisions.keep_policy(policy_hash, policy_hash.encode())
        await asyncio.gather(*(decisions.append(records(number, 1)) for number in range(3)))
        assert [await decisions.read_policy(policy_hash) for policy_hash in hashes] == [
            policy_hash.encode() for policy_hash in hashes
        ]
        assert len((await decisions.read_page("", 10)).records) >= 3


@pytest.mark.usefixtures("decisions")
async def test_missing_right_is_an_authentication_error(redis_server: RedisServer) -> None:
    redis_server.cli("ACL", "SETUSER", "without", "on", ">secret", "~*", "+@all", "-xadd")
    async with open_decisions(f"redis://without:secret@127.0.0.1:{redis_server.port}/0") as limited:
        with pytest.raises(StoreUnavailableError, match=r"^authentication: "):
            await limited.append(records(0, 1))
        assert (await limited.read_page("", 1)).records == []
    redis_server.cli("ACL", "DELUSER", "without")


async def test_user_without_the_right_to_the_stream_is_told(redis_server: RedisServer) -> None:
    redis_server.cli("ACL", "SETUSER", "no-stream", "on", ">secret", "~*", "&*", "+@all", "-xadd")
    troubles: list[str] = []
    async with open_decisions(redis_server.url.replace("redis://", "redis://no-stream:secret@")) as decisions:
        writer = DecisionWriter(decisions, PolicyDocuments(), WatchReports(int, troubles.append, str))
        writer.put(encode_record(NOW_MS))
        await writer.flush()
    assert writer.error.startswith("authentication: ")
    assert (troubles, writer.count_records()) == ([writer.error], {"written": 0, "dropped": 1})
