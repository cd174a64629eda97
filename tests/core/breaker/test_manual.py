"""Manual breaker states: forced states, resets, suppressed quota events, and their effect on proposals."""

import pytest
from msgspec.structs import replace

from tests.core.breakers import ERRORS, SECOND_US, USUAL, Breaker, probing, tripped
from webhook.core import breaker as machine
from webhook.core.breaker import HELD, BreakerView, Forcing, Record, State
from webhook.core.breaker.manual import EXCUSED_MAX, EXCUSED_US
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.record import EVERY_SOURCE, BreakerEnvironment
from webhook.core.breaker.triggers import EMPTY

NOW_US = 10 * SECOND_US
UNTIL_US = 5000 * SECOND_US
EAGER = replace(USUAL, error_rate=replace(ERRORS, consecutive=1, minimum=1), latency=None)

# Forced


@pytest.mark.parametrize(("state", "admitted"), [(State.FORCED_OPEN, False), (State.FORCED_CLOSED, True)])
@pytest.mark.parametrize("is_reported", [False, True])
def test_a_forced_state_alone_decides_admission(state: State, *, admitted: bool, is_reported: bool) -> None:
    for breaker in (Breaker(), tripped(), probing()[0]):
        now_us = breaker.record.since_us
        breaker.force(state, UNTIL_US)
        if is_reported:
            breaker.apply_override(now_us)
        before = breaker.record
        assert breaker.charge(UNTIL_US - 1, "x", "new") is admitted
        for source in "defg":
            breaker.refused(now_us, source)
        breaker.outcomes(now_us, good=5, bad=50, latency_us=9 * SECOND_US)
        assert breaker.record == before, "it hears, counts and probes nothing"
        assert breaker.view(UNTIL_US - 1).state is state


def test_the_plans_word_is_shown_before_the_record_has_counted_it() -> None:
    breaker = tripped()
    breaker.force(State.FORCED_CLOSED, UNTIL_US, "INC-7")
    view = breaker.view(NOW_US)
    assert view == BreakerView(
        State.FORCED_CLOSED, 1, NOW_US, UNTIL_US, "INC-7", tripped_at_us=SECOND_US, tripped_by=view.tripped_by
    )
    breaker.apply_override(NOW_US)
    assert breaker.view(NOW_US + 1) == replace(view, generation=2)


def test_the_plans_word_beats_what_another_hand_wrote() -> None:
    breaker = Breaker()
    breaker.force(State.FORCED_OPEN, UNTIL_US)
    breaker.apply_override(NOW_US)
    breaker.force(State.FORCED_CLOSED, UNTIL_US + 1)
    assert breaker.view(NOW_US).state is State.FORCED_CLOSED
    assert breaker.charge(NOW_US, "x")


def test_an_override_that_the_record_has_not_counted_of_the_end_of_still_holds() -> None:
    breaker = Breaker()
    breaker.force(State.FORCED_OPEN, UNTIL_US, "INC-8")
    breaker.apply_override(NOW_US)
    breaker.force(None)
    view = breaker.view(NOW_US + 1)
    assert (view.state, view.open_until_us, view.reason, view.early) == (State.FORCED_OPEN, UNTIL_US, "INC-8", 0)
    assert view.open_remaining_us(NOW_US + 1) == UNTIL_US - NOW_US - 1
    assert breaker.apply_override(NOW_US + 2) is State.CLOSED
    assert breaker.moves[-1].reason == "released manually"


def test_it_is_brought_there_once_and_a_longer_time_moves_only_the_end() -> None:
    breaker = Breaker()
    breaker.force(State.FORCED_OPEN, UNTIL_US)
    for _ in range(3):
        breaker.apply_override(NOW_US)
    breaker.force(State.FORCED_OPEN, UNTIL_US + 9, "INC-9")
    breaker.apply_override(NOW_US)
    assert [move.new for move in breaker.moves] == [State.FORCED_OPEN]
    assert (breaker.record.open_until_us, breaker.record.reason) == (UNTIL_US + 9, "INC-9")
    assert breaker.at(UNTIL_US) is State.FORCED_OPEN
    assert breaker.at(UNTIL_US + 9) is State.CLOSED


def test_a_forcing_whose_time_has_passed_forces_nothing() -> None:
    breaker = tripped()
    breaker.force(State.FORCED_OPEN, NOW_US)
    assert breaker.apply_override(NOW_US) is State.OPEN
    assert breaker.view(NOW_US).state is State.OPEN


def test_forcing_it_while_probes_are_out_leaves_their_outcomes_to_nobody() -> None:
    breaker, now_us = probing()
    for uid in "abc":
        breaker.charge(now_us, uid)
    breaker.force(State.FORCED_OPEN, UNTIL_US)
    breaker.apply_override(now_us)
    breaker.force(None)
    breaker.apply_override(now_us)
    before = breaker.record
    for uid in "abc":
        breaker.outcome(now_us, ok=False, uid=uid, generation=2)
    assert breaker.record == before
    assert (before.state, before.generation, before.leases, before.windows) == (State.CLOSED, 4, (), EMPTY)


def test_forced_and_released_before_the_record_counted_of_it_changes_nothing_of_its_probes() -> None:
    breaker, now_us = probing()
    breaker.charge(now_us, "a")
    before = breaker.record
    breaker.force(State.FORCED_CLOSED, now_us + 10)
    breaker.outcome(now_us + 5, ok=False, uid="a")
    assert breaker.record == before
    breaker.outcome(now_us + 10, ok=False, uid="a")
    assert breaker.record.state is State.OPEN


# Reset


def test_a_reset_is_done_once_for_a_moment() -> None:
    breaker = tripped()
    assert breaker.apply_override(NOW_US, NOW_US) is State.CLOSED
    assert breaker.moves[-1].reason == "reset manually"
    for at_us, source in enumerate("abc", NOW_US + 5):
        breaker.refused(at_us, source)
    assert breaker.apply_override(NOW_US + 20, NOW_US) is State.OPEN


def test_one_that_was_asked_for_before_a_newer_trip_does_not_erase_it() -> None:
    breaker = tripped(at_us=NOW_US)
    assert breaker.apply_override(NOW_US + 9, NOW_US) is State.OPEN
    assert breaker.apply_override(NOW_US + 9, NOW_US + 1) is State.CLOSED


def test_a_reset_in_closed_forgets_what_was_counted_and_keeps_the_generation() -> None:
    breaker = Breaker()
    for source in "ab":
        breaker.refused(5, source)
    breaker.apply_override(7, 6)
    assert (breaker.record.generation, breaker.record.windows, breaker.moves) == (0, EMPTY, [])
    breaker.refused(8, "c")
    breaker.apply_override(9, 6)
    assert breaker.record.windows != EMPTY, "not again for the same moment"


def test_one_that_was_asked_for_by_a_clock_ahead_is_done_once_too() -> None:
    breaker = Breaker(EAGER)
    breaker.outcomes(NOW_US, good=0, bad=1, latency_us=0)
    ahead_us = NOW_US + 60 * SECOND_US
    assert breaker.apply_override(NOW_US + 1, ahead_us) is State.CLOSED
    breaker.outcomes(NOW_US + 2, good=0, bad=1, latency_us=0)
    assert breaker.apply_override(NOW_US + 3, ahead_us) is State.CLOSED
    assert breaker.at(NOW_US + SECOND_US) is State.OPEN
    assert breaker.apply_override(NOW_US + SECOND_US + 1, ahead_us) is State.OPEN
    assert breaker.apply_override(NOW_US + SECOND_US + 2, ahead_us + 1) is State.CLOSED, "another one"


def test_a_reset_makes_outcomes_of_probes_stale() -> None:
    breaker, now_us = probing()
    breaker.charge(now_us, "a")
    breaker.apply_override(now_us + 1, now_us + 1)
    before = breaker.record
    breaker.outcome(now_us + 2, ok=False, uid="a", generation=2)
    assert breaker.record == before
    assert before.generation == 3


def test_what_a_hand_holds_is_not_reset() -> None:
    breaker = Breaker()
    breaker.force(State.FORCED_OPEN, UNTIL_US)
    assert breaker.apply_override(NOW_US, NOW_US) is State.FORCED_OPEN
    breaker.force(None)
    assert breaker.apply_override(NOW_US + 5, NOW_US) is State.CLOSED
    assert len(breaker.moves) == 2, "what let go needs no reset"


# Excuses


def test_who_replaces_lost_pods_is_not_counted_for_a_while_nor_what_it_did_just_now() -> None:
    breaker = Breaker()
    for source in "abxy":
        breaker.suppress_quota_events(NOW_US, "a", "b", "a")
        breaker.refused(NOW_US, source)
    assert breaker.record.state is State.CLOSED
    assert len(breaker.record.excused) == 2
    later = Breaker(record=breaker.record)
    breaker.refused(NOW_US + EXCUSED_US - 1, "a")
    assert breaker.record.state is State.CLOSED
    for source in "abc":
        later.refused(NOW_US + EXCUSED_US, source)
    assert later.record.state is State.OPEN


def test_an_event_of_just_now_is_taken_back() -> None:
    breaker = Breaker()
    breaker.refused(NOW_US, "a")
    breaker.refused(NOW_US, "b")
    breaker.suppress_quota_events(NOW_US + 1, "a")
    breaker.refused(NOW_US + 2, "c")
    assert breaker.record.state is State.CLOSED
    breaker.refused(NOW_US + 3, "d")
    assert breaker.record.state is State.OPEN


def test_too_many_are_everybody_and_one_who_comes_after_them_does_not_end_that() -> None:
    breaker = Breaker()
    breaker.suppress_quota_events(NOW_US, *[f"c{number}" for number in range(EXCUSED_MAX)])
    assert len(breaker.record.excused) == EXCUSED_MAX
    breaker.suppress_quota_events(NOW_US, "one more")
    assert [one.source for one in breaker.record.excused] == [EVERY_SOURCE]
    breaker.suppress_quota_events(NOW_US + 1, "yet another")
    for source in "abcdef":
        breaker.refused(NOW_US + 2, source)
    assert (breaker.record.state, breaker.record.windows) == (State.CLOSED, EMPTY)


def test_excuses_outlast_whatever_happens_to_the_breaker() -> None:
    breaker = tripped(at_us=NOW_US)
    breaker.suppress_quota_events(NOW_US, "a")
    breaker.apply_override(NOW_US + 1, NOW_US + 1)
    for source in "ayz":
        breaker.refused(NOW_US + 2, source)
    assert breaker.record.state is State.CLOSED


# The guard


def test_a_trip_too_many_is_only_reported_and_its_windows_begin_again() -> None:
    breaker = Breaker(replace(EAGER, open_max=2), environment=BreakerEnvironment(opened=lambda: 2))
    breaker.refused(5, "a")
    breaker.outcome(6, ok=False)
    assert breaker.at(SECOND_US) is State.CLOSED
    (move,) = breaker.moves
    assert (move.is_change, move.at_us, move.generation) == (False, SECOND_US, 0)
    assert move.reason == HELD + "errorRate: >= 95% in each of 1 intervals of 1s, 1 of 1 in the last"
    assert breaker.record == Record("payment-api")
    assert breaker.view(SECOND_US).tripped_at_us == 0


def test_below_the_guards_number_it_opens() -> None:
    breaker = Breaker(replace(EAGER, open_max=2), environment=BreakerEnvironment(opened=lambda: 1))
    breaker.outcome(6, ok=False)
    assert breaker.at(SECOND_US) is State.OPEN


def test_a_failed_probe_opens_again_however_many_are_open() -> None:
    breaker, now_us = probing()
    breaker.plan = replace(USUAL, open_max=1)
    breaker.environment = BreakerEnvironment(opened=lambda: 9)
    breaker.charge(now_us, "a")
    breaker.outcome(now_us, ok=False, uid="a")
    assert breaker.record.state is State.OPEN


# What others remember


def test_the_higher_generation_holds() -> None:
    known = tripped().view(NOW_US)
    breaker = Breaker()
    breaker.propose(known)
    assert breaker.view(NOW_US) == known
    older = tripped()
    before = probing()[0].record
    newer = Breaker(record=before)
    newer.propose(older.view(NOW_US))
    assert newer.record == before


def test_on_a_tie_open_holds() -> None:
    known = tripped().view(NOW_US)
    other = Breaker(record=Record("payment-api", generation=1))
    other.propose(known)
    assert other.record.state is State.OPEN
    before = other.record
    other.propose(replace(known, state=State.CLOSED, open_until_us=0))
    other.propose(replace(known, open_until_us=known.open_until_us + 1))
    assert other.record == before


def test_a_view_whose_time_has_passed_is_over_at_once() -> None:
    known = tripped().view(NOW_US)
    breaker = Breaker()
    breaker.propose(known)
    assert breaker.at(known.open_until_us + 1) is State.HALF_OPEN
    assert breaker.moves[0].at_us == known.open_until_us


@pytest.mark.parametrize("taken", [0, 2, 3])
def test_who_had_failed_and_who_has_probed_early_is_remembered(taken: int) -> None:
    breaker = tripped()
    for number in range(taken):
        breaker.charge(NOW_US, str(number), "new")
    known = breaker.view(NOW_US)
    again = Breaker()
    again.propose(known)
    assert again.view(NOW_US) == replace(known, probes_leased=0), "leases are lost with the store"
    asked = [again.charge(NOW_US, f"later-{number}", "new") for number in range(4)]
    assert asked == [number < 3 - taken for number in range(4)]


def test_a_half_open_that_is_remembered_lets_probes_in_and_closes() -> None:
    breaker, now_us = probing()
    breaker.charge(now_us, "a")
    breaker.outcome(now_us, ok=True, uid="a")
    again = Breaker()
    again.propose(breaker.view(now_us))
    for uid in "bc":
        assert again.charge(now_us, uid)
        again.outcome(now_us, ok=True, uid=uid)
    assert again.record.state is State.CLOSED


def test_a_reset_and_excuses_that_the_store_knows_outlast_an_offer() -> None:
    breaker = Breaker()
    breaker.apply_override(NOW_US, 2 * SECOND_US)
    breaker.suppress_quota_events(NOW_US, "a")
    breaker.propose(tripped(at_us=3 * SECOND_US).view(NOW_US))
    assert (breaker.record.reset_us, len(breaker.record.excused)) == (2 * SECOND_US, 1)
    assert breaker.apply_override(NOW_US, 2 * SECOND_US) is State.OPEN, "that reset was done"


def test_a_forced_view_that_is_offered_ends_with_its_time() -> None:
    source = Breaker()
    source.force(State.FORCED_OPEN, UNTIL_US)
    source.apply_override(NOW_US)
    breaker = Breaker()
    breaker.propose(source.view(NOW_US))
    assert breaker.at(UNTIL_US - 1) is State.FORCED_OPEN
    assert breaker.at(UNTIL_US) is State.CLOSED


def test_a_breaker_that_the_policy_took_away_comes_back_closed_out_of_any_state() -> None:
    forced = Breaker(replace(USUAL, forcing=Forcing(State.FORCED_OPEN, UNTIL_US, "INC-1")))
    forced.apply_override(NOW_US)
    excused = Breaker()
    excused.suppress_quota_events(NOW_US, "a")
    for breaker in (tripped(), probing()[0], forced, excused):
        gone = machine.restarted(breaker.record)
        assert gone == Record("payment-api", generation=breaker.record.generation + 1)
        assert machine.restarted(gone) is gone


def test_a_plan_without_outcomes_counts_none() -> None:
    breaker = Breaker(replace(USUAL, has_outcomes=False))
    breaker.record_outcomes(NOW_US, Outcomes(0, 100, 0))
    assert breaker.record == Record("payment-api")
