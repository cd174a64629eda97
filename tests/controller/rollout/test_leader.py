"""The leader of a rollout beside fakes of the state and the documents, in virtual time."""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US, START_US
from tests.harness.fake_apiserver import wait_until
from tests.harness.policy_revisions import MemoryRevisions
from tests.harness.rollout_states import MemoryStates, StateCell
from webhook.adapters.clocks import VirtualClock
from webhook.controller.rollout.figure_reader import FigureReader
from webhook.controller.rollout.leader import RolloutLeader
from webhook.controller.rollout.pod_figures import PodFigures, PodFiguresObserver
from webhook.controller.rollout.reports import RolloutInputs, RolloutReports, WishedPolicy
from webhook.core.document.loading import load_effective
from webhook.core.policy.model import LoadedPolicy
from webhook.core.rollout.changes import RolloutChange
from webhook.core.rollout.commands import choose_rollback
from webhook.core.rollout.counting import DENIALS, REVIEWS
from webhook.core.rollout.state import Intervention, Phase, RolloutState
from webhook.core.rollout.symptoms import Share, SymptomReading
from webhook.errors import StoreUnavailableError

ROLLOUT = """
rollout:
  shadow: {for: 1m}
  canary: {steps: [{percent: 10, for: 2m}, {percent: 50, for: 2m}]}
  rollback: {}
  history: 2
"""
GOOD = PodFigures(Share(0, 100), 0, Share(0, 100))
BAD = PodFigures(Share(9, 100), 9, Share(0, 100))


def make_policy(name: str, rollout: str = ROLLOUT) -> WishedPolicy:
    text = f"""apiVersion: podgate.io/v1alpha1
kind: Policy
{rollout}
services:
- name: {name}
  match: {{namespaces: [shop]}}
"""
    raw = text.encode()
    return WishedPolicy(raw, LoadedPolicy(load_effective(raw, None).policy, sha256(raw).hexdigest()[:16]))


OLD, NEW, THIRD, PLAIN = make_policy("old"), make_policy("new"), make_policy("third"), make_policy("plain", "")
ALL = {policy.loaded.hash: policy for policy in (OLD, NEW, THIRD, PLAIN)}


class ScriptedPods(PodFiguresObserver):
    """Figures that a test sets; None while the list is not complete."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.figures: PodFigures | None = GOOD
        self.followed_hashes: list[Sequence[str]] = []

    def follow(self, hashes: object, grace_us: int) -> None:
        self.followed_hashes.append(tuple(hashes))  # type: ignore[arg-type]  a collection of hashes
        assert grace_us == 60 * SECOND_US

    def read(self, policy_hash: str) -> PodFigures | None:
        return self.figures if policy_hash != OLD.loaded.hash or self.figures is None else GOOD


class Counts:
    """Counts of decisions, or a store that does not answer."""

    def __init__(self) -> None:
        self.is_away = False

    async def add(self, policy_hash: str, counts: Mapping[str, int]) -> None:
        raise NotImplementedError

    async def read(self, policy_hash: str, since_us: int) -> Mapping[str, int]:
        if self.is_away:
            raise StoreUnavailableError("away")
        assert since_us >= START_US - SECOND_US  # the state's times are rounded up
        return {REVIEWS: 100, DENIALS: 0} if policy_hash in ALL else {}


class Cluster:
    """All that outlives a leader, and the leader."""

    def __init__(self, *, kills: bool = False) -> None:
        self.cell, self.revisions, self.pods, self.counts = StateCell(), MemoryRevisions(), ScriptedPods(), Counts()
        self.clock = VirtualClock(START_US)
        self.wished: WishedPolicy | None = OLD
        self.is_watching = True
        self.lag = False
        """This process has yet to follow the state."""
        self.changes: list[RolloutChange] = []
        self.troubles: list[str] = []
        self.rounds: list[tuple[RolloutState, Sequence[SymptomReading]]] = []
        self._kills = kills
        self._leader = self._make()

    @property
    def state(self) -> RolloutState:
        assert self.cell.state is not None
        return self.cell.state

    def _make(self) -> RolloutLeader:
        inputs = RolloutInputs(
            MemoryStates(self.cell),
            self.revisions,
            lambda: self.wished,
            self._find_in_force,
            FigureReader(self.pods, self.counts, lambda: self.is_watching, self.clock.now_us),
            self.clock.now_us,
        )
        reports = RolloutReports(
            self.changes.append,
            lambda state, _, readings: self.rounds.append((state, readings)),
            self.troubles.append,
            lambda _: None,
            lambda: None,
        )
        return RolloutLeader(inputs, reports)

    def _find_in_force(self) -> LoadedPolicy | None:
        state = self.cell.state
        if self.lag:
            return THIRD.loaded
        return ALL[state.stable].loaded if state is not None else self.wished and self.wished.loaded

    async def run(self, seconds: int) -> RolloutState:
        for _ in range(seconds):
            self.clock.set(self.clock.now_us() + SECOND_US)
            while not await self._leader.run_round():
                if self._kills:
                    self._leader = self._make()
            if self._kills:
                self._leader = self._make()
        return self.state

    def list_reasons(self) -> list[str]:
        return [change.reason for change in self.changes]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_a_good_policy_is_promoted_and_each_document_is_kept_before(cluster: Cluster) -> None:
    assert (await cluster.run(1)).stable == OLD.loaded.hash
    cluster.wished = NEW
    state = await cluster.run(1)
    assert (state.candidate, state.phase) == (NEW.loaded.hash, Phase.SHADOW)
    assert await cluster.revisions.read(NEW.loaded.hash) == NEW.raw
    state = await cluster.run(310)
    assert (state.stable, state.phase, state.governed) == (NEW.loaded.hash, Phase.STABLE, True)
    assert cluster.list_reasons() == [
        "PolicyRolloutStarted",
        "PolicyStepReached",
        "PolicyStepReached",
        "PolicyPromoted",
    ]
    assert cluster.changes[1].note == f"candidate {NEW.loaded.hash}: step 1 of 2: 10 % for 2m"
    assert cluster.pods.followed_hashes[-1] == ()


@pytest.mark.parametrize("kills", [False, True])
async def test_a_bad_policy_is_taken_back_and_people_are_told_why(*, kills: bool) -> None:
    cluster = Cluster(kills=kills)
    await cluster.run(1)
    cluster.wished = NEW
    await cluster.run(70)
    cluster.pods.figures = BAD
    await cluster.run(185)
    state = cluster.state
    assert (state.stable, state.candidate) == (OLD.loaded.hash, "")
    assert [(found.hash, found.reason) for found in state.rejected] == [(NEW.loaded.hash, "too many Pending Pods")]
    cluster.pods.figures = GOOD
    assert (await cluster.run(600)).phase is Phase.STABLE
    if not kills:
        assert cluster.list_reasons()[-1] == "PolicyRolledBack"
        assert "above 8 % for 3m" in cluster.changes[-1].note


async def test_a_leader_that_knows_no_wish_takes_a_bad_policy_back_all_the_same(cluster: Cluster) -> None:
    await cluster.run(1)
    cluster.wished = NEW
    await cluster.run(70)
    cluster.wished, cluster._leader = None, cluster._make()
    state = await cluster.run(600)
    assert (state.candidate, state.waits_for) == (
        NEW.loaded.hash,
        "a wished policy: the ConfigMap has no valid one",
    )
    cluster.pods.figures = BAD
    assert [found.hash for found in (await cluster.run(185)).rejected] == [NEW.loaded.hash]
    assert cluster.list_reasons()[-1] == "PolicyRolledBack"


async def test_an_alert_is_told_once(cluster: Cluster) -> None:
    await cluster.run(1)
    cluster.wished = NEW
    await cluster.run(70)
    cluster.pods.figures = replace(BAD, pending=Share(16, 100), unscheduled=16)
    await cluster.run(30)
    assert cluster.list_reasons().count("PolicyPendingAlert") == 1
    assert "16 of 100 (16.0 %) Pods Pending (16 not scheduled, 0 not started)" in cluster.changes[-1].note
    assert "above 15 %" in cluster.changes[-1].note


@pytest.mark.parametrize("blind", ["watch", "list", "store"])
async def test_a_blind_leader_holds(cluster: Cluster, blind: str) -> None:
    await cluster.run(1)
    cluster.wished = NEW
    await cluster.run(70)
    if blind == "watch":
        cluster.is_watching = False
    elif blind == "list":
        cluster.pods.figures = None
    else:
        cluster.counts.is_away = True
    state = await cluster.run(1000)
    assert (state.step, state.phase) == (0, Phase.CANARY)
    assert "not known" in state.waits_for


async def test_a_wish_without_a_rollout_is_stable_at_once_and_kept(cluster: Cluster) -> None:
    cluster.wished = PLAIN
    await cluster.run(1)
    cluster.wished = NEW
    state = await cluster.run(1)
    assert (state.stable, state.governed, cluster.changes) == (NEW.loaded.hash, True, [])
    kept = [found.hash for found in await cluster.revisions.list_all()]
    assert kept == [NEW.loaded.hash, PLAIN.loaded.hash]


async def test_old_documents_are_deleted_but_not_those_in_use(cluster: Cluster) -> None:
    await cluster.revisions.keep("a" * 16, b"a")
    await cluster.run(1)
    await cluster.revisions.keep("b" * 16, b"b")
    await cluster.revisions.keep("c" * 16, b"c")
    cluster.wished = NEW
    await cluster.run(2)
    kept = [found.hash for found in await cluster.revisions.list_all()]
    assert kept == [NEW.loaded.hash, "c" * 16, OLD.loaded.hash]


CORRECTED = [(NEW, 90), (THIRD, 320)]
"""A candidate is replaced by its correction, which is promoted."""
REVERTED = [(THIRD, 320), (NEW, 90), (THIRD, 5)]
"""A candidate is tried after another one was promoted, and reverted in Git."""


@pytest.mark.parametrize("wishes", [CORRECTED, REVERTED])
async def test_what_was_in_force_is_kept_and_known_beside_what_was_a_candidate_alone(
    wishes: list[tuple[WishedPolicy, int]],
) -> None:
    cluster = Cluster()
    await cluster.run(1)
    for cluster.wished, seconds in wishes:
        await cluster.run(seconds)
    assert (cluster.state.stable, cluster.state.rejected) == (THIRD.loaded.hash, ())
    kept = {found.hash: found.was_in_force for found in await cluster.revisions.list_all()}
    assert kept == {THIRD.loaded.hash: True, OLD.loaded.hash: True}, "history is 2"
    assert choose_rollback(cluster.state, THIRD.loaded.hash, kept) == OLD.loaded.hash


async def test_a_candidate_that_was_taken_back_is_kept_while_it_is_wished(cluster: Cluster) -> None:
    await cluster.run(1)
    for cluster.wished in (THIRD, NEW):
        await cluster.run(320)
    cluster.wished, cluster.pods.figures = PLAIN, BAD
    await cluster.run(400)
    assert [found.hash for found in cluster.state.rejected] == [PLAIN.loaded.hash]
    kept = [(found.hash, found.was_in_force) for found in await cluster.revisions.list_all()]
    assert kept == [(PLAIN.loaded.hash, False), (NEW.loaded.hash, True), (THIRD.loaded.hash, True)]
    cluster.wished = NEW
    await cluster.run(1)
    assert [found.hash for found in await cluster.revisions.list_all()] == [NEW.loaded.hash, THIRD.loaded.hash]


async def test_a_process_that_lags_behind_the_state_decides_nothing(cluster: Cluster) -> None:
    await cluster.run(1)
    cluster.wished, cluster.lag = NEW, True
    assert (await cluster.run(1000)).phase is Phase.STABLE
    cluster.lag = False
    assert (await cluster.run(1)).phase is Phase.SHADOW


async def test_what_a_person_writes_between_is_followed_and_told(cluster: Cluster) -> None:
    await cluster.run(1)
    cluster.wished = NEW
    await cluster.run(70)
    promoted = replace(cluster.state.drop_candidate(), stable=NEW.loaded.hash)
    cluster.cell.put(promoted)
    assert await cluster.run(10) == promoted
    assert cluster.list_reasons()[-1] == "PolicyPromoted"
    cluster.cell.put(replace(promoted, stable=OLD.loaded.hash, pinned=Intervention("3 a.m.")))
    state = await cluster.run(600)
    assert (state.stable, state.phase) == (OLD.loaded.hash, Phase.STABLE)
    cluster.wished = OLD
    assert (await cluster.run(1)).pinned is None


async def test_a_write_of_another_leader_is_not_undone(cluster: Cluster) -> None:
    await cluster.run(1)
    cluster.wished = NEW
    states = MemoryStates(cluster.cell)
    paused = replace(cluster.state, paused=Intervention("holidays"))
    await states.read()

    async def keep(*_: object) -> None:
        """Between the leader's read and its write, a person writes."""
        cluster.revisions.keep = MemoryRevisions().keep  # type: ignore[method-assign]  once
        assert await states.write(paused)

    cluster.revisions.keep = keep  # type: ignore[method-assign]  the moment between read and write
    state = await cluster.run(1)
    assert (state.phase, state.paused) == (Phase.STABLE, Intervention("holidays"))


async def test_a_state_that_cannot_be_read_is_told_and_tried_again(cluster: Cluster) -> None:
    await cluster.run(1)
    cluster.cell.error = "cannot read configmap podgate-system/podgate-policy-state: forbidden"
    await cluster.run(3)
    assert cluster.troubles == [cluster.cell.error]
    cluster.cell.error, cluster.wished = "", NEW
    assert (await cluster.run(1)).phase is Phase.SHADOW


async def test_a_document_that_cannot_be_kept_is_not_named(cluster: Cluster) -> None:
    await cluster.run(1)
    cluster.revisions.error, cluster.wished = "forbidden", NEW
    assert (await cluster.run(5)).phase is Phase.STABLE
    assert cluster.troubles == ["forbidden"]


async def test_a_state_is_written_only_when_it_changes(cluster: Cluster) -> None:
    await cluster.run(1)
    cluster.wished = NEW
    await cluster.run(301)
    assert cluster.cell.version == 5


async def test_without_a_wish_nothing_is_written(cluster: Cluster) -> None:
    cluster.wished = None
    with pytest.raises(AssertionError):
        await cluster.run(5)
    assert cluster.cell.version == 0


async def test_the_end_of_a_term_is_reported(cluster: Cluster) -> None:
    task = asyncio.create_task(cluster._leader.run())
    await wait_until(lambda: cluster.cell.state is not None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cluster.state.stable == OLD.loaded.hash
