"""Progress of a policy, as a pipeline that waits for it reads it."""

import pytest
from msgspec.structs import replace

from webhook.core.rollout.progress import RolloutVerdict, describe_phase, judge
from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState

A, B, C = ("a" * 16, "b" * 16, "c" * 16)
T0 = "2026-12-01T04:00:00Z"
PIN = Intervention("INC-1", by="ann", at=T0)
CANARY = RolloutState(A, governed=True, phase=Phase.CANARY, candidate=B, step=1, since=T0)
PENDING, PROMOTED, TAKEN_BACK = RolloutVerdict.PENDING, RolloutVerdict.PROMOTED, RolloutVerdict.TAKEN_BACK


@pytest.mark.parametrize(
    ("wished", "state", "verdict", "text"),
    [
        (B, None, PENDING, "there is no state of a rollout: no leader has written one yet"),
        (B, CANARY, PENDING, f"{B}: canary step 2, since {T0}"),
        (B, replace(CANARY, phase=Phase.SHADOW, waits_for="19 Pods, 20 needed"), PENDING, "waits: 19 Pods, 20 needed"),
        (B, RolloutState(A, governed=True), PENDING, f"{B} waits for the leader to begin"),
        (B, RolloutState(A), PROMOTED, f"{B} is in force"),
        (B, RolloutState(B, governed=True), PROMOTED, f"{B} is in force"),
        (C, replace(CANARY, stable=B, candidate=C), PROMOTED, f"{B} is in force"),
        (B, RolloutState(A, rejected=(Rejection(B, "Pending", "9 % > 8 %"),)), TAKEN_BACK, "Pending (9 % > 8 %)"),
        (B, RolloutState(A, pinned=PIN), TAKEN_BACK, f"{B} is not tried: {A} is pinned: INC-1, by ann, at {T0}"),
        (A, RolloutState(A, governed=True), PENDING, f"the ConfigMap wishes {A}, not {B}"),
        ("", RolloutState(A, governed=True), PENDING, "the ConfigMap wishes nothing valid"),
        (B, RolloutState(B, pinned=PIN, rejected=(Rejection(B, "x"),)), PROMOTED, f"{B} is in force"),
    ],
)
def test_what_has_become_of_an_awaited_policy(
    wished: str, state: RolloutState | None, verdict: RolloutVerdict, text: str
) -> None:
    found = judge(B, wished, state)
    assert found.verdict is verdict
    assert text in found.text


def test_a_policy_that_another_one_has_replaced_is_not_waited_for() -> None:
    state = RolloutState(A, governed=True)
    assert judge(B, C, state, was_wished=True).verdict is TAKEN_BACK
    assert judge(B, C, CANARY, was_wished=True).verdict is PENDING, "it is still the candidate"


def test_the_phase_in_words() -> None:
    assert describe_phase(CANARY, 3) == f"canary step 2 of 3, since {T0}"
    assert describe_phase(RolloutState(A)) == "no candidate"
    assert describe_phase(replace(CANARY, paused=PIN)) == f"canary step 2, since {T0}, paused: INC-1, by ann, at {T0}"
