"""The overrides in force: valid documents replace them, invalid ones do not, and entries expire."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.harness.overrides import END_US, FixedClock, OverridesRecorder, entry
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.overrides import LiveOverrides
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
        self.clock, self.told = FixedClock(), OverridesRecorder()
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
    assert kept.keeper.current().entries == NoOverrides().current().entries == {}


async def test_a_good_document_is_in_force_at_once_and_reported_once(kept: Kept) -> None:
    await kept.offer(entry(), entry("web"))
    await kept.offer(entry(), entry("web"))
    assert kept.live == {"payment-api": "3", "web": "3"}
    assert kept.told.loaded == [["payment-api", "web"]]
    assert kept.told.changes == ["payment-api began", "web began"]
    assert kept.keeper.last_errors() == ()


async def test_a_bad_document_keeps_the_last_good_one_and_is_reported_once(kept: Kept) -> None:
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
        await kept.keeper.on_unreadable(["o.yaml: cannot be read"])
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
    await kept.keeper.look_ahead()
    kept.clock.us += 3600 * SECOND_US
    assert kept.live == {}
    assert kept.told.changes[3:] == ["web ended"]


async def test_an_entry_of_a_bad_documents_predecessor_still_ends_in_its_time(kept: Kept) -> None:
    await kept.offer(entry())
    await kept.offer("- nonsense")
    kept.clock.us = END_US
    assert kept.live == {}


async def test_expiry_is_noticed_without_reviews(kept: Kept) -> None:
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


async def test_two_active_entries_are_rejected_until_one_has_ended(kept: Kept) -> None:
    await kept.offer(entry(factor="2", until="2026-12-01T06:00:00Z"))
    await kept.offer(entry(factor="3"), entry(factor="4", until="2026-12-01T05:00:00Z"))
    assert kept.live == {"payment-api": "2"}
    assert "a second live entry for payment-api sets quotaFactor, first in line 1" in kept.keeper.last_errors()[0]
    assert len(kept.told.failed) == 1
    kept.clock.us = END_US
    assert kept.live == {"payment-api": "4"}
    assert kept.keeper.last_errors() == ()
    assert len(kept.told.failed) == 1


async def test_the_live_entries_are_the_same_object_until_they_change(kept: Kept) -> None:
    found = []
    documents = (entry(), entry() + "# a comment\n", "- bad", entry(factor="4"), entry(factor="4") + entry("w"), "")
    for document in documents:
        await kept.offer(document)
        found.append(kept.keeper.current())
    assert [found.index(live) for live in found] == [0, 0, 0, 3, 4, 5]


async def test_upcoming_overrides_are_compiled_in_advance(kept: Kept) -> None:
    prepared: list[Sequence[LiveOverrides]] = []

    async def prepare(coming: Sequence[LiveOverrides]) -> None:
        assert kept.keeper.current() not in coming
        prepared.append(coming)

    kept.keeper.prepare = prepare
    await kept.offer(entry(), entry("web", until="2026-12-01T05:00:00Z"))
    assert [[*live.entries] for coming in prepared for live in coming] == [["payment-api", "web"], ["web"]]
    assert kept.keeper.prepared() == prepared[0]
    kept.clock.us = END_US
    assert kept.keeper.current() is prepared[0][1]
    await kept.keeper.look_ahead()
    assert [[*live.entries] for live in prepared[1]] == [[]]
    assert kept.keeper.prepared() == (prepared[0][1], prepared[1][0])


async def test_an_end_while_a_document_is_prepared_is_in_force_at_once_and_reported_once(kept: Kept) -> None:
    await kept.offer(entry(), entry("web", until="2026-12-01T05:00:00Z"))
    preparing, go = asyncio.Event(), asyncio.Event()

    async def prepare(_: Sequence[LiveOverrides]) -> None:
        preparing.set()
        await go.wait()

    kept.keeper.prepare = prepare
    offering = asyncio.create_task(kept.offer(entry(), entry("web", until="2026-12-01T05:00:00Z"), entry("api")))
    await preparing.wait()
    kept.clock.us = END_US
    assert set(kept.live) == {"web"}
    go.set()
    await offering
    assert set(kept.live) == {"web"}
    assert kept.told.changes == ["payment-api began", "web began", "payment-api ended"]


async def test_reviews_go_by_the_policy_as_it_is_under_the_overrides(kept: Kept) -> None:
    active = ActivePolicy(kept.keeper, kept.clock)
    kept.keeper.prepare = active.prepare
    await active.swap(load(POLICY.encode(), Purpose.LINT).policy)

    def compiled() -> CompiledPolicy:
        found = active.current()
        assert found is not None
        return found

    def hard() -> int:
        return compiled().plans["payment-api"].windows[0].limits[0].hard

    own = compiled()
    assert hard() == 5
    await kept.offer(entry())
    assert hard() == 15
    assert compiled() is compiled(), "worked out once"
    assert compiled().hash == own.hash
    kept.clock.us = END_US
    assert hard() == 5
