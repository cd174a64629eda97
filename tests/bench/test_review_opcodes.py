"""Opcodes of a review: a budget for each case, so that a new feature costs nothing where it is not used."""

import pytest

from tests.bench.real_redis import real_redis
from tests.bench.review_opcodes import CASES, Counted, count_all
from tests.bench.scenario import BREAKER_OPEN, MUTATE, OVER_QUOTA, UNMATCHED_POD, VALIDATE

# By CPython 3.11, on Redis and in memory. Raise one only for what every review has to pay.
BUDGETS = {MUTATE: (1150, 1150), VALIDATE: (1950, 2500), UNMATCHED_POD: (920, 920)}
BUDGETS |= {OVER_QUOTA: (2450, 2600), BREAKER_OPEN: (1520, 1630)}


@pytest.fixture(scope="module")
def counted() -> tuple[dict[Counted, int], dict[Counted, int]]:
    with real_redis() as redis:
        return count_all(redis), count_all(None)


@pytest.mark.parametrize("store", [0, 1], ids=["redis-", "memory"])
def test_a_review_stays_within_its_budget_of_opcodes(counted: tuple[dict[Counted, int], ...], store: int) -> None:
    assert {
        case.name: found for case, found in counted[store].items() if not 0 < found <= BUDGETS[case.case][store]
    } == {}


def test_opcodes_do_not_depend_on_the_size_of_the_pod(counted: tuple[dict[Counted, int], ...]) -> None:
    for found in counted:
        by_case = {case: [found[each] for each in CASES if each.case is case] for case in (MUTATE, VALIDATE)}
        assert all(max(counts) < 1.03 * min(counts) for counts in by_case.values())
