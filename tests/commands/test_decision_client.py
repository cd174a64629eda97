"""The client of the decision port reads whole pages, and yields each new record once."""

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from tests.decisions.records import NOW_MS, encode_record
from tests.timeouts import HANG_SECONDS
from webhook.commands.clients import decision_client
from webhook.commands.clients.decision_client import DecisionClient
from webhook.core.reporting.decision_query import DecisionQuery
from webhook.core.reporting.record_codec import EncodedRecord
from webhook.decisions.policy_documents import PolicyDocuments
from webhook.decisions.search import DecisionSearch
from webhook.errors import UserError
from webhook.server.plain.decisions import parse_query


class Port:
    """A decision port without HTTP. The next `failures` requests fail."""

    def __init__(self, count: int) -> None:
        self.records = [encode_record(NOW_MS + number, name=f"web-{number}") for number in range(count)]
        self.failures = 0

    def newest_first(self) -> list[EncodedRecord]:
        return self.records[::-1]

    async def get(self, path: str) -> bytes:
        if self.failures:
            self.failures -= 1
            raise UserError("no server answers")
        query: DecisionQuery = parse_query(dict(parse_qsl(urlsplit(path).query)), NOW_MS)
        found = await DecisionSearch(self, PolicyDocuments()).find(query)
        return msgspec.json.encode({"decisions": found.records, "next": found.next_before or None})

    @property
    def client(self) -> DecisionClient:
        return DecisionClient(self.get, "the port")


def names(found: tuple[dict[str, Any], ...]) -> list[str]:
    return [decision["name"] for decision in found]


async def test_several_pages_are_read() -> None:
    found = await Port(1_500).client.read_newest({}, 1_200)
    assert names(found.decisions) == [f"web-{number}" for number in range(1_499, 299, -1)]
    assert len((await Port(1_500).client.read_newest({}, 5_000)).decisions) == 1_500


async def test_each_new_record_is_yielded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_client, "_AGAIN_SECONDS", 0.001)
    port, errors = Port(3), list[UserError]()
    following = port.client.follow({}, errors.append)
    async with asyncio.timeout(HANG_SECONDS):
        first = asyncio.create_task(anext(following))
        await asyncio.sleep(0.01)
        port.failures = 1
        port.records.append(encode_record(NOW_MS + 50, name="new"))
        assert (await first)["name"] == "new"
        port.records.insert(3, encode_record(NOW_MS + 40, name="late"))
        assert (await anext(following))["name"] == "late"
    assert len(errors) == 1


async def test_another_program_is_named() -> None:
    async def get(_: str) -> bytes:
        return b"<html>"

    with pytest.raises(UserError, match="the port: answers, but not as Podgate's decision port"):
        await DecisionClient(get, "the port").read_newest({}, 1)
