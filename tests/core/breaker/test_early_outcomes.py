"""Early probes in OPEN: a controller that did not contribute to the failures may close the breaker."""

import pytest
from msgspec.structs import replace

from tests.core.breakers import ERRORS, SECOND_US, USUAL, Breaker, build_open_breaker, build_probing_breaker
from webhook.core.breaker import EXPIRED, ErrorRatePlan, QuotaEventPlan, State
from webhook.core.breaker.outcome_types import Outcomes

NOW_US = 10 * SECOND_US
FAST = replace(USUAL, error_rate=replace(ERRORS, consecutive=1, minimum=1), latency=None)
SLOWED = replace(USUAL, latency=replace(USUAL.latency, consecutive=1))


def build_failed_breaker(*sources: str, plan: object = FAST) -> Breaker:
    """Return a breaker in OPEN at one second, by failures of `sources`."""
    breaker = Breaker(plan)  # type: ignore[arg-type]
    for source in sources:
        breaker.record_outcome(0, ok=False, source=source, uid="some")
    assert breaker.find_state(SECOND_US) is State.OPEN
    return breaker


def test_only_a_controller_without_failures_may_probe_early() -> None:
    breaker = build_failed_breaker("a", "user:x")
    assert breaker.view(NOW_US).failed == ("controller:a", "user:x")
    admitted = [breaker.charge(NOW_US, uid, source) for uid, source in (("1", "a"), ("2", ""), ("3", "user:y"))]
    assert admitted == [False, False, False]
    assert breaker.charge(NOW_US, "4", "b")


def test_early_probes_are_limited_to_the_number_of_probes() -> None:
    breaker = build_failed_breaker("a")
    assert [breaker.charge(NOW_US, uid, "b") for uid in "1234"] == [True, True, True, False]
    breaker.record_outcome(NOW_US, ok=False, uid="1")
    assert (breaker.record.state, breaker.view(NOW_US).probes_leased) == (State.OPEN, 2)
    assert not breaker.charge(NOW_US, "5", "b")
    assert breaker.view(NOW_US).early == 0
    assert breaker.view(NOW_US).failed == ()


def test_failure_of_an_early_probe_only_ends_its_lease() -> None:
    breaker = build_failed_breaker("a")
    breaker.charge(NOW_US, "1", "b")
    before = breaker.record
    breaker.record_outcome(NOW_US, ok=False, uid="1", source="b")
    assert breaker.record == replace(before, leases=())


def test_successful_early_probes_close_the_breaker_before_its_end() -> None:
    breaker = build_failed_breaker("a")
    for uid in "123":
        breaker.charge(NOW_US, uid, "b")
        breaker.record_outcome(NOW_US, ok=True, uid=uid, generation=1)
    assert breaker.record.state is State.CLOSED
    assert breaker.moves[-1].reason == "3 early probes succeeded"


def test_outcome_without_uid_settles_no_early_probe() -> None:
    breaker = build_failed_breaker("a")
    breaker.charge(NOW_US, "1", "b")
    before = breaker.record
    breaker.record_outcomes(NOW_US, Outcomes(7, 7, 0))
    assert breaker.record == before


def test_refunded_early_probe_makes_room_for_another() -> None:
    breaker = build_failed_breaker("a")
    for uid in "123":
        breaker.charge(NOW_US, uid, "b")
    breaker.give_back(NOW_US, "2")
    assert breaker.view(NOW_US).early == 1
    assert [breaker.charge(NOW_US, uid, "b") for uid in "45"] == [True, False]
    breaker.give_back(NOW_US, "2")
    assert breaker.view(NOW_US).early == 0


def test_expired_early_probes_are_reported_before_half_open() -> None:
    breaker = build_failed_breaker("a", plan=replace(FAST, probe_timeout_us=5 * SECOND_US))
    for uid in "123":
        breaker.charge(NOW_US, uid, "b")
    breaker.find_state(1000 * SECOND_US)  # a late call
    transitions = [(move.old, move.new, move.at_us, move.reason == EXPIRED, move.generation) for move in breaker.moves]
    expired = (State.OPEN, State.OPEN, NOW_US + 5 * SECOND_US, True, 1)
    assert transitions[1:] == [expired] * 3 + [(State.OPEN, State.HALF_OPEN, 181 * SECOND_US, False, 2)]


@pytest.mark.parametrize("is_noticed", [True, False])
def test_early_probe_refunded_at_its_expiry_makes_no_room(*, is_noticed: bool) -> None:
    breaker = build_failed_breaker("a", plan=replace(FAST, probe_timeout_us=5 * SECOND_US))
    for uid in "123":
        breaker.charge(NOW_US, uid, "b")
    expires_us = NOW_US + 5 * SECOND_US
    breaker.give_back(expires_us - 1, "1")
    if is_noticed:
        breaker.find_state(expires_us)
    breaker.give_back(expires_us, "2")
    assert breaker.view(expires_us).early == 1
    breaker.find_state(expires_us)
    assert [move.at_us for move in breaker.moves if move.reason == EXPIRED] == [expires_us] * 2


def test_half_open_breaker_keeps_leases_of_early_probes() -> None:
    breaker = build_failed_breaker("a")
    now_us = breaker.record.open_until_us
    for uid in "12":
        breaker.charge(now_us - 1, uid, "b")
    assert breaker.find_state(now_us) is State.HALF_OPEN
    assert breaker.view(now_us).probes_leased == 2
    assert [breaker.charge(now_us, uid, "a") for uid in "34"] == [True, False]
    breaker.record_outcome(now_us, ok=True, uid="1", generation=2)
    assert breaker.view(now_us).probes_succeeded == 0, "it was admitted in the generation of OPEN"
    for uid, generation in (("1", 1), ("2", None), ("3", 2)):
        breaker.record_outcome(now_us, ok=True, uid=uid, generation=generation)
    assert breaker.record.state is State.CLOSED


def test_failed_early_probe_in_half_open_opens_the_breaker_and_adds_its_source() -> None:
    breaker = build_failed_breaker("a")
    now_us = breaker.record.open_until_us
    breaker.charge(now_us - 1, "1", "b")
    breaker.record_outcome(now_us + 7, ok=False, uid="1", generation=1, source="b")
    assert breaker.record.state is State.OPEN
    assert breaker.record.open_until_us == now_us + 7 + FAST.open_for_us
    view = breaker.view(now_us + 7)
    assert (view.failed, view.early) == (("controller:a", "controller:b"), 3)
    assert not breaker.charge(now_us + 7, "2", "b")
    assert breaker.charge(now_us + 7, "2", "c")


def test_early_successes_do_not_count_in_half_open() -> None:
    breaker = build_failed_breaker("a")
    now_us = breaker.record.open_until_us
    breaker.charge(now_us - 1, "1", "b")
    breaker.record_outcome(now_us - 1, ok=True, uid="1")
    assert breaker.view(now_us - 1).probes_succeeded == 1
    assert breaker.view(now_us).probes_succeeded == 0


def test_failed_probe_of_an_unknown_source_leaves_no_early_probes() -> None:
    breaker, now_us = build_probing_breaker()
    breaker.charge(now_us, "1")
    breaker.record_outcome(now_us, ok=False, uid="1")
    assert (breaker.view(now_us).early, breaker.view(now_us).failed) == (0, ())


@pytest.mark.parametrize(("sources", "early"), [(16, 3), (17, 0), (40, 0)])
def test_up_to_sixteen_sources_are_distinguished(sources: int, early: int) -> None:
    breaker = build_failed_breaker(*[f"c{number}" for number in range(sources)])
    view = breaker.view(NOW_US)
    assert (view.early, len(view.failed)) == (early, sources if early else 0)
    assert breaker.charge(NOW_US, "1", "new") is bool(early)


def test_seventeenth_source_with_a_failed_probe_leaves_no_early_probes() -> None:
    breaker = build_failed_breaker(*[f"c{number}" for number in range(16)])
    for source, early in (("c7", 3), ("late", 0)):
        now_us = breaker.record.open_until_us
        breaker.charge(now_us, source)
        breaker.record_outcome(now_us, ok=False, uid=source, source=source)
        assert breaker.view(now_us).early == early


def test_quota_events_of_more_than_sixteen_controllers_leave_no_early_probes() -> None:
    for count, early in ((16, 3), (17, 0)):
        breaker = Breaker(replace(USUAL, quota=QuotaEventPlan(count, SECOND_US, by_controller=True)))
        for number in range(count):
            breaker.record_quota_event(0, f"c{number}")
        assert breaker.view(0).early == early


def test_failure_of_an_unknown_source_leaves_no_early_probes() -> None:
    assert build_failed_breaker("a", "").view(NOW_US).early == 0


def test_failed_sources_are_those_of_the_intervals_that_tripped() -> None:
    breaker = Breaker(replace(USUAL, error_rate=ErrorRatePlan(50, SECOND_US, 2, 1), latency=None))
    breaker.record_outcome(0, ok=False, source="long-ago")
    breaker.record_good_and_bad(0, good=9)
    for second in (1, 2):
        breaker.record_outcome(second * SECOND_US, ok=False, source=f"bad-{second}")
        breaker.record_outcome(second * SECOND_US, ok=True, source="good")
    assert breaker.view(3 * SECOND_US).failed == ("controller:bad-1", "controller:bad-2")


def test_failed_sources_of_a_latency_trip_are_the_slow_ones() -> None:
    breaker = Breaker(SLOWED)
    breaker.record_outcome(0, ok=True, latency_us=9 * SECOND_US, source="slow")
    breaker.record_outcome(0, ok=True, latency_us=2 * SECOND_US, source="quick")
    assert breaker.view(SECOND_US).failed == ("controller:slow",)


def test_policy_with_fewer_probes_reduces_the_early_probes_left() -> None:
    breaker = build_failed_breaker("a")
    breaker.charge(NOW_US, "1", "b")
    breaker.plan = replace(FAST, probes=1)
    assert breaker.view(NOW_US).early == 0
    assert not breaker.charge(NOW_US, "2", "b")


def test_controllers_denied_in_a_quota_trip_may_not_probe_early() -> None:
    breaker = build_open_breaker()
    assert [breaker.charge(NOW_US, source, source) for source in "abcd"] == [False, False, False, True]
