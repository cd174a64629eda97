"""Sums of pushed outcomes: no outcome is lost or added, and each counts in its interval."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.core.plans import plan_of
from tests.core.strategies import examples
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.outcomes import SLOT_US, DroppedOutcomes, PushedOutcome, Sum, Sums
from webhook.core.quota import CounterPlan

WEB, API = plan_of(service="web", tag="web"), plan_of(service="api", tag="api")
AT_US = 1_800_000_000_000_000
SECOND_US = 1_000_000


def build_good_outcome(latency: float = 0.1, uid: str | None = None, generation: int | None = None) -> PushedOutcome:
    return PushedOutcome("web", True, latency, uid, generation)  # noqa: FBT003  as the wire has it


def build_bad_outcome(latency: float = 0.1, uid: str | None = None, generation: int | None = None) -> PushedOutcome:
    return PushedOutcome("web", False, latency, uid, generation)  # noqa: FBT003  as above


def sum_reported(sums: Sums, plan: CounterPlan = WEB, now_us: int = AT_US + SLOT_US) -> list[Outcomes]:
    [found] = [pending for pending in sums.take() if pending.plan is plan]
    return [total.build_outcomes(now_us) for total in found.sums]


def test_outcomes_of_one_slot_are_one_sum_and_those_of_the_next_another() -> None:
    sums = Sums()
    sums.add(WEB, [build_good_outcome(0.5), build_bad_outcome(1.25), build_good_outcome()], AT_US)
    sums.add(WEB, [build_good_outcome()], AT_US + SLOT_US - 1)
    sums.add(WEB, [build_bad_outcome()], AT_US + SLOT_US)
    assert sum_reported(sums, now_us=AT_US + 2 * SLOT_US) == [
        Outcomes(3, 1, 1_950_000, age_us=150_000),
        Outcomes(0, 1, 100_000, age_us=50_000),
    ]
    assert sums.take() == []


def test_services_and_generations_are_summed_separately() -> None:
    sums = Sums()
    sums.add(
        WEB,
        [
            build_good_outcome(),
            build_good_outcome(generation=4),
            build_bad_outcome(generation=5),
            build_good_outcome(generation=4),
            build_good_outcome(),
        ],
        AT_US,
    )
    sums.add(API, [build_bad_outcome()], AT_US)
    pending = {each.plan.service: each for each in sums.take()}
    assert [(total.generation, total.succeeded, total.failed) for total in pending["web"].sums] == [
        (None, 2, 0),
        (4, 2, 0),
        (5, 0, 1),
    ]
    assert [(total.generation, total.succeeded, total.failed) for total in pending["api"].sums] == [(None, 0, 1)]


def test_outcomes_with_a_uid_stay_single_and_in_order() -> None:
    sums = Sums()
    sums.add(
        WEB,
        [
            build_good_outcome(uid="b"),
            build_bad_outcome(),
            build_good_outcome(uid="a"),
            build_bad_outcome(uid="b"),
            build_bad_outcome(),
        ],
        AT_US,
    )
    assert [(total.uid, total.succeeded, total.failed) for total in sum_reported(sums)] == [
        ("b", 1, 0),
        (None, 0, 2),
        ("a", 1, 0),
        ("b", 0, 1),
    ]


def test_sum_reported_before_the_middle_of_its_slot_has_age_zero() -> None:
    assert Sum(AT_US // SLOT_US, None).build_outcomes(AT_US + 20_000).age_us == 0


@examples(200)
@given(
    arrived_us=st.integers(AT_US, AT_US + 10 * SECOND_US),
    waited_us=st.integers(0, 3 * SECOND_US),
    skew_us=st.integers(-SLOT_US // 2, SLOT_US // 2 - 1),
    interval_us=st.sampled_from([SLOT_US, 500_000, SECOND_US, 30 * SECOND_US]),
)
def test_outcome_counts_in_its_interval_with_half_a_slot_of_clock_skew(
    arrived_us: int, waited_us: int, skew_us: int, interval_us: int
) -> None:
    sums = Sums()
    sums.add(WEB, [build_good_outcome()], arrived_us)
    slot_ends_us = (arrived_us // SLOT_US + 1) * SLOT_US
    [received] = sum_reported(sums, now_us=slot_ends_us + waited_us)
    at_us = slot_ends_us + waited_us + skew_us - received.age_us
    assert at_us // interval_us == arrived_us // interval_us


@examples(100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([WEB, API]),
            st.builds(
                PushedOutcome,
                st.just("web"),
                st.booleans(),
                st.floats(0, 86_400),
                st.none() | st.sampled_from("ab"),
                st.none() | st.integers(0, 2),
            ),
            st.integers(0, 3 * SLOT_US),
        ),
        max_size=40,
    )
)
def test_sums_neither_lose_nor_add_outcomes(pushes: list[tuple[CounterPlan, PushedOutcome, int]]) -> None:
    sums, expected = Sums(), Counter[tuple[str, bool, str | None, int | None]]()
    latency_us = 0
    for plan, outcome, delay_us in pushes:
        assert sums.add(plan, [outcome], AT_US + delay_us) == []
        expected[plan.service, outcome.ok, outcome.uid, outcome.generation] += 1
        latency_us += round(outcome.latency * SECOND_US)
    found: Counter[tuple[str, bool, str | None, int | None]] = Counter()
    for plan, each in [(pending.plan, total) for pending in sums.take() for total in pending.sums]:
        found[plan.service, True, each.uid, each.generation] += each.succeeded
        found[plan.service, False, each.uid, each.generation] += each.failed
        latency_us -= each.latency_us
        assert each.uid is None or each.count == 1
    assert +found == expected
    assert latency_us == 0


def test_oldest_outcomes_beyond_the_bound_are_dropped_and_counted() -> None:
    sums = Sums(most=2)
    sums.add(WEB, [build_good_outcome(), build_bad_outcome(), build_good_outcome()], AT_US)
    assert sums.add(WEB, [build_bad_outcome(uid="a"), build_good_outcome(), build_bad_outcome(uid="b")], AT_US) == [
        DroppedOutcomes("web", 4)
    ]
    assert sums.add(WEB, [build_good_outcome()], AT_US) == [DroppedOutcomes("web", 1)]
    assert [(total.uid, total.succeeded, total.failed) for total in sum_reported(sums)] == [("b", 0, 1), (None, 1, 0)]
    assert (len(sums), sums.take()) == (0, [])


def test_flood_of_one_service_drops_no_outcomes_of_another() -> None:
    sums = Sums()
    assert sums.add(API, [build_bad_outcome()] * 500, AT_US) == []
    flood = [
        dropped for _ in range(3) for dropped in sums.add(WEB, [build_good_outcome(uid="a")] * 10_000, AT_US + 40_000)
    ]
    assert Counter(dropped.service for dropped in flood) == {"web": 10_001}
    assert [total.failed for total in sum_reported(sums, API)] == [500]


def test_earlier_flood_is_dropped_for_later_outcomes_of_another_service() -> None:
    sums = Sums(most=10)
    sums.add(WEB, [build_good_outcome(uid=str(number)) for number in range(10)], AT_US)
    dropped = sums.add(API, [build_bad_outcome(uid="a")] * 6, AT_US)
    assert sorted(dropped) == [DroppedOutcomes("api", 1), *[DroppedOutcomes("web", 1)] * 5]
    assert [(each.plan.service, len(each.sums)) for each in sums.take()] == [("web", 5), ("api", 5)]


@examples(300)
@given(
    st.integers(1, 12),
    st.lists(
        st.tuples(
            st.sampled_from([WEB, API, plan_of(service="db", tag="db")]),
            st.lists(
                st.builds(build_good_outcome, uid=st.none() | st.just("a"), generation=st.none() | st.integers(0, 2)),
                min_size=1,
                max_size=9,
            ),
            st.integers(0, SLOT_US),
        ),
        max_size=20,
    ),
)
def test_only_a_service_above_its_even_share_loses_outcomes_to_another(
    most: int, pushes: list[tuple[CounterPlan, list[PushedOutcome], int]]
) -> None:
    sums, pending, remaining = Sums(most), Counter[str](), Counter[str]()
    services = {plan.service for plan, _, _ in pushes}
    for plan, outcomes, delay_us in pushes:
        before = len(sums)
        dropped = sums.add(plan, outcomes, AT_US + delay_us)
        assert len(sums) <= most
        pending[plan.service] += len(sums) + len(dropped) - before
        remaining[plan.service] += len(outcomes)
        for drop in dropped:
            assert pending[drop.service] == max(pending.values())
            if drop.service != plan.service:
                assert pending[drop.service] > max(pending[plan.service], most // len(services))
            pending[drop.service] -= 1
            remaining[drop.service] -= drop.outcomes
    found = {each.plan.service: each.sums for each in sums.take()}
    assert +pending == {service: len(each) for service, each in found.items()}
    assert +remaining == {service: sum(total.count for total in each) for service, each in found.items()}
