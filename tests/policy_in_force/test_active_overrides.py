"""The overrides in force: valid documents replace them, invalid ones do not, and entries expire."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.harness.overrides import END_US, FixedClock, OverridesRecorder, entry
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.overrides import LiveOverrides
from webhook.policy_in_force.active_overrides import ActiveOverrides, NoOverrides
from webhook.policy_in_force.active_policy import ActivePolicy
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


class Setup:
    """Active overrides with a manual clock, and their reports."""

    def __init__(self) -> None:
        self.clock, self.reported = FixedClock(), OverridesRecorder()
        observer: Observer = self.reported
        self.active = ActiveOverrides(observer, self.clock, "here")

    async def submit(self, *entries: str) -> None:
        await self.active.on_document("".join(entries).encode(), "o.yaml")

    @property
    def live(self) -> dict[str, str]:
        overrides: Overrides = self.active
        return {name: str(override.quota_factor) for name, [override] in overrides.get_current().entries.items()}


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_without_any_document_nothing_is_in_force(setup: Setup) -> None:
    assert setup.active.get_current().entries == NoOverrides().get_current().entries == {}


async def test_a_good_document_is_in_force_at_once_and_reported_once(setup: Setup) -> None:
    await setup.submit(entry(), entry("web"))
    await setup.submit(entry(), entry("web"))
    assert setup.live == {"payment-api": "3", "web": "3"}
    assert setup.reported.loaded == [["payment-api", "web"]]
    assert setup.reported.changes == ["payment-api began", "web began"]
    assert setup.active.list_errors() == ()


async def test_a_bad_document_keeps_the_last_good_one_and_is_reported_once(setup: Setup) -> None:
    await setup.submit(entry())
    before = setup.active.get_current()
    for _ in range(2):
        await setup.submit(entry("web", factor="0"))
    assert setup.active.get_current() is before
    assert setup.reported.failed == [setup.active.list_errors()]
    assert setup.active.list_errors()[0].startswith("o.yaml:1:31: [0].quotaFactor: 0: not a number above 0")
    await setup.submit(entry())
    assert setup.active.list_errors() == ()
    assert setup.reported.loaded == [["payment-api"], ["payment-api"]], "the recovery is reported"
    assert setup.active.get_current() is before


async def test_a_source_that_cannot_be_read_keeps_the_last_good_one(setup: Setup) -> None:
    await setup.submit(entry())
    for _ in range(2):
        await setup.active.on_unreadable(["o.yaml: cannot be read"])
    assert setup.live == {"payment-api": "3"}
    assert setup.reported.failed == [("o.yaml: cannot be read",)]
    await setup.submit(entry())
    assert setup.active.list_errors() == ()


async def test_entry_expires_to_the_microsecond(setup: Setup) -> None:
    await setup.submit(entry(), entry("web", until="2026-12-01T05:00:00Z"))
    setup.clock.us = END_US - 1
    assert set(setup.live) == {"payment-api", "web"}
    setup.clock.us = END_US
    assert set(setup.live) == {"web"}
    assert setup.reported.changes[2:] == ["payment-api ended"]
    await setup.active.look_ahead()
    setup.clock.us += 3600 * SECOND_US
    assert setup.live == {}
    assert setup.reported.changes[3:] == ["web ended"]


async def test_entry_of_the_last_good_document_expires_after_a_bad_document(setup: Setup) -> None:
    await setup.submit(entry())
    await setup.submit("- nonsense")
    setup.clock.us = END_US
    assert setup.live == {}


async def test_expiry_is_noticed_without_reviews(setup: Setup) -> None:
    await setup.submit(entry())
    setup.clock.us = END_US
    running = asyncio.create_task(setup.active.run())
    await asyncio.sleep(0)
    running.cancel()
    assert setup.reported.changes == ["payment-api began", "payment-api ended"]


async def test_override_ends_with_a_document_that_omits_it(setup: Setup) -> None:
    await setup.submit(entry())
    await setup.submit("")
    assert setup.live == {}
    assert setup.reported.changes == ["payment-api began", "payment-api ended"]


async def test_another_entry_for_the_service_is_a_change(setup: Setup) -> None:
    await setup.submit(entry())
    await setup.submit(entry(factor="4"))
    assert setup.live == {"payment-api": "4"}
    assert setup.reported.changes == ["payment-api began", "payment-api changed"]


async def test_entries_with_different_fields_expire_separately(setup: Setup) -> None:
    mode = "- {service: payment-api, modes: {quota: Audit}, until: 2026-12-01T05:00:00Z, reason: INC-2}\n"
    await setup.submit(entry(), mode)
    assert len(setup.active.get_current().entries["payment-api"]) == 2
    assert setup.reported.changes == ["payment-api began", "payment-api began"]
    setup.clock.us = END_US
    [remaining] = setup.active.get_current().entries["payment-api"]
    assert remaining.reason == "INC-2"
    assert setup.reported.changes[2:] == ["payment-api ended"]


async def test_two_active_entries_are_rejected_until_one_has_ended(setup: Setup) -> None:
    await setup.submit(entry(factor="2", until="2026-12-01T06:00:00Z"))
    await setup.submit(entry(factor="3"), entry(factor="4", until="2026-12-01T05:00:00Z"))
    assert setup.live == {"payment-api": "2"}
    assert "a second live entry for payment-api sets quotaFactor, first in line 1" in setup.active.list_errors()[0]
    assert len(setup.reported.failed) == 1
    setup.clock.us = END_US
    assert setup.live == {"payment-api": "4"}
    assert setup.active.list_errors() == ()
    assert len(setup.reported.failed) == 1


async def test_the_live_entries_are_the_same_object_until_they_change(setup: Setup) -> None:
    current = []
    documents = (entry(), entry() + "# a comment\n", "- bad", entry(factor="4"), entry(factor="4") + entry("w"), "")
    for document in documents:
        await setup.submit(document)
        current.append(setup.active.get_current())
    assert [current.index(live) for live in current] == [0, 0, 0, 3, 4, 5]


async def test_upcoming_overrides_are_compiled_in_advance(setup: Setup) -> None:
    prepared: list[Sequence[LiveOverrides]] = []

    async def prepare(upcoming: Sequence[LiveOverrides]) -> None:
        assert setup.active.get_current() not in upcoming
        prepared.append(upcoming)

    setup.active.prepare = prepare
    await setup.submit(entry(), entry("web", until="2026-12-01T05:00:00Z"))
    assert [[*live.entries] for upcoming in prepared for live in upcoming] == [["payment-api", "web"], ["web"]]
    assert setup.active.list_prepared() == prepared[0]
    setup.clock.us = END_US
    assert setup.active.get_current() is prepared[0][1]
    await setup.active.look_ahead()
    assert [[*live.entries] for live in prepared[1]] == [[]]
    assert setup.active.list_prepared() == (prepared[0][1], prepared[1][0])


async def test_expiry_while_a_document_is_prepared_takes_effect_at_once_and_is_reported_once(setup: Setup) -> None:
    await setup.submit(entry(), entry("web", until="2026-12-01T05:00:00Z"))
    preparing, proceed = asyncio.Event(), asyncio.Event()

    async def prepare(_: Sequence[LiveOverrides]) -> None:
        preparing.set()
        await proceed.wait()

    setup.active.prepare = prepare
    offering = asyncio.create_task(setup.submit(entry(), entry("web", until="2026-12-01T05:00:00Z"), entry("api")))
    await preparing.wait()
    setup.clock.us = END_US
    assert set(setup.live) == {"web"}
    proceed.set()
    await offering
    assert set(setup.live) == {"web"}
    assert setup.reported.changes == ["payment-api began", "web began", "payment-api ended"]


async def test_reviews_use_the_policy_with_overrides_applied(setup: Setup) -> None:
    active = ActivePolicy(setup.active, setup.clock)
    setup.active.prepare = active.prepare
    await active.swap(load(POLICY.encode(), Purpose.LINT).policy)

    def get_policy() -> CompiledPolicy:
        policy = active.get_current()
        assert policy is not None
        return policy

    def find_hard() -> int:
        return get_policy().plans["payment-api"].windows[0].limits[0].hard

    original = get_policy()
    assert find_hard() == 5
    await setup.submit(entry())
    assert find_hard() == 15
    assert get_policy() is get_policy(), "compiled once"
    assert get_policy().hash == original.hash
    setup.clock.us = END_US
    assert find_hard() == 5
