"""Late outcomes: each counts in the interval in which it occurred, until that is evaluated."""

import pytest
from msgspec.structs import replace

from tests.core.breakers import ERRORS, SECOND_US, USUAL, Breaker, build_probing_breaker
from webhook.core.breaker import LatencyPlan, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.record import BreakerEnvironment

LATE_US = 300_000
ENVIRONMENT = BreakerEnvironment(LATE_US)
ONE_BAD = replace(USUAL, error_rate=replace(ERRORS, consecutive=1, minimum=1), latency=None, quota=None)
TWO_BAD = replace(ONE_BAD, error_rate=replace(ERRORS, consecutive=2, minimum=1))
BAD = Outcomes(0, 1, 0)


def build_breaker(plan: object = ONE_BAD) -> Breaker:
    return Breaker(plan, environment=ENVIRONMENT)  # type: ignore[arg-type]


def test_interval_is_evaluated_after_a_grace_period_and_trips_as_of_its_end() -> None:
    breaker = build_breaker()
    breaker.record_outcomes(SECOND_US - 1, BAD)
    assert breaker.find_state(SECOND_US + LATE_US - 1) is State.CLOSED
    assert breaker.find_state(SECOND_US + LATE_US) is State.OPEN
    assert breaker.moves[0].at_us == SECOND_US
    assert breaker.record.open_until_us == SECOND_US + ONE_BAD.open_for_us


@pytest.mark.parametrize(
    ("now_us", "age_us", "opens_at_us"),
    [
        (SECOND_US + LATE_US - 1, LATE_US, SECOND_US),  # the last time at which an outcome of the first interval counts
        (SECOND_US + LATE_US - 1, LATE_US - 1, 2 * SECOND_US),  # at the boundary itself: in the next interval
        (SECOND_US + LATE_US, LATE_US + 1, None),  # already evaluated
        (SECOND_US + LATE_US, LATE_US, 2 * SECOND_US),
        (5, -SECOND_US, SECOND_US),  # a time in the future counts as now
    ],
)
def test_outcome_near_a_boundary_counts_in_the_interval_of_its_own_time(
    now_us: int, age_us: int, opens_at_us: int | None
) -> None:
    breaker = build_breaker()
    breaker.find_state(now_us)
    breaker.record_outcomes(now_us, replace(BAD, age_us=age_us))
    breaker.find_state(60 * SECOND_US)
    assert [move.at_us for move in breaker.moves] == ([] if opens_at_us is None else [opens_at_us])


def test_outcome_of_an_evaluated_interval_is_ignored() -> None:
    breaker = build_breaker(TWO_BAD)
    breaker.record_outcomes(SECOND_US // 2, BAD)
    breaker.find_state(SECOND_US + LATE_US)
    before = breaker.record
    breaker.record_outcomes(SECOND_US + LATE_US, replace(BAD, age_us=LATE_US + 1))
    assert breaker.record == before


def test_outcomes_of_two_intervals_count_in_any_order() -> None:
    breaker = build_breaker(TWO_BAD)
    breaker.record_outcomes(SECOND_US + 200_000, replace(BAD, age_us=100_000))  # in the second interval
    breaker.record_outcomes(SECOND_US + 200_000, replace(BAD, age_us=250_000))  # in the first interval
    assert breaker.find_state(2 * SECOND_US + LATE_US - 1) is State.CLOSED
    assert breaker.find_state(2 * SECOND_US + LATE_US) is State.OPEN


def test_failed_sources_are_those_of_the_intervals_that_tripped() -> None:
    breaker = build_breaker(TWO_BAD)
    breaker.record_good_and_bad(0, good=50)
    breaker.record_outcome(0, ok=False, source="long-ago")
    for second in (1, 2):
        breaker.record_outcome(second * SECOND_US, ok=False, source=f"bad-{second}")
    assert breaker.view(3 * SECOND_US + LATE_US).failed == ("controller:bad-1", "controller:bad-2")


def test_late_successes_interrupt_consecutive_intervals() -> None:
    breaker = build_breaker(TWO_BAD)
    for second in (0, 1):
        breaker.record_outcomes(second * SECOND_US + 1, BAD)
    breaker.record_outcomes(2 * SECOND_US + LATE_US - 1, Outcomes(5, 0, 0, age_us=LATE_US + 10))
    assert breaker.find_state(2 * SECOND_US + LATE_US) is State.CLOSED


def test_outcome_too_late_for_a_short_interval_counts_in_a_long_one() -> None:
    breaker = build_breaker(replace(ONE_BAD, latency=LatencyPlan(1, 10 * SECOND_US, 1, 1)))
    breaker.record_outcomes(2 * SECOND_US, Outcomes(0, 1, 5 * SECOND_US, age_us=SECOND_US + 1))
    assert breaker.find_state(10 * SECOND_US + LATE_US - 1) is State.CLOSED
    assert breaker.find_state(10 * SECOND_US + LATE_US) is State.OPEN
    assert breaker.record.reason.startswith("latency")


def test_trip_evaluated_after_its_end_is_half_open_at_once() -> None:
    breaker = build_breaker(replace(ONE_BAD, open_for_us=1000))
    breaker.record_outcomes(0, BAD)
    assert breaker.find_state(SECOND_US + LATE_US) is State.HALF_OPEN
    assert [move.at_us for move in breaker.moves] == [SECOND_US, SECOND_US + 1000]


def test_outcome_from_before_the_breaker_closed_does_not_count() -> None:
    breaker, now_us = build_probing_breaker(ONE_BAD_AND_QUOTA)
    breaker.environment = ENVIRONMENT
    for uid in "xyz":
        breaker.charge(now_us, uid)
        breaker.record_outcome(now_us, ok=True, uid=uid)
    assert breaker.record.state is State.CLOSED
    before = breaker.record
    breaker.record_outcomes(now_us + 5, replace(BAD, age_us=6))
    assert breaker.record == before
    breaker.record_outcomes(now_us + 5, replace(BAD, age_us=5))
    assert breaker.record != before


def test_outcome_from_before_half_open_settles_no_probe() -> None:
    breaker, now_us = build_probing_breaker()
    breaker.charge(now_us, "x")
    before = breaker.record
    breaker.record_outcomes(now_us + 5, replace(BAD, age_us=6))
    assert breaker.record == before
    breaker.record_outcomes(now_us + 5, replace(BAD, age_us=5))
    assert breaker.record.state is State.OPEN


def test_outcome_from_before_a_reset_does_not_count() -> None:
    breaker = build_breaker()
    breaker.record_outcomes(600_000, BAD)
    breaker.apply_override(700_000, 650_000)
    breaker.record_outcomes(800_000, replace(BAD, age_us=150_001))
    assert breaker.find_state(9 * SECOND_US) is State.CLOSED
    breaker.record_outcomes(9 * SECOND_US, BAD)
    assert breaker.find_state(11 * SECOND_US) is State.OPEN


def test_aggregated_outcomes_count_as_single_ones() -> None:
    single, aggregated = (
        build_breaker(replace(USUAL, latency=None)),
        build_breaker(replace(USUAL, latency=None)),
    )
    for second in range(3):
        now_us = second * SECOND_US + 7
        single.record_good_and_bad(now_us, good=1, bad=19)
        aggregated.record_outcomes(now_us, Outcomes(1, 10, 0))
        aggregated.record_outcomes(now_us, Outcomes(0, 9, 0))
    assert aggregated.record == single.record
    assert aggregated.find_state(4 * SECOND_US) is State.OPEN
    assert aggregated.record.reason == "errorRate: >= 95% in each of 3 intervals of 1s, 19 of 20 in the last"


def test_aggregated_outcomes_settle_the_oldest_probes_and_failures_come_first() -> None:
    breaker, now_us = build_probing_breaker()
    for uid in "xyz":
        breaker.charge(now_us, uid)
    breaker.record_outcomes(now_us, Outcomes(2, 0, 0))
    assert [lease.uid for lease in breaker.record.leases] == ["z"]
    breaker.record_outcomes(now_us, Outcomes(1_000_000_000, 1_000_000_000, 0))
    assert breaker.record.state is State.OPEN


def test_more_aggregated_successes_than_probes_close_the_breaker_once() -> None:
    breaker, now_us = build_probing_breaker()
    for uid in "xyz":
        breaker.charge(now_us, uid)
    breaker.record_outcomes(now_us, Outcomes(1_000_000_000, 0, 0))
    assert breaker.record.state is State.CLOSED
    assert breaker.record.generation == 3


ONE_BAD_AND_QUOTA = replace(ONE_BAD, quota=USUAL.quota)
