"""The decision port explains Pods and controllers by its records."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from tests.core.recording import POLICY_TEXT, RecordedShop
from tests.core.reviewing import NOW_US
from tests.harness.policy_checks import ImmediateCheck
from webhook.core.document import Purpose, load
from webhook.core.reporting.record_codec import EncodedRecord
from webhook.decisions.policy_documents import CompiledPolicies, PolicyDocuments
from webhook.decisions.search import DecisionSearch
from webhook.errors import NoPolicyError
from webhook.observers import Observers
from webhook.server.plain.decisions import build_decision_handler
from webhook.server.plain.explanations import EXPLAIN, build_explanation_page
from webhook.server.server import PlainServer

POLICY_HASH = load(POLICY_TEXT.encode(), Purpose.REVIEW).policy.hash
Ask = Callable[[str], Awaitable[tuple[int, Any]]]


class Kept:
    """The records, as a ring has them."""

    def __init__(self, kept: list[EncodedRecord]) -> None:
        self._kept = kept

    def newest_first(self) -> list[EncodedRecord]:
        return self._kept


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    shop = RecordedShop()
    await shop.create("u1")
    await shop.create("u2")
    compiled = shop.gate.compiled
    documents = PolicyDocuments()
    documents.keep(compiled.hash, POLICY_TEXT.encode())
    search = DecisionSearch(Kept(shop.recorder.kept), documents)
    page = build_explanation_page(search, CompiledPolicies(search.policy, ImmediateCheck()).get, lambda: NOW_US)
    server = PlainServer(build_decision_handler(search, lambda: NOW_US // 1000, {EXPLAIN: page}), Observers())
    await server.listener.start("127.0.0.1", 0)
    [(host, number)] = server.listener.addresses
    async with aiohttp.ClientSession() as session:

        async def get(query: str) -> tuple[int, Any]:
            async with session.get(f"http://{host}:{number}{EXPLAIN}?{query}") as response:
                text = await response.text()
                return response.status, json.loads(text) if response.status == 200 else text

        yield get
    await server.stop()


@pytest.mark.parametrize("query", ["uid=u2", "namespace=shop&name=web-u2", "namespace=shop&owner=r1"])
async def test_denied_pod_is_explained_with_both_halves(ask: Ask, query: str) -> None:
    status, answer = await ask(query)
    assert status == 200
    report = answer["report"]
    assert report["token"] == "Denied"
    assert report["quota"][0]["freeAt"] in report["summary"]
    assert {rule["half"] for rule in report["rules"]} == {"mutate", "validate"}
    assert {record["half"] for record in answer["records"]} == {"mutate", "validate"}


async def test_policy_that_is_not_available_is_named() -> None:
    documents = PolicyDocuments()
    documents.keep("0000000000000001", b"kind: Other")
    search = DecisionSearch(Kept([]), documents)
    policies = CompiledPolicies(search.policy, ImmediateCheck())
    with pytest.raises(NoPolicyError, match="kind"):
        await policies.get("0000000000000001")
    with pytest.raises(NoPolicyError, match="neither this server nor its store keeps it"):
        await policies.get("0000000000000002")
    documents.keep(POLICY_HASH, POLICY_TEXT.encode())
    assert (await policies.get(POLICY_HASH)).hash == POLICY_HASH


async def test_page_says_nothing_of_what_the_cluster_has(ask: Ask) -> None:
    _, answer = await ask("uid=u1")
    report = answer["report"]
    assert report["unread"] == {"cluster": "this page explains by records alone"}
    assert report["summary"].endswith("whether it exists cannot be told: this page explains by records alone")


async def test_unknown_pod_has_no_report(ask: Ask) -> None:
    assert await ask("namespace=shop&name=other") == (200, {"report": None, "records": []})


@pytest.mark.parametrize(
    ("query", "reason"),
    [("namespace=shop", "name what to explain"), ("", "name what to explain"), ("pod=a", "pod: no such parameter")],
)
async def test_bad_query_is_told(ask: Ask, query: str, reason: str) -> None:
    status, text = await ask(query)
    assert status == 400
    assert reason in text
