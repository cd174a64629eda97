"""Commands: the change of the state by each, and its refusals with their remedies."""

from collections.abc import Callable

import pytest

from webhook.core.rollout import commands
from webhook.core.rollout.commands import RefusedCommandError
from webhook.core.rollout.state import InForce, Intervention, Phase, Rejection, RolloutState, decide_in_force

A, B, C, D = ("a" * 16, "b" * 16, "c" * 16, "d" * 16)
T0, T1, NOW = "2026-12-01T04:00:00Z", "2026-12-01T04:10:00Z", "2026-12-01T04:30:00Z"
ACTION = Intervention("INC-1", by="ann", at=NOW)
CANARY = RolloutState(
    B, governed=True, phase=Phase.CANARY, candidate=C, step=1, since=T0, above_since={"pending": T1}, waits_for="Pods"
)
GOVERNED = RolloutState(B, governed=True)
FREE = RolloutState(B)
PINNED = RolloutState(A, pinned=Intervention("INC-0", by="bob", at=T0), rejected=(Rejection(B, "INC-0"),))


def keep(*were_in_force: str, candidates: str = "") -> dict[str, bool]:
    """Return revisions, the newest first; those of `candidates` were never in force."""
    return {policy_hash: policy_hash not in candidates for policy_hash in were_in_force}


def refuse(act: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(RefusedCommandError) as refused:
        act()
    return str(refused.value), refused.value.remedy


def test_promote_puts_the_candidate_into_force_at_once() -> None:
    paused = commands.pause(CANARY, C, ACTION)
    assert commands.choose_promoted(paused, C) == C
    assert commands.promote(paused, C, governed=True) == RolloutState(C, governed=True)
    assert commands.promote(CANARY, C, governed=False) == RolloutState(C)


def test_promote_takes_the_wished_policy_where_the_leader_has_not_begun() -> None:
    assert commands.choose_promoted(GOVERNED, C) == C
    assert commands.choose_promoted(PINNED, C) == C
    promoted = commands.promote(PINNED, C, governed=False)
    assert (promoted.stable, promoted.pinned, promoted.rejected) == (C, None, PINNED.rejected)
    assert decide_in_force(C, promoted) == InForce(C)


@pytest.mark.parametrize(
    ("state", "wished", "reason", "remedy"),
    [
        (GOVERNED, B, f"{B}, the wished policy, is in force", "nothing to do"),
        (FREE, C, f"{C}, the wished policy, is in force", "nothing to do"),
        (GOVERNED, "", "no valid policy", "podgate policy lint"),
        (PINNED, B, f"{B}, the wished policy, was taken back: INC-0", "podgate policy retry"),
    ],
)
def test_promote_without_anything_to_promote_is_refused(
    state: RolloutState, wished: str, reason: str, remedy: str
) -> None:
    message, advice = refuse(lambda: commands.choose_promoted(state, wished))
    assert reason in message
    assert remedy in advice


def test_pause_holds_a_candidate_and_the_next_one() -> None:
    paused = commands.pause(CANARY, C, ACTION)
    assert (paused.paused, paused.candidate, paused.step, paused.since) == (ACTION, C, 1, T0)
    assert commands.pause(GOVERNED, B, ACTION).paused == ACTION


def test_pause_is_refused_twice_and_where_nothing_waits() -> None:
    paused = commands.pause(CANARY, C, ACTION)
    message, remedy = refuse(lambda: commands.pause(paused, C, ACTION))
    assert message == f"the rollout is paused already: INC-1, by ann, at {NOW}"
    assert remedy.startswith("podgate policy retry")
    message, remedy = refuse(lambda: commands.pause(FREE, C, ACTION))
    assert message.startswith(f"nothing to pause: {C}, in force, has no rollout")
    assert f"podgate policy rollback --to {C} " in remedy


def test_retry_forgets_the_rejection_of_the_wished_policy_and_ends_the_pin() -> None:
    other = Rejection(C, "Pending")
    state = RolloutState(A, governed=True, pinned=ACTION, rejected=(Rejection(B, "Pending"), other), waits_for="x")
    assert decide_in_force(B, state) == InForce(A)
    assert commands.retry(state, B, NOW) == RolloutState(A, governed=True, rejected=(other,))
    assert commands.find_successor(commands.retry(state, B, NOW), B) == B
    assert decide_in_force(B, commands.retry(PINNED, B, NOW)) == InForce(B)


def test_retry_ends_a_pause_and_the_step_begins_again() -> None:
    freed = commands.retry(commands.pause(CANARY, C, ACTION), C, NOW)
    assert (freed.candidate, freed.step, freed.since, freed.above_since, freed.paused) == (C, 1, NOW, {}, None)
    between = commands.retry(commands.pause(GOVERNED, B, ACTION), B, NOW)
    assert between == GOVERNED


@pytest.mark.parametrize(
    ("state", "wished", "reason"),
    [(FREE, B, f"{B}, the wished policy, is in force"), (CANARY, C, "nothing holds the rollout")],
)
def test_retry_of_nothing_is_refused(state: RolloutState, wished: str, reason: str) -> None:
    message, remedy = refuse(lambda: commands.retry(state, wished, NOW))
    assert message == f"nothing to retry: {reason}"
    assert "podgate policy candidate" in remedy


def test_a_rollback_with_a_candidate_stays_on_the_policy_in_force() -> None:
    target = commands.choose_rollback(CANARY, C, keep(C, B, A))
    assert target == B
    after = commands.roll_back(CANARY, C, target, ACTION, governed=True)
    rejected = (Rejection(C, "INC-1", by="ann", at=NOW),)
    assert after == RolloutState(B, governed=True, pinned=ACTION, rejected=rejected)
    assert decide_in_force(C, after) == InForce(B)


def test_a_rollback_before_the_leader_has_begun_rejects_the_wished_policy() -> None:
    target = commands.choose_rollback(GOVERNED, C, keep(B, A))
    assert target == B
    after = commands.roll_back(GOVERNED, C, target, ACTION, governed=True)
    assert [rejection.hash for rejection in after.rejected] == [C]
    assert after.stable == B


def test_a_rollback_without_a_candidate_takes_the_newest_earlier_revision_that_was_not_taken_back() -> None:
    assert commands.choose_rollback(FREE, B, keep(B, A)) == A
    assert commands.choose_rollback(FREE, C, keep(C, B, A)) == B
    assert commands.choose_rollback(FREE, C, keep(B, A)) == B, "the leader was away when C came into force"
    state = RolloutState(D, rejected=(Rejection(C, "Pending"),))
    assert commands.choose_rollback(state, D, keep(D, C, B, A)) == B
    after = commands.roll_back(FREE, C, B, ACTION, governed=False)
    assert [rejection.hash for rejection in after.rejected] == [C]
    assert (after.stable, after.pinned, decide_in_force(C, after)) == (B, ACTION, InForce(B))


def test_a_rollback_never_leads_to_a_policy_that_was_a_candidate_alone() -> None:
    """C was corrected in Git, or reverted, before it was taken back: nothing has rejected it."""
    state = RolloutState(D, governed=True)
    assert commands.choose_rollback(state, D, keep(D, C, B, A, candidates=C)) == B
    assert commands.choose_rollback(FREE, D, keep(D, C, B, A, candidates=C + B)) == B, "the state says that it was"


def test_a_rollback_to_what_may_have_been_a_candidate_alone_is_refused() -> None:
    """Earlier versions did not record what was in force."""
    message, remedy = refuse(lambda: commands.choose_rollback(RolloutState(D), D, keep(D, C, B, candidates=C + B)))
    assert message == (
        f"no revision before {D}, the policy in force, that was in force and not taken back; it is not recorded that"
        f" {C}, the one before, was ever in force"
    )
    assert remedy == "podgate policy history lists what is kept: name one with --to REV"


def test_a_second_rollback_goes_further_back() -> None:
    kept = keep(C, B, A)
    once = commands.roll_back(FREE, C, commands.choose_rollback(FREE, C, kept), ACTION, governed=False)
    target = commands.choose_rollback(once, C, kept)
    twice = commands.roll_back(once, C, target, ACTION, governed=False)
    assert (twice.stable, [rejection.hash for rejection in twice.rejected]) == (A, [C, B])
    message, remedy = refuse(lambda: commands.choose_rollback(twice, C, kept))
    assert message.startswith(f"no revision before {A}")
    assert "--to REV" in remedy


def test_a_rollback_to_a_named_policy_rejects_what_was_in_force_and_the_candidate() -> None:
    after = commands.roll_back(CANARY, C, A, ACTION, governed=False)
    assert [rejection.hash for rejection in after.rejected] == [B, C]
    assert (after.stable, after.phase, after.governed) == (A, Phase.STABLE, False)
    back = commands.roll_back(after, C, B, ACTION, governed=True)
    assert [rejection.hash for rejection in back.rejected] == [C, A], "who names a rejected policy wants it"


def test_a_rollback_to_the_policy_in_force_pins_it_once() -> None:
    pinned = commands.roll_back(FREE, B, B, ACTION, governed=False)
    assert pinned == RolloutState(B, pinned=ACTION)
    message, _ = refuse(lambda: commands.roll_back(pinned, B, B, ACTION, governed=False))
    assert message == f"{B} is in force and pinned already: INC-1, by ann, at {NOW}"


def test_a_rollback_ends_a_pause() -> None:
    paused = commands.pause(CANARY, C, ACTION)
    assert commands.roll_back(paused, C, B, ACTION, governed=True).paused is None
