"""Policies in force by a state and a wished policy: the same in every process."""

import pytest

from webhook.core.rollout.state import (
    REJECTED_MAX,
    InForce,
    Intervention,
    Phase,
    Rejection,
    RolloutState,
    StateError,
    decide_in_force,
    decode_state,
    encode_state,
)

OLD, NEW, OTHER = "a" * 16, "b" * 16, "c" * 16
GOVERNED = RolloutState(OLD, governed=True)
CANARY = RolloutState(OLD, governed=True, phase=Phase.CANARY, candidate=NEW, step=1, since="2026-01-01T00:00:00Z")
PIN = Intervention("incident 7", by="alice")


@pytest.mark.parametrize(
    ("wished", "state", "expected"),
    [
        (NEW, None, InForce(NEW)),
        ("", None, InForce("")),
        (OLD, GOVERNED, InForce(OLD)),
        (NEW, GOVERNED, InForce(OLD)),
        (NEW, RolloutState(OLD), InForce(NEW)),
        ("", RolloutState(OLD), InForce(OLD)),
        (NEW, CANARY, InForce(OLD, NEW)),
        (OTHER, CANARY, InForce(OLD, NEW)),
        (OLD, CANARY, InForce(OLD, NEW)),
        ("", CANARY, InForce(OLD, NEW)),
        ("", GOVERNED, InForce(OLD)),
        ("", RolloutState(OLD, pinned=PIN), InForce(OLD)),
        (NEW, RolloutState(OLD, pinned=PIN), InForce(OLD)),
        (NEW, RolloutState(OLD, rejected=(Rejection(NEW, "Pending"),)), InForce(OLD)),
        (OTHER, RolloutState(OLD, rejected=(Rejection(NEW, "Pending"),)), InForce(OTHER)),
    ],
)
def test_what_is_in_force(wished: str, state: RolloutState | None, expected: InForce) -> None:
    assert decide_in_force(wished, state) == expected


def test_a_pinned_policy_has_no_candidate() -> None:
    pinned = RolloutState(OLD, governed=True, phase=Phase.CANARY, candidate=NEW, pinned=PIN)
    assert decide_in_force(NEW, pinned) == InForce(OLD)


@pytest.mark.parametrize("state", [GOVERNED, CANARY, CANARY.reject(Rejection(NEW, "Pending", "9 % > 8 %"))])
def test_a_state_is_read_as_it_was_written(state: RolloutState) -> None:
    assert decode_state(encode_state(state)) == state


def test_a_rejected_candidate_is_no_longer_one_and_the_oldest_rejections_are_forgotten() -> None:
    rejected = CANARY.reject(Rejection(NEW, "Pending"))
    assert (rejected.phase, rejected.candidate, rejected.step) == (Phase.STABLE, "", 0)
    for number in range(REJECTED_MAX + 5):
        rejected = rejected.reject(Rejection(f"{number:016x}", "Pending"))
    assert len(rejected.rejected) == REJECTED_MAX
    assert rejected.find_rejection(NEW) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "truncated"),
        ("{}", "missing required field `stable`"),
        ('{"stable": "x"}', "$.stable: 'x': not the hash"),
        (f'{{"stable": "{OLD}", "candidate": "../x"}}', "$.candidate: '../x': not the hash"),
        (f'{{"stable": "{OLD}", "phase": "Canary"}}', "$.candidate: missing, and $.phase is Canary"),
        (f'{{"stable": "{OLD}", "phase": "Other"}}', "$.phase"),
    ],
)
def test_a_wrong_state_names_the_field(text: str, words: str) -> None:
    with pytest.raises(StateError) as raised:
        decode_state(text)
    assert words in str(raised.value)
