"""The decision port answers local clients only, read-only, with bounded pages and clear errors."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.decisions.records import NOW_MS, encode_record
from webhook.core.admission.decision import Verdict
from webhook.core.reporting.record_codec import EncodedRecord
from webhook.decisions.policy_documents import PolicyDocuments
from webhook.decisions.search import DecisionSearch
from webhook.observers import Observers
from webhook.server.plain.decisions import build_decision_handler
from webhook.server.server import PlainServer

POLICY = b"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices: []\n"
RECORDS = [
    encode_record(
        NOW_MS + 60_000 * number, name=f"web-{number}", decision=Verdict.DENY if number % 2 else Verdict.ADMIT
    )
    for number in range(5)
]


class Kept:
    """The records, as a ring has them."""

    def newest_first(self) -> list[EncodedRecord]:
        return RECORDS[::-1]


class Port:
    """A running decision port, and its client."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url, session

    async def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        async with self._session.request(method, self._url + path, headers=headers) as response:
            assert "Access-Control-Allow-Origin" not in response.headers
            return response.status, await response.text()

    async def names(self, query: str) -> list[str]:
        async with self._session.get(f"{self._url}/api/v1/decisions?{query}") as response:
            found: dict[str, Any] = await response.json()
        return [decision["name"] for decision in found["decisions"]]


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    documents = PolicyDocuments()
    documents.keep("9640bfdb9640bfdb", POLICY)
    handler = build_decision_handler(DecisionSearch(Kept(), documents), lambda: NOW_MS + 4 * 60_000)
    server = PlainServer(handler, Observers())
    await server.listener.start("127.0.0.1", 0)
    [(host, number)] = server.listener.addresses
    async with aiohttp.ClientSession() as session:
        yield Port(f"http://{host}:{number}", session)
    await server.stop()


async def test_records_are_selected_by_the_query(port: Port) -> None:
    assert await port.names("") == ["web-4", "web-3", "web-2", "web-1", "web-0"]
    assert await port.names("denied=true") == ["web-3", "web-1"]
    assert await port.names("since=2m") == ["web-4", "web-3", "web-2"]
    assert await port.names("name=web-2") == ["web-2"]
    assert await port.names("limit=1") == ["web-4"]


async def test_next_page_begins_before_the_last_record(port: Port) -> None:
    _, text = await port.ask("/api/v1/decisions?limit=2")
    assert f'"next":"{NOW_MS + 180_000}-000-a"' in text
    assert await port.names(f"before={NOW_MS + 180_000}-000-a") == ["web-2", "web-1", "web-0"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit: '0': write a number from 1 to 1000"),
        ("limit=1001", "limit: '1001': write a number from 1 to 1000"),
        ("since=yesterday", "since: 'yesterday': "),
        ("denied=yes", "denied: 'yes': write true or false"),
        ("before=1", "before: '1': write the `id` of a record"),
        ("pod=web", "pod: no such parameter: there are service, namespace"),
        ("&".join(f"x{number}=1" for number in range(100)), ""),
    ],
)
async def test_bad_query_is_named(port: Port, query: str, message: str) -> None:
    status, text = await port.ask(f"/api/v1/decisions?{query}")
    assert status == 400
    assert text.startswith(message)


async def test_policy_is_served_by_its_hash(port: Port) -> None:
    assert await port.ask("/api/v1/policies/9640bfdb9640bfdb") == (200, POLICY.decode())
    assert (await port.ask("/api/v1/policies/0000000000000000"))[0] == 404
    assert (await port.ask("/api/v1/policies/%2e%2e%2fetc"))[0] == 400


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8082", "", "127.0.0.1.evil.example", "localhost."])
async def test_other_names_of_this_host_are_refused(port: Port, host: str) -> None:
    assert (await port.ask("/api/v1/decisions", Host=host))[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:8082", "127.0.0.1:8082", "[::1]:8082"])
async def test_local_names_are_accepted(port: Port, host: str) -> None:
    assert (await port.ask("/api/v1/decisions", Host=host))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_only_get_is_allowed(port: Port, method: str) -> None:
    assert (await port.ask("/api/v1/decisions", method))[0] == 405


async def test_other_paths_are_not_found(port: Port) -> None:
    assert (await port.ask("/metrics"))[0] == 404
