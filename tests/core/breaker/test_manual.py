"""Manual breaker states: forced states, resets, suppressed quota events, and their effect on proposals."""

import pytest
from msgspec.structs import replace

from tests.core.breakers import ERRORS, SECOND_US, USUAL, Breaker, build_open_breaker, build_probing_breaker
from webhook.core import breaker as machine
from webhook.core.breaker import HELD, BreakerView, Forcing, Record, State
from webhook.core.breaker.manual import EXCUSED_MAX, EXCUSED_US
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.record import EVERY_SOURCE, BreakerEnvironment
from webhook.core.breaker.trip_detection import EMPTY

NOW_US = 10 * SECOND_US
UNTIL_US = 5000 * SECOND_US
TRIPS_AT_ONCE = replace(USUAL, error_rate=replace(ERRORS, consecutive=1, minimum=1), latency=None)

# Forced


@pytest.mark.parametrize(("state", "admitted"), [(State.FORCED_OPEN, False), (State.FORCED_CLOSED, True)])
@pytest.mark.parametrize("is_reported", [False, True])
def test_a_forced_state_alone_decides_admission(state: State, *, admitted: bool, is_reported: bool) -> None:
    for breaker in (Breaker(), build_open_breaker(), build_probing_breaker()[0]):
        now_us = breaker.record.since_us
        breaker.force(state, UNTIL_US)
        if is_reported:
            breaker.apply_override(now_us)
        before = breaker.record
        assert breaker.charge(UNTIL_US - 1, "x", "new") is admitted
        for source in "defg":
            breaker.record_quota_event(now_us, source)
        breaker.record_good_and_bad(now_us, good=5, bad=50, latency_us=9 * SECOND_US)
        assert breaker.record == before, "it counts no outcomes and quota events, and leases no probes"
        assert breaker.view(UNTIL_US - 1).state is state


def test_forced_state_is_shown_before_it_is_applied() -> None:
    breaker = build_open_breaker()
    breaker.force(State.FORCED_CLOSED, UNTIL_US, "INC-7")
    view = breaker.view(NOW_US)
    assert view == BreakerView(
        State.FORCED_CLOSED, 1, NOW_US, UNTIL_US, "INC-7", tripped_at_us=SECOND_US, tripped_by=view.tripped_by
    )
    breaker.apply_override(NOW_US)
    assert breaker.view(NOW_US + 1) == replace(view, generation=2)


def test_forced_state_of_the_plan_precedes_that_of_the_record() -> None:
    breaker = Breaker()
    breaker.force(State.FORCED_OPEN, UNTIL_US)
    breaker.apply_override(NOW_US)
    breaker.force(State.FORCED_CLOSED, UNTIL_US + 1)
    assert breaker.view(NOW_US).state is State.FORCED_CLOSED
    assert breaker.charge(NOW_US, "x")


def test_removed_override_stays_in_force_until_it_is_applied() -> None:
    breaker = Breaker()
    breaker.force(State.FORCED_OPEN, UNTIL_US, "INC-8")
    breaker.apply_override(NOW_US)
    breaker.force(None)
    view = breaker.view(NOW_US + 1)
    assert (view.state, view.open_until_us, view.reason, view.early) == (State.FORCED_OPEN, UNTIL_US, "INC-8", 0)
    assert view.compute_open_remaining_us(NOW_US + 1) == UNTIL_US - NOW_US - 1
    assert breaker.apply_override(NOW_US + 2) is State.CLOSED
    assert breaker.moves[-1].reason == "released manually"


def test_override_is_one_transition_and_a_later_end_only_extends_it() -> None:
    breaker = Breaker()
    breaker.force(State.FORCED_OPEN, UNTIL_US)
    for _ in range(3):
        breaker.apply_override(NOW_US)
    breaker.force(State.FORCED_OPEN, UNTIL_US + 9, "INC-9")
    breaker.apply_override(NOW_US)
    assert [move.new for move in breaker.moves] == [State.FORCED_OPEN]
    assert (breaker.record.open_until_us, breaker.record.reason) == (UNTIL_US + 9, "INC-9")
    assert breaker.find_state(UNTIL_US) is State.FORCED_OPEN
    assert breaker.find_state(UNTIL_US + 9) is State.CLOSED


def test_expired_override_is_not_applied() -> None:
    breaker = build_open_breaker()
    breaker.force(State.FORCED_OPEN, NOW_US)
    assert breaker.apply_override(NOW_US) is State.OPEN
    assert breaker.view(NOW_US).state is State.OPEN


def test_outcomes_of_probes_from_before_an_override_are_ignored() -> None:
    breaker, now_us = build_probing_breaker()
    for uid in "abc":
        breaker.charge(now_us, uid)
    breaker.force(State.FORCED_OPEN, UNTIL_US)
    breaker.apply_override(now_us)
    breaker.force(None)
    breaker.apply_override(now_us)
    before = breaker.record
    for uid in "abc":
        breaker.record_outcome(now_us, ok=False, uid=uid, generation=2)
    assert breaker.record == before
    assert (before.state, before.generation, before.leases, before.windows) == (State.CLOSED, 4, (), EMPTY)


def test_override_that_ends_before_it_is_applied_leaves_probes_unchanged() -> None:
    breaker, now_us = build_probing_breaker()
    breaker.charge(now_us, "a")
    before = breaker.record
    breaker.force(State.FORCED_CLOSED, now_us + 10)
    breaker.record_outcome(now_us + 5, ok=False, uid="a")
    assert breaker.record == before
    breaker.record_outcome(now_us + 10, ok=False, uid="a")
    assert breaker.record.state is State.OPEN


# Reset


def test_reset_of_the_same_time_is_applied_once() -> None:
    breaker = build_open_breaker()
    assert breaker.apply_override(NOW_US, NOW_US) is State.CLOSED
    assert breaker.moves[-1].reason == "reset manually"
    for at_us, source in enumerate("abc", NOW_US + 5):
        breaker.record_quota_event(at_us, source)
    assert breaker.apply_override(NOW_US + 20, NOW_US) is State.OPEN


def test_reset_older_than_the_trip_is_ignored() -> None:
    breaker = build_open_breaker(at_us=NOW_US)
    assert breaker.apply_override(NOW_US + 9, NOW_US) is State.OPEN
    assert breaker.apply_override(NOW_US + 9, NOW_US + 1) is State.CLOSED


def test_reset_in_closed_clears_the_counts_and_keeps_the_generation() -> None:
    breaker = Breaker()
    for source in "ab":
        breaker.record_quota_event(5, source)
    breaker.apply_override(7, 6)
    assert (breaker.record.generation, breaker.record.windows, breaker.moves) == (0, EMPTY, [])
    breaker.record_quota_event(8, "c")
    breaker.apply_override(9, 6)
    assert breaker.record.windows != EMPTY, "the same reset is not applied again"


def test_reset_of_a_future_time_is_applied_once() -> None:
    breaker = Breaker(TRIPS_AT_ONCE)
    breaker.record_good_and_bad(NOW_US, good=0, bad=1, latency_us=0)
    future_us = NOW_US + 60 * SECOND_US
    assert breaker.apply_override(NOW_US + 1, future_us) is State.CLOSED
    breaker.record_good_and_bad(NOW_US + 2, good=0, bad=1, latency_us=0)
    assert breaker.apply_override(NOW_US + 3, future_us) is State.CLOSED
    assert breaker.find_state(NOW_US + SECOND_US) is State.OPEN
    assert breaker.apply_override(NOW_US + SECOND_US + 1, future_us) is State.OPEN
    assert breaker.apply_override(NOW_US + SECOND_US + 2, future_us + 1) is State.CLOSED, "a later reset"


def test_a_reset_makes_outcomes_of_probes_stale() -> None:
    breaker, now_us = build_probing_breaker()
    breaker.charge(now_us, "a")
    breaker.apply_override(now_us + 1, now_us + 1)
    before = breaker.record
    breaker.record_outcome(now_us + 2, ok=False, uid="a", generation=2)
    assert breaker.record == before
    assert before.generation == 3


def test_forced_state_is_not_reset() -> None:
    breaker = Breaker()
    breaker.force(State.FORCED_OPEN, UNTIL_US)
    assert breaker.apply_override(NOW_US, NOW_US) is State.FORCED_OPEN
    breaker.force(None)
    assert breaker.apply_override(NOW_US + 5, NOW_US) is State.CLOSED
    assert len(breaker.moves) == 2, "the release of an override is no reset"


# Suppressed quota events


def test_quota_events_of_suppressed_sources_do_not_count_until_it_ends() -> None:
    breaker = Breaker()
    for source in "abxy":
        breaker.suppress_quota_events(NOW_US, "a", "b", "a")
        breaker.record_quota_event(NOW_US, source)
    assert breaker.record.state is State.CLOSED
    assert len(breaker.record.excused) == 2
    later = Breaker(record=breaker.record)
    breaker.record_quota_event(NOW_US + EXCUSED_US - 1, "a")
    assert breaker.record.state is State.CLOSED
    for source in "abc":
        later.record_quota_event(NOW_US + EXCUSED_US, source)
    assert later.record.state is State.OPEN


def test_suppression_discards_counted_quota_events_of_its_source() -> None:
    breaker = Breaker()
    breaker.record_quota_event(NOW_US, "a")
    breaker.record_quota_event(NOW_US, "b")
    breaker.suppress_quota_events(NOW_US + 1, "a")
    breaker.record_quota_event(NOW_US + 2, "c")
    assert breaker.record.state is State.CLOSED
    breaker.record_quota_event(NOW_US + 3, "d")
    assert breaker.record.state is State.OPEN


def test_suppression_of_too_many_sources_applies_to_every_source() -> None:
    breaker = Breaker()
    breaker.suppress_quota_events(NOW_US, *[f"c{number}" for number in range(EXCUSED_MAX)])
    assert len(breaker.record.excused) == EXCUSED_MAX
    breaker.suppress_quota_events(NOW_US, "one more")
    assert [exclusion.source for exclusion in breaker.record.excused] == [EVERY_SOURCE]
    breaker.suppress_quota_events(NOW_US + 1, "yet another")
    for source in "abcdef":
        breaker.record_quota_event(NOW_US + 2, source)
    assert (breaker.record.state, breaker.record.windows) == (State.CLOSED, EMPTY)


def test_suppression_outlasts_a_reset() -> None:
    breaker = build_open_breaker(at_us=NOW_US)
    breaker.suppress_quota_events(NOW_US, "a")
    breaker.apply_override(NOW_US + 1, NOW_US + 1)
    for source in "ayz":
        breaker.record_quota_event(NOW_US + 2, source)
    assert breaker.record.state is State.CLOSED


# Limit of open breakers


def test_trip_at_open_max_is_reported_and_clears_the_windows() -> None:
    breaker = Breaker(replace(TRIPS_AT_ONCE, open_max=2), environment=BreakerEnvironment(opened=lambda: 2))
    breaker.record_quota_event(5, "a")
    breaker.record_outcome(6, ok=False)
    assert breaker.find_state(SECOND_US) is State.CLOSED
    (move,) = breaker.moves
    assert (move.is_change, move.at_us, move.generation) == (False, SECOND_US, 0)
    assert move.reason == HELD + "errorRate: >= 95% in each of 1 intervals of 1s, 1 of 1 in the last"
    assert breaker.record == Record("payment-api")
    assert breaker.view(SECOND_US).tripped_at_us == 0


def test_breaker_opens_below_open_max() -> None:
    breaker = Breaker(replace(TRIPS_AT_ONCE, open_max=2), environment=BreakerEnvironment(opened=lambda: 1))
    breaker.record_outcome(6, ok=False)
    assert breaker.find_state(SECOND_US) is State.OPEN


def test_failed_probe_opens_the_breaker_above_open_max() -> None:
    breaker, now_us = build_probing_breaker()
    breaker.plan = replace(USUAL, open_max=1)
    breaker.environment = BreakerEnvironment(opened=lambda: 9)
    breaker.charge(now_us, "a")
    breaker.record_outcome(now_us, ok=False, uid="a")
    assert breaker.record.state is State.OPEN


# Views of other replicas


def test_view_of_a_higher_generation_is_adopted() -> None:
    view = build_open_breaker().view(NOW_US)
    breaker = Breaker()
    breaker.propose(view)
    assert breaker.view(NOW_US) == view
    older = build_open_breaker()
    before = build_probing_breaker()[0].record
    newer = Breaker(record=before)
    newer.propose(older.view(NOW_US))
    assert newer.record == before


def test_open_view_precedes_closed_in_the_same_generation() -> None:
    view = build_open_breaker().view(NOW_US)
    other = Breaker(record=Record("payment-api", generation=1))
    other.propose(view)
    assert other.record.state is State.OPEN
    before = other.record
    other.propose(replace(view, state=State.CLOSED, open_until_us=0))
    other.propose(replace(view, open_until_us=view.open_until_us + 1))
    assert other.record == before


def test_adopted_view_past_its_end_is_half_open_at_once() -> None:
    view = build_open_breaker().view(NOW_US)
    breaker = Breaker()
    breaker.propose(view)
    assert breaker.find_state(view.open_until_us + 1) is State.HALF_OPEN
    assert breaker.moves[0].at_us == view.open_until_us


@pytest.mark.parametrize("taken", [0, 2, 3])
def test_adopted_view_keeps_failed_sources_and_early_probes(taken: int) -> None:
    breaker = build_open_breaker()
    for number in range(taken):
        breaker.charge(NOW_US, str(number), "new")
    view = breaker.view(NOW_US)
    adopting = Breaker()
    adopting.propose(view)
    assert adopting.view(NOW_US) == replace(view, probes_leased=0), "leases are not part of a view"
    answers = [adopting.charge(NOW_US, f"later-{number}", "new") for number in range(4)]
    assert answers == [number < 3 - taken for number in range(4)]


def test_adopted_half_open_breaker_admits_probes_and_closes() -> None:
    breaker, now_us = build_probing_breaker()
    breaker.charge(now_us, "a")
    breaker.record_outcome(now_us, ok=True, uid="a")
    adopting = Breaker()
    adopting.propose(breaker.view(now_us))
    for uid in "bc":
        assert adopting.charge(now_us, uid)
        adopting.record_outcome(now_us, ok=True, uid=uid)
    assert adopting.record.state is State.CLOSED


def test_adopted_view_keeps_reset_and_suppressions_of_the_record() -> None:
    breaker = Breaker()
    breaker.apply_override(NOW_US, 2 * SECOND_US)
    breaker.suppress_quota_events(NOW_US, "a")
    breaker.propose(build_open_breaker(at_us=3 * SECOND_US).view(NOW_US))
    assert (breaker.record.reset_us, len(breaker.record.excused)) == (2 * SECOND_US, 1)
    assert breaker.apply_override(NOW_US, 2 * SECOND_US) is State.OPEN, "that reset was applied before"


def test_adopted_forced_state_ends_at_its_time() -> None:
    source = Breaker()
    source.force(State.FORCED_OPEN, UNTIL_US)
    source.apply_override(NOW_US)
    breaker = Breaker()
    breaker.propose(source.view(NOW_US))
    assert breaker.find_state(UNTIL_US - 1) is State.FORCED_OPEN
    assert breaker.find_state(UNTIL_US) is State.CLOSED


def test_restarted_breaker_is_closed_from_any_state() -> None:
    forced = Breaker(replace(USUAL, forcing=Forcing(State.FORCED_OPEN, UNTIL_US, "INC-1")))
    forced.apply_override(NOW_US)
    suppressed = Breaker()
    suppressed.suppress_quota_events(NOW_US, "a")
    for breaker in (build_open_breaker(), build_probing_breaker()[0], forced, suppressed):
        restarted = machine.restart(breaker.record)
        assert restarted == Record("payment-api", generation=breaker.record.generation + 1)
        assert machine.restart(restarted) is restarted


def test_a_plan_without_outcomes_counts_none() -> None:
    breaker = Breaker(replace(USUAL, has_outcomes=False))
    breaker.record_outcomes(NOW_US, Outcomes(0, 100, 0))
    assert breaker.record == Record("payment-api")
