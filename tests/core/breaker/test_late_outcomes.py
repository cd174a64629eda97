"""Late outcomes: each counts in the interval in which it occurred, until that is evaluated."""

import pytest
from msgspec.structs import replace

from tests.core.breakers import ERRORS, SECOND_US, USUAL, Breaker, probing
from webhook.core.breaker import LatencyPlan, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.record import BreakerEnvironment

LATE_US = 300_000
LATE = BreakerEnvironment(LATE_US)
ONE_BAD = replace(USUAL, error_rate=replace(ERRORS, consecutive=1, minimum=1), latency=None, quota=None)
TWO_BAD = replace(ONE_BAD, error_rate=replace(ERRORS, consecutive=2, minimum=1))
BAD = Outcomes(0, 1, 0)


def late(plan: object = ONE_BAD) -> Breaker:
    return Breaker(plan, environment=LATE)  # type: ignore[arg-type]


def test_an_interval_is_judged_so_much_after_its_end_and_the_trip_is_reported_as_of_its_end() -> None:
    breaker = late()
    breaker.record_outcomes(SECOND_US - 1, BAD)
    assert breaker.at(SECOND_US + LATE_US - 1) is State.CLOSED
    assert breaker.at(SECOND_US + LATE_US) is State.OPEN
    assert breaker.moves[0].at_us == SECOND_US
    assert breaker.record.open_until_us == SECOND_US + ONE_BAD.open_for_us


@pytest.mark.parametrize(
    ("now_us", "age_us", "opens_at_us"),
    [
        (SECOND_US + LATE_US - 1, LATE_US, SECOND_US),  # the last moment at which the first second may still be told of
        (SECOND_US + LATE_US - 1, LATE_US - 1, 2 * SECOND_US),  # at the boundary itself: the next second's
        (SECOND_US + LATE_US, LATE_US + 1, None),  # judged
        (SECOND_US + LATE_US, LATE_US, 2 * SECOND_US),
        (5, -SECOND_US, SECOND_US),  # nothing has been had tomorrow
    ],
)
def test_near_a_boundary(now_us: int, age_us: int, opens_at_us: int | None) -> None:
    breaker = late()
    breaker.at(now_us)
    breaker.record_outcomes(now_us, replace(BAD, age_us=age_us))
    breaker.at(60 * SECOND_US)
    assert [move.at_us for move in breaker.moves] == ([] if opens_at_us is None else [opens_at_us])


def test_what_comes_for_a_judged_interval_changes_nothing() -> None:
    breaker = late(TWO_BAD)
    breaker.record_outcomes(SECOND_US // 2, BAD)
    breaker.at(SECOND_US + LATE_US)
    before = breaker.record
    breaker.record_outcomes(SECOND_US + LATE_US, replace(BAD, age_us=LATE_US + 1))
    assert breaker.record == before


def test_while_one_interval_is_waited_for_the_next_one_fills_in_whatever_order() -> None:
    breaker = late(TWO_BAD)
    breaker.record_outcomes(SECOND_US + 200_000, replace(BAD, age_us=100_000))  # of the second second
    breaker.record_outcomes(SECOND_US + 200_000, replace(BAD, age_us=250_000))  # of the first
    assert breaker.at(2 * SECOND_US + LATE_US - 1) is State.CLOSED
    assert breaker.at(2 * SECOND_US + LATE_US) is State.OPEN


def test_who_failed_in_a_second_that_did_not_count_had_no_part_though_the_next_had_begun() -> None:
    breaker = late(TWO_BAD)
    breaker.outcomes(0, good=50)
    breaker.outcome(0, ok=False, source="long-ago")
    for second in (1, 2):
        breaker.outcome(second * SECOND_US, ok=False, source=f"bad-{second}")
    assert breaker.view(3 * SECOND_US + LATE_US).failed == ("controller:bad-1", "controller:bad-2")


def test_a_good_second_that_is_reported_late_breaks_the_run() -> None:
    breaker = late(TWO_BAD)
    for second in (0, 1):
        breaker.record_outcomes(second * SECOND_US + 1, BAD)
    breaker.record_outcomes(2 * SECOND_US + LATE_US - 1, Outcomes(5, 0, 0, age_us=LATE_US + 10))
    assert breaker.at(2 * SECOND_US + LATE_US) is State.CLOSED


def test_one_may_be_too_late_for_a_short_interval_and_in_time_for_a_long_one() -> None:
    breaker = late(replace(ONE_BAD, latency=LatencyPlan(1, 10 * SECOND_US, 1, 1)))
    breaker.record_outcomes(2 * SECOND_US, Outcomes(0, 1, 5 * SECOND_US, age_us=SECOND_US + 1))
    assert breaker.at(10 * SECOND_US + LATE_US - 1) is State.CLOSED
    assert breaker.at(10 * SECOND_US + LATE_US) is State.OPEN
    assert breaker.record.reason.startswith("latency")


def test_a_trip_that_was_judged_later_than_it_lasts_is_over_at_once() -> None:
    breaker = late(replace(ONE_BAD, open_for_us=1000))
    breaker.record_outcomes(0, BAD)
    assert breaker.at(SECOND_US + LATE_US) is State.HALF_OPEN
    assert [move.at_us for move in breaker.moves] == [SECOND_US, SECOND_US + 1000]


def test_what_was_had_before_it_closed_does_not_count() -> None:
    breaker, now_us = probing(ONE_BAD_AND_QUOTA)
    breaker.environment = LATE
    for uid in "xyz":
        breaker.charge(now_us, uid)
        breaker.outcome(now_us, ok=True, uid=uid)
    assert breaker.record.state is State.CLOSED
    before = breaker.record
    breaker.record_outcomes(now_us + 5, replace(BAD, age_us=6))
    assert breaker.record == before
    breaker.record_outcomes(now_us + 5, replace(BAD, age_us=5))
    assert breaker.record != before


def test_what_was_had_before_it_half_opened_settles_no_probe() -> None:
    breaker, now_us = probing()
    breaker.charge(now_us, "x")
    before = breaker.record
    breaker.record_outcomes(now_us + 5, replace(BAD, age_us=6))
    assert breaker.record == before
    breaker.record_outcomes(now_us + 5, replace(BAD, age_us=5))
    assert breaker.record.state is State.OPEN


def test_what_was_had_before_a_reset_does_not_count() -> None:
    breaker = late()
    breaker.record_outcomes(600_000, BAD)
    breaker.apply_override(700_000, 650_000)
    breaker.record_outcomes(800_000, replace(BAD, age_us=150_001))
    assert breaker.at(9 * SECOND_US) is State.CLOSED
    breaker.record_outcomes(9 * SECOND_US, BAD)
    assert breaker.at(11 * SECOND_US) is State.OPEN


def test_a_sum_counts_as_so_many() -> None:
    by_one, by_sum = late(replace(USUAL, latency=None)), late(replace(USUAL, latency=None))
    for second in range(3):
        now_us = second * SECOND_US + 7
        by_one.outcomes(now_us, good=1, bad=19)
        by_sum.record_outcomes(now_us, Outcomes(1, 10, 0))
        by_sum.record_outcomes(now_us, Outcomes(0, 9, 0))
    assert by_sum.record == by_one.record
    assert by_sum.at(4 * SECOND_US) is State.OPEN
    assert by_sum.record.reason == "errorRate: >= 95% in each of 3 intervals of 1s, 19 of 20 in the last"


def test_a_sum_settles_the_oldest_probes_and_its_failures_come_first() -> None:
    breaker, now_us = probing()
    for uid in "xyz":
        breaker.charge(now_us, uid)
    breaker.record_outcomes(now_us, Outcomes(2, 0, 0))
    assert [lease.uid for lease in breaker.record.leases] == ["z"]
    breaker.record_outcomes(now_us, Outcomes(1_000_000_000, 1_000_000_000, 0))
    assert breaker.record.state is State.OPEN


def test_a_sum_of_more_successes_than_probes_closes_it_once() -> None:
    breaker, now_us = probing()
    for uid in "xyz":
        breaker.charge(now_us, uid)
    breaker.record_outcomes(now_us, Outcomes(1_000_000_000, 0, 0))
    assert breaker.record.state is State.CLOSED
    assert breaker.record.generation == 3


ONE_BAD_AND_QUOTA = replace(ONE_BAD, quota=USUAL.quota)
