"""The policy in force is that of the rollout's state: at a change, at a restart, and while something is missing."""

import asyncio

import pytest

from tests.adapters.policy_file import FakeClock, document
from tests.contract.revisions_contract import check_revisions
from tests.harness.policy_checks import ImmediateCheck
from tests.harness.policy_revisions import MemoryRevisions, hash_of
from webhook.core.document import Purpose
from webhook.core.policy.model import LoadedPolicy
from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState, RolloutView
from webhook.observers import Observers
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.ports import PartialObserver

OLD, NEW, OTHER = (document(pods).encode() for pods in (5, 6, 7))
BAD = OLD.replace(b"pods", b"pod")
PLACE = "policy.yaml"


GOVERNED = RolloutState(hash_of(OLD), governed=True)
UNGOVERNED = RolloutState(hash_of(OLD))
PINNED = RolloutState(hash_of(OLD), pinned=Intervention("incident"))
REJECTED = RolloutState(hash_of(OLD), rejected=(Rejection(hash_of(NEW), "Pending"),))
SHADOW = RolloutState(hash_of(OLD), governed=True, phase=Phase.SHADOW, candidate=hash_of(NEW))


class Changes(PartialObserver):
    """Records which policies came into force, and what was said about the rollout."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.failed: list[tuple[str, ...]] = []
        self.views: list[RolloutView] = []

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None:
        self.loaded.append(loaded.hash)

    def on_policy_failed(self, errors: object) -> None:
        assert isinstance(errors, tuple)
        self.failed.append(errors)

    def on_rollout_changed(self, former: RolloutView, now: RolloutView) -> None:
        assert former != now
        self.views.append(now)


class Process:
    """One process that follows a state, the wished policy and kept documents."""

    def __init__(self, revisions: MemoryRevisions, last_good: bytes | None = None) -> None:
        self.changes = Changes()
        self.last_good = last_good
        self.policies = PolicyReceiver(
            Observers(self.changes), FakeClock(), ImmediateCheck(), Purpose.SERVE, revisions=revisions
        )
        self.rollout = self.policies.rollout
        self.rollout.read_last_good = self._read_last_good
        self.rollout.keep_last_good = self._keep_last_good

    async def _read_last_good(self) -> bytes | None:
        return self.last_good

    def _keep_last_good(self, raw: bytes) -> None:
        self.last_good = raw

    async def wish(self, raw: bytes) -> bool:
        return await self.policies.on_document(raw, PLACE)

    def find_in_force(self) -> str:
        loaded = self.policies.get_loaded()
        return "" if loaded is None else loaded.hash


@pytest.fixture
async def revisions() -> MemoryRevisions:
    kept = MemoryRevisions()
    for raw in (OLD, NEW):
        await kept.keep(hash_of(raw), raw)
    kept.reads.clear()
    return kept


async def test_revisions_in_memory_fulfil_the_contract() -> None:
    await check_revisions(MemoryRevisions())


async def test_without_a_state_the_wished_policy_is_in_force_and_nothing_is_read(revisions: MemoryRevisions) -> None:
    process = Process(revisions)
    await process.rollout.on_state(None)
    for raw in (OLD, NEW, OLD):
        assert await process.wish(raw)
        assert process.find_in_force() == hash_of(raw)
        assert process.last_good == raw
    assert process.changes.loaded == [hash_of(OLD), hash_of(NEW), hash_of(OLD)]
    assert (revisions.reads, process.changes.views) == ([], [])


async def test_nothing_is_in_force_before_the_state_is_read(revisions: MemoryRevisions) -> None:
    process = Process(revisions)
    assert await process.wish(NEW)
    assert process.find_in_force() == ""
    await process.rollout.on_state(GOVERNED)
    assert process.find_in_force() == hash_of(OLD)
    assert process.changes.loaded == [hash_of(OLD)], "the wished policy was never in force"


@pytest.mark.parametrize("state", [GOVERNED, PINNED, REJECTED, SHADOW])
async def test_a_restart_puts_the_stable_policy_into_force_whatever_is_wished(
    revisions: MemoryRevisions, state: RolloutState
) -> None:
    for order in (0, 1):
        process = Process(revisions, last_good=OTHER)
        arrivals = [process.rollout.on_state(state), process.wish(NEW)]
        for arrival in arrivals if order == 0 else reversed(arrivals):
            await arrival
        assert process.changes.loaded == [hash_of(OLD)]
        assert process.last_good == OLD
        assert process.policies.list_problems() == ()


async def test_an_ungoverned_change_is_in_force_at_once(revisions: MemoryRevisions) -> None:
    process = Process(revisions)
    await process.rollout.on_state(UNGOVERNED)
    await process.wish(OLD)
    await process.wish(NEW)
    assert process.changes.loaded == [hash_of(OLD), hash_of(NEW)]
    assert revisions.reads == []


async def test_a_rollback_needs_no_read_while_the_former_policy_is_in_use(revisions: MemoryRevisions) -> None:
    process = Process(revisions)
    await process.rollout.on_state(GOVERNED)
    await process.wish(OLD)
    await process.wish(NEW)
    assert process.find_in_force() == hash_of(OLD)
    await process.rollout.on_state(RolloutState(hash_of(NEW), governed=True))
    assert process.find_in_force() == hash_of(NEW)
    assert revisions.reads == []
    await process.rollout.on_state(PINNED)
    assert process.find_in_force() == hash_of(OLD)
    assert [view.stable for view in process.changes.views][-1] == hash_of(OLD)


async def test_the_last_good_policy_is_used_if_it_is_the_one_whose_revision_is_missing(
    revisions: MemoryRevisions,
) -> None:
    await revisions.delete(hash_of(OLD))
    process = Process(revisions, last_good=OLD)
    await process.rollout.on_state(GOVERNED)
    await process.wish(NEW)
    assert process.find_in_force() == hash_of(OLD)


@pytest.mark.parametrize("state", [GOVERNED, PINNED, REJECTED])
async def test_without_the_stable_policy_the_wished_one_is_not_taken_and_the_remedies_are_true(
    revisions: MemoryRevisions, state: RolloutState
) -> None:
    await revisions.delete(hash_of(OLD))
    process = Process(revisions, last_good=OTHER)
    await process.rollout.on_state(state)
    assert await process.wish(NEW)
    assert process.find_in_force() == ""
    [problem] = process.policies.list_problems()
    assert f"controllerrevision podgate-policy-{hash_of(OLD)}" in problem
    assert "apply its document as configmap podgate-system/podgate-policy again" in problem
    assert "kubectl -n podgate-system delete configmap podgate-policy-state" in problem
    assert process.changes.views[-1].problem == problem
    await process.wish(OLD)
    assert process.find_in_force() == hash_of(OLD)
    assert process.policies.list_problems() == ()
    again = Process(revisions)
    await again.rollout.on_state(state)
    await again.wish(NEW)
    await again.rollout.on_state(None)
    assert again.find_in_force() == hash_of(NEW)


async def test_what_is_in_force_stays_while_another_policy_cannot_be_read_and_is_tried_again(
    revisions: MemoryRevisions,
) -> None:
    process = Process(revisions)
    await process.rollout.on_state(None)
    await process.wish(OTHER)
    revisions.error = "cannot get controllerrevision: HTTP 403"
    await process.rollout.on_state(GOVERNED)
    assert process.find_in_force() == hash_of(OTHER)
    assert process.policies.list_problems()[0].startswith(revisions.error)
    running = asyncio.create_task(process.rollout.run())
    revisions.error = ""
    async with asyncio.timeout(30):
        while process.find_in_force() != hash_of(OLD):  # noqa: ASYNC110  a loop under test does it
            await asyncio.sleep(0.01)
    running.cancel()
    assert process.policies.list_problems() == ()


async def test_a_revision_that_holds_another_document_is_not_used(revisions: MemoryRevisions) -> None:
    await revisions.delete(hash_of(OLD))
    await revisions.keep(hash_of(OLD), OTHER)
    process = Process(revisions)
    await process.rollout.on_state(PINNED)
    await process.wish(NEW)
    assert process.find_in_force() == ""


async def test_a_kept_document_that_is_no_longer_valid_is_named(revisions: MemoryRevisions) -> None:
    await revisions.keep(hash_of(BAD), BAD)
    process = Process(revisions)
    await process.rollout.on_state(RolloutState(hash_of(BAD), governed=True))
    await process.wish(NEW)
    [problem] = process.policies.list_problems()
    assert problem.startswith(f"policy {hash_of(BAD)} is no longer valid: 6:")


async def test_an_unreadable_state_changes_nothing_and_is_named(revisions: MemoryRevisions) -> None:
    process = Process(revisions)
    await process.rollout.on_state(None)
    await process.wish(OLD)
    await process.rollout.on_unreadable_state("state.json: line 1: delete it")
    await process.wish(NEW)
    assert process.find_in_force() == hash_of(OLD)
    assert process.policies.list_problems() == ("state.json: line 1: delete it",)
    await process.rollout.on_state(None)
    assert process.find_in_force() == hash_of(NEW)
    assert process.policies.list_problems() == ()


@pytest.mark.parametrize("last_good", [OLD, None])
async def test_a_restart_with_an_unreadable_state_takes_the_last_good_policy_or_none(
    revisions: MemoryRevisions, last_good: bytes | None
) -> None:
    process = Process(revisions, last_good)
    await process.rollout.on_unreadable_state("cannot read it: HTTP 403: grant the right")
    await process.wish(NEW)
    assert process.find_in_force() == ("" if last_good is None else hash_of(last_good))
    assert process.policies.list_problems() == ("cannot read it: HTTP 403: grant the right",)


async def test_an_invalid_wish_is_an_error_as_before_and_changes_nothing(revisions: MemoryRevisions) -> None:
    process = Process(revisions)
    await process.rollout.on_state(GOVERNED)
    await process.wish(NEW)
    assert not await process.wish(BAD)
    assert process.find_in_force() == hash_of(OLD)
    assert process.policies.list_problems()[0].startswith("policy.yaml:6:")
    assert len(process.changes.failed) == 1
    await process.wish(NEW)
    assert process.changes.loaded == [hash_of(OLD), hash_of(OLD)], "observers clear the error"
    assert process.policies.list_problems() == ()


async def test_a_restart_with_an_invalid_wish_takes_the_stable_policy(revisions: MemoryRevisions) -> None:
    process = Process(revisions)
    await process.rollout.on_state(GOVERNED)
    await process.wish(BAD)
    assert process.find_in_force() == hash_of(OLD)
    assert process.policies.list_problems()[0].startswith("policy.yaml:6:")
