"""Tests of the split: exact at each multiple of the cycle, never off by one, and stable as a workload grows."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.shares import Split

SPOT = Split(("spot", "on-demand"), (80, 20), base_variant=1, base_pods=2)


def test_the_base_comes_first_and_the_rest_is_shared() -> None:
    assert SPOT.count_by_variant(12) == {"spot": 8, "on-demand": 4}
    assert SPOT.describe(10) == "slots 1-2 on-demand, 3-10: spot x6, on-demand x2"


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        (0, "no slots"),
        (1, "slots 1 on-demand"),
        (2, "slots 1-2 on-demand"),
        (3, "slots 1-2 on-demand, 3: spot x1"),
    ],
)
def test_small_workloads_are_described(slots: int, text: str) -> None:
    assert SPOT.describe(slots) == text


def test_a_variant_without_a_weight_takes_the_base_only() -> None:
    split = Split(("spot", "on-demand"), (1, 0), base_variant=1, base_pods=3)
    assert split.count_by_variant(50) == {"spot": 47, "on-demand": 3}
    assert Split(("spot", "on-demand"), (1, 0)).describe(5) == "slots 1-5: spot x5"


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=6), st.integers(0, 3000), st.integers(0, 5))
def test_no_share_is_ever_off_by_one(weights: list[int], slots: int, base: int) -> None:
    names = tuple(f"v{number}" for number in range(len(weights)))
    counts = Split(names, tuple(weights), 0, base).count_by_variant(base + slots)
    counts[names[0]] -= base
    assert sum(counts.values()) == slots
    for weight, count in zip(weights, counts.values(), strict=True):
        assert abs(count - Fraction(slots * weight, sum(weights))) < 1


@given(st.lists(st.integers(1, 50), min_size=2, max_size=4), st.integers(1, 500))
def test_growth_takes_nothing_away(weights: list[int], slots: int) -> None:
    split = Split(tuple(map(str, range(len(weights)))), tuple(weights))
    before, after = split.count_by_variant(slots), split.count_by_variant(slots + 1)
    assert all(after[name] >= before[name] for name in before)
