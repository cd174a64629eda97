"""Conflict resolution between states of one breaker, rule by rule: docs/design/breaker-forks.md."""

import pytest
from msgspec.structs import replace

from tests.core.breakers import USUAL
from webhook.core.breaker import BreakerView, Record, State, apply_proposal, is_newer_view, is_winning

FORK = 5
"""The last decision of the store that the replica knew."""
CLOSED = Record("web", generation=FORK)
OPEN = Record("web", State.OPEN, generation=FORK, since_us=100, open_until_us=280, tripped_at_us=100)
ALONE = BreakerView(State.OPEN, FORK + 1, 300, 480, "alone", tripped_at_us=300, alone=1)
"""What a replica decided that was cut off from `CLOSED`."""


@pytest.mark.parametrize("record", [CLOSED, replace(CLOSED, generation=FORK + 2, passed=2)])
def test_a_replica_wins_if_the_store_decided_nothing_since_the_fork(record: Record) -> None:
    assert is_winning(ALONE, record)


@pytest.mark.parametrize("decisions", [1, 20])
def test_the_store_wins_if_it_decided_after_the_fork(decisions: int) -> None:
    record = replace(CLOSED, generation=FORK + 1)
    alone = replace(ALONE, generation=FORK + decisions, alone=decisions)
    assert not is_winning(alone, record)
    assert not is_winning(replace(alone, generation=FORK + decisions + 3, passed=3), record)


def test_a_replica_does_not_undo_a_trip_that_it_did_not_know() -> None:
    closed = BreakerView(State.CLOSED, FORK + 1, 300, tripped_at_us=99, alone=1)
    assert not is_winning(closed, OPEN)
    assert is_winning(replace(closed, tripped_at_us=100), OPEN)
    assert is_winning(replace(closed, state=State.FORCED_CLOSED), OPEN), "what people set needs to know no trip"
    assert is_winning(closed, replace(OPEN, state=State.CLOSED)), "there is nothing to undo"


def test_a_view_from_before_a_reset_loses() -> None:
    assert not is_winning(ALONE, replace(CLOSED, reset_us=301))
    assert is_winning(ALONE, replace(CLOSED, reset_us=300))
    assert is_winning(replace(ALONE, state=State.CLOSED), replace(CLOSED, reset_us=301)), "only a trip is reset"


def test_a_forced_state_of_the_store_wins() -> None:
    assert not is_winning(ALONE, replace(CLOSED, state=State.FORCED_CLOSED))


@pytest.mark.parametrize(
    ("changes", "wins"),
    [
        ({"state": State.HALF_OPEN}, True),
        ({"state": State.CLOSED}, True),
        ({"tripped_at_us": 299}, True),
        ({"tripped_at_us": 301}, False),
        ({"since_us": 299}, True),
        ({"since_us": 301}, False),
        ({}, False),
    ],
)
def test_of_two_replicas_with_one_fork_the_more_restrictive_wins(changes: dict[str, object], wins: bool) -> None:  # noqa: FBT001  of a table
    other = Record(
        *("web", State.OPEN, FORK + 2, 300, 480), tripped_at_us=300, alone=2
    )  # more decisions, and they count for nothing
    assert is_winning(ALONE, replace(other, **changes)) is wins


def test_replicas_with_other_forks_are_ordered_by_the_fork() -> None:
    other = replace(CLOSED, generation=FORK + 3, alone=2)
    assert not is_winning(ALONE, other), "its fork is newer"
    assert not is_winning(ALONE, replace(other, alone=0))


def test_of_a_store_that_has_lost_decisions_the_newer_one_wins() -> None:
    lost = replace(CLOSED, generation=FORK - 2)
    assert is_winning(ALONE, lost)
    assert not is_winning(replace(ALONE, state=State.CLOSED, tripped_at_us=99), replace(OPEN, generation=FORK - 2))


@pytest.mark.parametrize("passed", [0, 2])
def test_the_generation_of_a_winner_is_above_both(passed: int) -> None:
    """Outcomes of the branch that is given up match no later generation; decisions alone stay countable."""
    record = replace(CLOSED, generation=FORK + passed, passed=passed, reset_us=7, asked_us=8)
    taken = apply_proposal(record, USUAL, ALONE)
    assert (taken.state, taken.generation) == (State.OPEN, FORK + passed + 1)
    assert taken.decided - taken.alone == FORK, "the fork stays"
    assert (taken.reset_us, taken.asked_us) == (7, 8)


def test_a_view_of_the_store_keeps_its_generation_or_that_of_what_it_replaces() -> None:
    view = BreakerView(State.OPEN, 9, 300, 480, tripped_at_us=300, passed=1)
    assert apply_proposal(CLOSED, USUAL, view).generation == 9
    due = replace(CLOSED, generation=12, passed=6)
    taken = apply_proposal(CLOSED, USUAL, view, due)
    assert (taken.generation, taken.alone) == (12, 0)


@pytest.mark.parametrize("generation", [FORK + 1, FORK + 4])
def test_a_loser_with_a_generation_as_high_raises_that_of_the_store(generation: int) -> None:
    record = replace(CLOSED, generation=FORK + 1)
    alone = replace(ALONE, generation=generation, passed=generation - FORK - 1)
    kept = apply_proposal(record, USUAL, alone)
    assert kept == replace(record, generation=generation + 1, passed=generation - FORK)
    assert kept.decided == record.decided


def test_a_loser_that_is_older_or_the_same_changes_nothing() -> None:
    record = Record("web", State.OPEN, FORK + 1, 300, 480, tripped_at_us=300, alone=1)
    same = replace(ALONE, reason="in other words")
    assert apply_proposal(record, USUAL, same) is record
    assert apply_proposal(replace(record, alone=0), USUAL, same) != replace(record, alone=0)
    newer = replace(CLOSED, generation=FORK + 2)
    assert apply_proposal(newer, USUAL, ALONE) is newer
    assert apply_proposal(newer, USUAL, replace(ALONE, alone=0)) is newer


def test_of_two_views_of_a_store_the_newer_one_is_known() -> None:
    view = BreakerView(State.HALF_OPEN, 7, 300, passed=2)
    assert is_newer_view(replace(view, generation=8, passed=5), view), "by the generation first"
    assert is_newer_view(replace(view, passed=1), view), "then by decisions"
    assert is_newer_view(replace(view, state=State.OPEN), view), "then the more restrictive one"
    assert not is_newer_view(replace(view, state=State.CLOSED), view)
    assert not is_newer_view(replace(view, reason="in other words"), view)
