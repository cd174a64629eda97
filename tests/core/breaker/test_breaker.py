"""The breaker: trips, countdown, probes and closing."""

import pytest

from tests.core.breaker_model import plan_of
from tests.core.breakers import (
    ERRORS,
    SECOND_US,
    SLOW,
    USUAL,
    WITHOUT_OUTCOMES,
    Breaker,
    build_open_breaker,
    build_probing_breaker,
)
from webhook.core import breaker as machine
from webhook.core.breaker import (
    ErrorRatePlan,
    LatencyPlan,
    QuotaEventPlan,
    Record,
    State,
    Transition,
    TransitionCause,
    format_duration,
)
from webhook.core.breaker.trip_detection import EMPTY

# Error rate


def test_three_bad_seconds_trip_at_the_end_of_the_third() -> None:
    breaker = Breaker()
    for second in range(3):
        breaker.record_good_and_bad(second * SECOND_US + 7, good=0, bad=12)
    assert breaker.find_state(3 * SECOND_US - 1) is State.CLOSED
    assert breaker.find_state(3 * SECOND_US + 400_000) is State.OPEN
    assert breaker.moves == [
        Transition(
            "payment-api",
            State.CLOSED,
            State.OPEN,
            3 * SECOND_US,
            "errorRate: >= 95% in each of 3 intervals of 1s, 12 of 12 in the last",
            1,
            TransitionCause.ERROR_RATE,
        )
    ]
    assert breaker.record.open_until_us == 183 * SECOND_US


@pytest.mark.parametrize(
    ("seconds", "trips"),
    [
        ([(0, 10), (0, 10), (0, 10)], True),
        ([(1, 19), (1, 19), (1, 19)], True),  # exactly 95 %
        ([(1, 19), (1, 18), (1, 19)], False),  # 94.7 %
        ([(0, 10), (0, 9), (0, 10)], False),  # fewer than the minimum
        ([(0, 10), (0, 0), (0, 10), (0, 10)], False),  # an empty second breaks the run
        ([(0, 10), (9, 1), (0, 10), (0, 10), (0, 10)], True),
        ([(0, 10), (0, 10)], False),
    ],
)
def test_error_rate_trips_after_consecutive_intervals_at_the_threshold(
    seconds: list[tuple[int, int]], *, trips: bool
) -> None:
    breaker = Breaker()
    for second, (good, bad) in enumerate(seconds):
        breaker.record_good_and_bad(second * SECOND_US, good, bad)
    assert (breaker.find_state(len(seconds) * SECOND_US) is State.OPEN) is trips


def test_an_outcome_on_the_boundary_belongs_to_the_next_interval() -> None:
    breaker = Breaker()
    for second in range(3):
        breaker.record_good_and_bad(second * SECOND_US, good=0, bad=10)
    breaker.record_outcome(3 * SECOND_US, ok=True)
    assert breaker.record.state is State.OPEN


# Latency


def test_five_slow_seconds_trip_and_the_mean_is_shown_above_the_threshold() -> None:
    breaker = Breaker()
    for second in range(5):
        breaker.record_good_and_bad(second * SECOND_US, good=2, latency_us=2 * SECOND_US)
        breaker.record_outcome(second * SECOND_US, ok=True, latency_us=2 * SECOND_US + 1)
    assert breaker.find_state(5 * SECOND_US) is State.OPEN
    assert breaker.record.reason == "latency: mean > 2s in each of 5 intervals of 1s, 2001ms over 3 in the last"


def test_a_mean_of_exactly_the_threshold_does_not_trip() -> None:
    breaker = Breaker()
    for second in range(6):
        breaker.record_good_and_bad(second * SECOND_US, good=2, latency_us=2 * SECOND_US)
    assert breaker.find_state(6 * SECOND_US) is State.CLOSED


def test_the_earliest_trip_wins_and_error_rate_on_a_tie() -> None:
    for consecutive, trigger in ((3, "errorRate"), (2, "latency")):
        plan = plan_of(
            error_rate=ERRORS, latency=LatencyPlan(2 * SECOND_US, SECOND_US, consecutive, 1), open_for_us=SECOND_US
        )
        breaker = Breaker(plan)
        for second in range(consecutive):
            breaker.record_good_and_bad(second * SECOND_US, good=0, bad=10, latency_us=3 * SECOND_US)
        breaker.find_state(consecutive * SECOND_US)
        assert breaker.record.reason.startswith(trigger)


# Quota events


def test_third_controller_denied_within_the_period_trips_at_once() -> None:
    breaker = Breaker()
    for at_us, source in enumerate("aabab"):
        breaker.record_quota_event(at_us, source)
    assert breaker.record.state is State.CLOSED
    breaker.record_quota_event(60 * SECOND_US - 1, "c")
    assert breaker.record.state is State.OPEN
    assert breaker.moves[-1].at_us == 60 * SECOND_US - 1
    assert breaker.record.reason == "quotaExceeded: 3 controllers refused within 60s"


def test_quota_event_no_longer_counts_after_the_period() -> None:
    breaker = Breaker()
    breaker.record_quota_event(0, "a")
    breaker.record_quota_event(1, "b")
    breaker.record_quota_event(60 * SECOND_US, "c")
    assert breaker.record.state is State.CLOSED
    breaker.record_quota_event(60 * SECOND_US, "a")
    assert breaker.record.state is State.OPEN


def test_repeated_denials_of_one_controller_trip_by_request_only() -> None:
    by_request = plan_of(quota=QuotaEventPlan(3, 60 * SECOND_US, by_controller=False))
    counting_controllers, counting_requests = Breaker(), Breaker(by_request)
    for at_us in range(3):
        counting_controllers.record_quota_event(at_us, "a")
        counting_requests.record_quota_event(at_us, "a")
    assert counting_controllers.record.state is State.CLOSED
    assert counting_requests.record.state is State.OPEN
    assert counting_requests.record.reason == "quotaExceeded: 3 requests refused within 60s"


@pytest.mark.parametrize("make", [build_open_breaker, lambda: build_probing_breaker()[0]])
def test_quota_events_outside_closed_change_nothing(make: object) -> None:
    breaker = make()  # type: ignore[operator]
    before, now_us = breaker.record, breaker.record.since_us
    for source in "xyz":
        breaker.record_quota_event(now_us, source)
    assert breaker.record == before


# Open, half-open, closed


def test_view_shows_countdown_and_half_open_without_a_transition() -> None:
    record, until_us = build_open_breaker().record, 181 * SECOND_US
    view = machine.view(record, USUAL, 11 * SECOND_US)
    assert (view.state, view.open_until_us, view.since_us) == (State.OPEN, until_us, SECOND_US)
    assert view.compute_open_remaining_us(11 * SECOND_US) == 170 * SECOND_US
    assert machine.view(record, USUAL, until_us - 1).state is State.OPEN
    past = machine.view(record, USUAL, until_us + 5)
    assert (past.state, past.generation, past.since_us, past.reason) == (State.HALF_OPEN, 2, until_us, "openFor passed")
    assert past.open_until_us == 0


def test_late_advance_makes_every_transition_that_is_due() -> None:
    breaker = Breaker()
    for second in range(3):
        breaker.record_good_and_bad(second * SECOND_US, good=0, bad=10)
    breaker.find_state(1000 * SECOND_US)
    assert [(move.new, move.at_us, move.generation) for move in breaker.moves] == [
        (State.OPEN, 3 * SECOND_US, 1),
        (State.HALF_OPEN, 183 * SECOND_US, 2),
    ]


def test_successes_of_all_leased_probes_close_the_breaker() -> None:
    breaker, now_us = build_probing_breaker()
    assert [breaker.charge(now_us, uid) for uid in "abcd"] == [True, True, True, False]
    for uid in "cab":
        breaker.record_outcome(now_us + 5, ok=True, uid=uid)
    assert breaker.record.state is State.CLOSED
    assert breaker.moves[-1].reason == "3 probes succeeded"
    assert breaker.record.generation == 3


def test_succeeded_probe_makes_no_room_for_another() -> None:
    breaker, now_us = build_probing_breaker()
    for uid in "abc":
        breaker.charge(now_us, uid)
    breaker.record_outcome(now_us, ok=True, uid="a")
    assert not breaker.charge(now_us, "d")


def test_failed_probe_opens_the_breaker_again_for_all_of_open_for() -> None:
    breaker, now_us = build_probing_breaker()
    breaker.charge(now_us, "a")
    breaker.charge(now_us, "b")
    breaker.record_outcome(now_us + 5, ok=True, uid="a")
    breaker.record_outcome(now_us + 9, ok=False, uid="b")
    assert breaker.record.state is State.OPEN
    assert breaker.record.open_until_us == now_us + 9 + USUAL.open_for_us
    assert breaker.record.reason == "probe failed"
    assert not breaker.charge(now_us + 9, "c")


def test_expired_lease_makes_room_for_another_probe_and_its_outcome_is_ignored() -> None:
    breaker, now_us = build_probing_breaker()
    for uid in "abc":
        breaker.charge(now_us, uid)
    expired_us = now_us + USUAL.probe_timeout_us
    assert not breaker.charge(expired_us - 1, "d")
    assert machine.view(breaker.record, USUAL, expired_us).probes_leased == 0
    assert [breaker.charge(expired_us, uid) for uid in "defg"] == [True, True, True, False]
    before = breaker.record
    breaker.record_outcome(expired_us, ok=False, uid="a")
    assert breaker.record == before


def test_outcome_without_uid_settles_the_oldest_lease_if_there_is_one() -> None:
    breaker, now_us = build_probing_breaker()
    before = breaker.record
    breaker.record_outcome(now_us, ok=False)
    assert breaker.record == before
    breaker.charge(now_us, "a")
    breaker.charge(now_us + 1, "b")
    breaker.record_outcome(now_us + 2, ok=True)
    assert [lease.uid for lease in breaker.record.leases] == ["b"]
    breaker.record_outcome(now_us + 2, ok=False, uid="stranger")
    assert breaker.record.state is State.HALF_OPEN


def test_refunded_probe_makes_room_for_another() -> None:
    breaker, now_us = build_probing_breaker()
    for uid in "abc":
        breaker.charge(now_us, uid)
    breaker.give_back(now_us, "b")
    assert [breaker.charge(now_us, uid) for uid in "de"] == [True, False]


def test_charged_probe_is_a_success_without_outcomes() -> None:
    breaker, now_us = build_probing_breaker(WITHOUT_OUTCOMES)
    assert breaker.charge(now_us, "a")
    assert breaker.record.state is State.HALF_OPEN
    assert breaker.charge(now_us + 1, "b")
    assert breaker.record.state is State.CLOSED
    assert breaker.moves[-1].reason == "2 probes succeeded"


def test_outcomes_in_open_and_of_another_generation_change_nothing() -> None:
    breaker = build_open_breaker()
    before = breaker.record
    breaker.record_outcome(2 * SECOND_US, ok=False)
    assert breaker.record == before
    half_open, now_us = build_probing_breaker()
    half_open.charge(now_us, "a")
    before = half_open.record
    half_open.record_outcome(now_us, ok=False, uid="a", generation=before.generation - 1)
    half_open.record_outcome(now_us, ok=False, generation=before.generation + 1)
    assert half_open.record == before
    half_open.record_outcome(now_us, ok=False, uid="a", generation=before.generation)
    assert half_open.record.state is State.OPEN


def test_transition_clears_outcomes_and_quota_events() -> None:
    breaker = Breaker()
    for second in range(2):
        breaker.record_good_and_bad(second * SECOND_US, good=0, bad=10)
    for source in "abc":
        breaker.record_quota_event(2 * SECOND_US, source)
    now_us = breaker.record.open_until_us
    for uid in "abc":
        breaker.charge(now_us, uid)
        breaker.record_outcome(now_us, ok=True, uid=uid)
    assert breaker.record.windows == EMPTY
    breaker.record_quota_event(now_us, "a")
    breaker.record_quota_event(now_us, "b")
    assert breaker.record.state is State.CLOSED


# Another policy


def test_counts_of_a_removed_trigger_are_cleared() -> None:
    breaker = Breaker()
    for second in range(3):
        breaker.record_good_and_bad(second * SECOND_US, good=0, bad=10)
    breaker.plan = plan_of(latency=SLOW)
    assert breaker.find_state(3 * SECOND_US) is State.CLOSED
    breaker.plan = USUAL
    assert breaker.find_state(3 * SECOND_US) is State.CLOSED
    assert breaker.record.windows == EMPTY


def test_another_interval_length_clears_the_counts() -> None:
    breaker = Breaker()
    for second in range(3):
        breaker.record_good_and_bad(second * SECOND_US, good=0, bad=10)
    breaker.plan = plan_of(error_rate=ErrorRatePlan(95, 2 * SECOND_US, 2, 10))
    breaker.record_outcome(3 * SECOND_US, ok=False)
    assert breaker.find_state(4 * SECOND_US) is State.CLOSED


def test_number_of_probes_below_the_successes_admits_one_more_probe() -> None:
    breaker, now_us = build_probing_breaker()
    for uid in "ab":
        breaker.charge(now_us, uid)
        breaker.record_outcome(now_us, ok=True, uid=uid)
    breaker.plan = plan_of(error_rate=ERRORS, probes=1)
    assert [breaker.charge(now_us, uid) for uid in "cd"] == [True, False]
    breaker.record_outcome(now_us, ok=True, uid="c")
    assert breaker.record.state is State.CLOSED


def test_restarted_breaker_is_closed_in_the_next_generation() -> None:
    fresh = Record("s", generation=4)
    assert machine.restart(fresh) is fresh
    assert machine.restart(build_open_breaker().record) == Record("payment-api", generation=2)


def test_an_outcome_settles_one_lease_only() -> None:
    breaker = Breaker(plan_of(quota=QuotaEventPlan(1, 25, by_controller=False), open_for_us=1, has_outcomes=True))
    breaker.record_quota_event(0, "a")
    breaker.charge(1, "same")
    breaker.charge(1, "same")
    breaker.record_outcome(1, ok=True, latency_us=0)
    view = machine.view(breaker.record, breaker.plan, 1)
    assert (view.probes_leased, view.probes_succeeded) == (1, 1)


@pytest.mark.parametrize(
    ("us", "text"), [(180 * SECOND_US, "180s"), (500_000, "500ms"), (1_500_000, "1500ms"), (7, "7us")]
)
def test_durations_are_formatted_exactly(us: int, text: str) -> None:
    assert format_duration(us) == text
