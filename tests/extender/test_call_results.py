"""Results of the extender's calls, as they are counted."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from tests.extender.bursts import POLICY
from tests.harness.unread_values import UNREAD
from webhook.authentication.identities import Role
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.scheduling.extender_api import BadExtenderRequestError
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords
from webhook.ports import Caller
from webhook.server.routes import build_extender_routes

WEB = {"metadata": {"name": "p", "namespace": "shop", "uid": "u", "labels": {"podgate.io/service": "web"}}, "spec": {}}
ASKED = {"Pod": WEB, "NodeNames": ["a"]}
CALLER = Caller(Role.SCHEDULER, "podgate-scheduler", "", "", "podgate-scheduler")


class Calls:
    """An extender, and the verbs and results of its calls."""

    def __init__(self, *, is_ready: bool) -> None:
        policy = CompiledPolicy(POLICY)
        self.records = SchedulingRecords(lambda: None)
        self.ended: list[tuple[str, str]] = []
        extender = Extender(lambda: policy, self.records, lambda: 1_795_500_000.0)
        self._routes = build_extender_routes(extender, lambda verb, result, _: self.ended.append((verb, result)))
        if is_ready:
            extender.table.index.on_nodes_listed(())
            asyncio.run(extender.table.index.on_list_begun())
            asyncio.run(extender.table.index.on_list_complete())

    def call(self, verb: str, body: Mapping[str, object], unread: bytes = b"null") -> None:
        asyncio.run(self._answer(verb, json.dumps(body).encode().replace(b'"<unread>"', unread)))

    async def _answer(self, verb: str, body: bytes) -> None:
        await self._routes[f"/{verb}"].answer(body, CALLER, None)


def test_calls_are_answered_only_once_nodes_and_pods_are_listed() -> None:
    early, later = Calls(is_ready=False), Calls(is_ready=True)
    for calls in (early, later):
        for verb in ("filter", "prioritize"):
            calls.call(verb, ASKED)
    assert early.ended == [("filter", "not_ready"), ("prioritize", "not_ready")]
    assert later.ended == [("filter", "answered"), ("prioritize", "answered")]


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
def test_a_pod_is_scheduled_whatever_its_managed_fields_are(unread: bytes) -> None:
    """The scheduler would leave the extender out for it, or never schedule it."""
    calls = Calls(is_ready=True)
    web = {**WEB, "metadata": {**WEB["metadata"], "managedFields": "<unread>"}}
    for verb, more in (("filter", ASKED), ("prioritize", ASKED), ("preempt", {"NodeNameToMetaVictims": {}})):
        calls.call(verb, {**more, "Pod": web}, unread)
    assert [result for _, result in calls.ended] == ["answered"] * 3


def test_body_that_is_no_request_and_a_defect_are_other_results(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(is_ready=True)
    with pytest.raises(BadExtenderRequestError):
        calls.call("preempt", {})
    monkeypatch.setattr(calls.records, calls.records.on_filtered.__name__, lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        calls.call("filter", ASKED)
    assert calls.ended == [("preempt", "bad_request"), ("filter", "failed")]
