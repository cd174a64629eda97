"""A command and a leader write the same state: the command is judged again by what the leader wrote."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.harness.policy_revisions import MemoryRevisions
from webhook.core.document.configmap import KEY, NAME, ConfigMap
from webhook.core.document.loading import compute_hash
from webhook.core.rollout.state import Phase, Rejection, RolloutState
from webhook.errors import RolloutError, UserError
from webhook.operations.rollout_editor import RolloutEditor
from webhook.operations.stored_policies import StoredPolicies

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- {name: web, match: {namespaces: [NAME]}}\n"
OLD, NEW = (HEAD.replace("NAME", name).encode() for name in ("old", "new"))
A, B = compute_hash(OLD), compute_hash(NEW)
CANARY = RolloutState(A, governed=True, phase=Phase.CANARY, candidate=B)
Change = Callable[[RolloutState], RolloutState]


class States:
    """A state that a leader changes before each of the first writes."""

    def __init__(self, state: RolloutState | None, *changes: Change) -> None:
        self.state = state
        self.error = ""
        self._changes = list(changes)
        self._found: RolloutState | None = None

    async def read(self) -> RolloutState | None:
        if self.error:
            raise RolloutError(self.error)
        self._found = self.state
        return self.state

    async def write(self, state: RolloutState) -> bool:
        if self._changes:
            assert self.state is not None
            self.state = self._changes.pop(0)(self.state)
        if self.state != self._found:
            return False
        self.state = state
        return True


async def open_editor(states: States, *, dry_run: bool = False) -> tuple[RolloutEditor, MemoryRevisions]:
    revisions = MemoryRevisions()
    await revisions.keep(A, OLD)
    await revisions.mark_in_force(A)

    async def read_config_map(name: str) -> ConfigMap | None:
        return ConfigMap(data={KEY: NEW.decode()}) if name == NAME else None

    async def read_user() -> str:
        return "ann"

    async def list_objects(_: object) -> list[dict[str, object]]:
        return []

    policies = StoredPolicies(read_config_map, states, revisions, read_user, list_objects)
    return RolloutEditor(policies, lambda: "2026-12-01T04:00:00Z", dry_run=dry_run), revisions


async def test_a_candidate_that_a_leader_takes_back_meanwhile_is_not_promoted() -> None:
    states = States(CANARY, lambda state: state.reject(Rejection(B, "too many Pending Pods")))
    editor, _ = await open_editor(states)
    with pytest.raises(UserError, match="was taken back: too many Pending Pods") as refused:
        await editor.promote()
    assert "podgate policy retry" in refused.value.remedy
    assert states.state == RolloutState(A, governed=True, rejected=(Rejection(B, "too many Pending Pods"),))


async def test_a_rollback_of_a_candidate_that_a_leader_promotes_meanwhile_takes_it_back_all_the_same() -> None:
    states = States(CANARY, lambda state: replace(state.drop_candidate(), stable=B, governed=False))
    editor, revisions = await open_editor(states)
    await revisions.keep(B, NEW)
    change = await editor.roll_back(None, "INC-1")
    assert (change.state.stable, [rejection.hash for rejection in change.state.rejected]) == (A, [B])
    assert change.state == states.state
    assert change.state.pinned is not None
    assert change.state.pinned.by == "ann"


async def test_a_rollback_is_refused_where_no_revision_is_known_to_have_been_in_force() -> None:
    editor, revisions = await open_editor(States(RolloutState(B)))
    await revisions.delete(A)
    await revisions.keep(A, OLD)
    await revisions.keep(B, NEW)
    with pytest.raises(UserError, match=f"it is not recorded that {A}, the one before, was ever in force") as refused:
        await editor.roll_back(None, "INC-1")
    assert "--to REV" in refused.value.remedy
    assert (await editor.roll_back("1", "INC-1")).state.stable == A


async def test_a_state_that_changes_all_the_time_is_reported() -> None:
    changes: list[Change] = [lambda state: replace(state, step=state.step + 1)] * 20
    editor, _ = await open_editor(States(CANARY, *changes))
    with pytest.raises(UserError, match="nothing was written"):
        await editor.pause("INC-1")


async def test_what_cannot_be_read_is_named() -> None:
    states = States(CANARY)
    states.error = "cannot read configmap: HTTP 403: grant the right to get it"
    editor, _ = await open_editor(states)
    with pytest.raises(UserError, match="grant the right"):
        await editor.retry()
    editor, _ = await open_editor(States(None))
    with pytest.raises(UserError, match="there is none: no leader") as refused:
        await editor.retry()
    assert "start a controller" in refused.value.remedy


async def test_a_promoted_policy_is_kept_but_not_in_a_dry_run() -> None:
    for dry_run in (True, False):
        editor, revisions = await open_editor(States(RolloutState(A, governed=True)), dry_run=dry_run)
        assert (await editor.promote()).state.stable == B
        assert [kept.hash for kept in await revisions.list_all()] == ([A] if dry_run else [B, A])


async def test_a_target_that_is_not_kept_is_refused() -> None:
    states = States(RolloutState(A))
    editor, revisions = await open_editor(states)
    await revisions.delete(A)
    for name in ("9", A, "candidate"):
        with pytest.raises(UserError, match=r"no such revision|there is none now"):
            await editor.roll_back(name, "INC-1")
