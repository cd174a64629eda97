"""The overrides in force: a good document replaces the last one, a bad one nothing, and what ends ends by itself."""

import asyncio

import pytest

from tests.harness.overrides import END_US, Still, Told, entry
from webhook.app.offline import Offline
from webhook.core.document import Purpose, load
from webhook.core.overrides import LiveOverrides
from webhook.core.policy.model import LoadedPolicy
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy.active_overrides import ActiveOverrides, NoOverrides
from webhook.policy.active_policy import ActivePolicy
from webhook.ports import Observer, Overrides

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  quota: {windows: [{window: 1m, hard: {pods: 5}}]}
"""
SECOND_US = 1_000_000


class Kept:
    """A keeper with what it told."""

    def __init__(self) -> None:
        self.clock, self.told = Still(), Told()
        observer: Observer = self.told
        self.keeper = ActiveOverrides(observer, self.clock, "here")

    async def offer(self, *entries: str) -> None:
        await self.keeper.on_document("".join(entries).encode(), "o.yaml")

    @property
    def live(self) -> dict[str, str]:
        overrides: Overrides = self.keeper
        return {name: str(found.quota_factor) for name, [found] in overrides.current().entries.items()}


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_without_any_document_nothing_is_in_force(kept: Kept) -> None:
    assert kept.keeper.current() == NoOverrides().current() == LiveOverrides()


async def test_a_good_document_is_in_force_at_once_and_told_once(kept: Kept) -> None:
    await kept.offer(entry(), entry("web"))
    await kept.offer(entry(), entry("web"))
    assert kept.live == {"payment-api": "3", "web": "3"}
    assert kept.told.loaded == [["payment-api", "web"]]
    assert kept.told.changes == ["payment-api began", "web began"]
    assert kept.keeper.last_errors() == ()


async def test_a_bad_document_keeps_the_last_good_one_and_is_told_once(kept: Kept) -> None:
    await kept.offer(entry())
    before = kept.keeper.current()
    for _ in range(2):
        await kept.offer(entry("web", factor="0"))
    assert kept.keeper.current() is before
    assert kept.told.failed == [kept.keeper.last_errors()]
    assert kept.keeper.last_errors()[0].startswith("o.yaml:1:31: [0].quotaFactor: 0: not a number above 0")
    await kept.offer(entry())
    assert kept.keeper.last_errors() == ()
    assert kept.told.loaded == [["payment-api"], ["payment-api"]], "whoever shows the trouble learns that it is over"
    assert kept.keeper.current() is before


async def test_a_source_that_cannot_be_read_keeps_the_last_good_one(kept: Kept) -> None:
    await kept.offer(entry())
    for _ in range(2):
        kept.keeper.on_unreadable(["o.yaml: cannot be read"])
    assert kept.live == {"payment-api": "3"}
    assert kept.told.failed == [("o.yaml: cannot be read",)]
    await kept.offer(entry())
    assert kept.keeper.last_errors() == ()


async def test_an_entry_ends_by_itself_to_the_microsecond(kept: Kept) -> None:
    await kept.offer(entry(), entry("web", until="2026-12-01T05:00:00Z"))
    kept.clock.us = END_US - 1
    assert set(kept.live) == {"payment-api", "web"}
    kept.clock.us = END_US
    assert set(kept.live) == {"web"}
    assert kept.told.changes[2:] == ["payment-api ended"]
    kept.clock.us += 3600 * SECOND_US
    assert kept.live == {}
    assert kept.told.changes[3:] == ["web ended"]


async def test_an_entry_of_a_bad_documents_predecessor_still_ends_in_its_time(kept: Kept) -> None:
    await kept.offer(entry())
    await kept.offer("- nonsense")
    kept.clock.us = END_US
    assert kept.live == {}


async def test_an_end_is_noticed_while_nobody_asks(kept: Kept) -> None:
    await kept.offer(entry())
    kept.clock.us = END_US
    running = asyncio.create_task(kept.keeper.run())
    await asyncio.sleep(0)
    running.cancel()
    assert kept.told.changes == ["payment-api began", "payment-api ended"]


async def test_a_document_without_it_ends_an_override(kept: Kept) -> None:
    await kept.offer(entry())
    await kept.offer("")
    assert kept.live == {}
    assert kept.told.changes == ["payment-api began", "payment-api ended"]


async def test_another_entry_for_the_service_is_a_change(kept: Kept) -> None:
    await kept.offer(entry())
    await kept.offer(entry(factor="4"))
    assert kept.live == {"payment-api": "4"}
    assert kept.told.changes == ["payment-api began", "payment-api changed"]


async def test_entries_that_set_different_things_end_one_by_one(kept: Kept) -> None:
    mode = "- {service: payment-api, modes: {quota: Audit}, until: 2026-12-01T05:00:00Z, reason: INC-2}\n"
    await kept.offer(entry(), mode)
    assert len(kept.keeper.current().entries["payment-api"]) == 2
    assert kept.told.changes == ["payment-api began", "payment-api began"]
    kept.clock.us = END_US
    [left] = kept.keeper.current().entries["payment-api"]
    assert left.reason == "INC-2"
    assert kept.told.changes[2:] == ["payment-api ended"]


async def test_two_live_entries_are_refused_until_one_of_them_has_ended(kept: Kept) -> None:
    await kept.offer(entry(factor="2", until="2026-12-01T06:00:00Z"))
    await kept.offer(entry(factor="3"), entry(factor="4", until="2026-12-01T05:00:00Z"))
    assert kept.live == {"payment-api": "2"}
    assert "a second live entry for payment-api sets quotaFactor, first in line 1" in kept.keeper.last_errors()[0]
    assert len(kept.told.failed) == 1
    kept.clock.us = END_US
    assert kept.live == {"payment-api": "4"}
    assert kept.keeper.last_errors() == ()
    assert len(kept.told.failed) == 1


async def test_the_generation_changes_only_with_what_is_in_force(kept: Kept) -> None:
    generations = []
    documents = (entry(), entry() + "# a comment\n", "- bad", entry(factor="4"), entry(factor="4") + entry("w"), "")
    for document in documents:
        await kept.offer(document)
        generations.append(kept.keeper.current().generation)
    assert generations == [1, 1, 1, 2, 3, 4]


def judged(loaded: LoadedPolicy, overrides: ActiveOverrides) -> Interceptor:
    offline = Offline(loaded)
    return Interceptor(offline.policies, offline.store, offline.namespaces, Observers(), ActivePolicy(overrides))


async def test_reviews_go_by_the_policy_as_it_is_under_the_overrides(kept: Kept) -> None:
    loaded = load(POLICY.encode(), Purpose.LINT).policy
    interceptor = judged(loaded, kept.keeper)

    def hard() -> int:
        return interceptor.compiled(loaded).plans["payment-api"].windows[0].limits[0].hard

    own = interceptor.compiled(loaded)
    assert hard() == 5
    await kept.offer(entry())
    assert hard() == 15
    assert interceptor.compiled(loaded) is interceptor.compiled(loaded), "worked out once"
    assert interceptor.compiled(loaded).hash == own.hash
    kept.clock.us = END_US
    assert hard() == 5
