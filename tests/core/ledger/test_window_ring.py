"""The ring compared with an exact log: never less than the trailing window, nothing older than 65/64 of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import examples
from webhook.core.ledger.window_ring import Ring

SECONDS = 4
WINDOW_US = 4_000_000
BUCKET_US = 62_500
START_US = 1_000_000_000  # a bucket's edge

# Bursts at bucket edges, whole windows, and long idle spells.
gaps = st.sampled_from(
    [0, 1, BUCKET_US - 1, BUCKET_US, BUCKET_US + 1, WINDOW_US - 1, WINDOW_US, WINDOW_US + BUCKET_US, 3 * WINDOW_US]
) | st.integers(0, 2 * WINDOW_US)


def test_charge_counts_until_its_bucket_expires() -> None:
    for offset_us in (0, 1, BUCKET_US - 1):
        ring = Ring(SECONDS)
        ring.add(START_US + offset_us, {"pods": 3}, START_US + offset_us)
        leaves_us = START_US + WINDOW_US + BUCKET_US
        assert ring.used(leaves_us - 1) == {"pods": 3}
        assert ring.used(leaves_us).get("pods", 0) == 0


def test_resources_are_counted_separately_from_zero() -> None:
    ring = Ring(SECONDS)
    ring.add(START_US, {"pods": 1}, START_US)
    ring.add(START_US, {"requests.cpu": 7}, START_US)
    assert ring.used(START_US) == {"pods": 1, "requests.cpu": 7}
    assert ring.free_at_us(START_US, "requests.memory", 5, 5) == 0


def test_sums_are_exact_beyond_double_precision() -> None:
    ring = Ring(SECONDS)
    ring.add(START_US, {"requests.memory": 2**53}, START_US)
    ring.add(START_US + 1, {"requests.memory": 1}, START_US + 1)
    assert ring.used(START_US + 1) == {"requests.memory": 2**53 + 1}


def test_charge_booked_in_the_past_expires_with_its_bucket() -> None:
    ring = Ring(SECONDS)
    ring.add(START_US, {"pods": 1}, START_US)
    later_us = START_US + 2 * BUCKET_US
    assert ring.add(later_us, {"pods": 1}, later_us)
    assert ring.add(later_us, {"pods": 4}, START_US + BUCKET_US), "between the two"
    assert ring.used(later_us) == {"pods": 6}
    leaves_us = START_US + WINDOW_US + BUCKET_US
    assert [ring.used(leaves_us + n * BUCKET_US).get("pods", 0) for n in (-1, 0, 1, 2)] == [6, 5, 1, 0]
    assert ring.free_at_us(later_us, "pods", 6, 5) == leaves_us + BUCKET_US
    assert not ring.add(leaves_us, {"pods": 1}, START_US), "its bucket has expired"
    assert ring.used(leaves_us) == {"pods": 5}


def test_refund_works_only_until_the_bucket_expires() -> None:
    ring = Ring(SECONDS)
    first_us, second_us = START_US, START_US + BUCKET_US
    ring.add(first_us, {"pods": 2}, first_us)
    ring.add(second_us, {"pods": 1}, second_us)
    late_us = START_US + WINDOW_US + BUCKET_US
    assert not ring.refund(late_us, first_us, {"pods": 2})
    assert ring.refund(late_us, second_us, {"pods": 1})
    assert ring.used(late_us).get("pods", 0) == 0
    ring.add(late_us, {"pods": 5}, late_us)
    assert ring.used(late_us) == {"pods": 5}


@pytest.mark.parametrize(("hard", "requested", "free_at_us"), [(3, 1, 0), (2, 3, None), (0, 1, None), (0, 0, None)])
def test_free_at_of_requests_that_fit_now_later_or_never(hard: int, requested: int, free_at_us: int | None) -> None:
    ring = Ring(SECONDS)
    ring.add(START_US, {"pods": 2}, START_US)
    expected = START_US + WINDOW_US + BUCKET_US if (hard, requested) == (0, 0) else free_at_us
    assert ring.free_at_us(START_US, "pods", hard, requested) == expected


def test_reads_do_not_change_the_ring() -> None:
    ring = Ring(SECONDS)
    ring.add(START_US, {"pods": 2}, START_US)
    assert ring.used(START_US + 2 * WINDOW_US).get("pods", 0) == 0
    assert ring.idle(START_US + 2 * WINDOW_US)
    assert ring.used(START_US) == {"pods": 2}
    assert not ring.idle(START_US)


@examples(300)
@given(st.lists(st.tuples(gaps, st.integers(0, 5), st.integers(0, 30)), max_size=80))
def test_used_lies_between_the_exact_window_and_its_65_64(steps: list[tuple[int, int, int]]) -> None:
    ring, now_us = Ring(SECONDS), START_US
    log: list[list[int]] = []  # [moment, amount]; a refund takes the amount away
    for gap_us, amount, other in steps:
        now_us += gap_us
        if other % 4 == 0 and log:
            entry = log[other % len(log)]
            if ring.refund(now_us, entry[0], {"pods": entry[1]}):
                entry[1] = 0
        elif amount:
            at_us = now_us - other * BUCKET_US * 3 if other % 4 == 1 else now_us
            if ring.add(now_us, {"pods": amount}, at_us):
                log.append([at_us, amount])
        used = ring.used(now_us).get("pods", 0)
        assert used >= sum(amount for at_us, amount in log if at_us >= now_us - WINDOW_US)
        assert used <= sum(amount for at_us, amount in log if at_us > now_us - WINDOW_US * 65 // 64)


@examples(300)
@given(st.lists(st.tuples(gaps, st.integers(1, 5)), min_size=1, max_size=40), st.integers(0, 12), st.integers(1, 12))
def test_free_at_is_the_exact_moment(steps: list[tuple[int, int]], hard: int, requested: int) -> None:
    ring, now_us = Ring(SECONDS), START_US
    for gap_us, amount in steps:
        now_us += gap_us
        ring.add(now_us, {"pods": amount}, now_us)
    free_at_us = ring.free_at_us(now_us, "pods", hard, requested)

    def is_fitting(at_us: int) -> bool:
        return ring.used(at_us).get("pods", 0) + requested <= hard

    if free_at_us is None:
        assert requested > hard
    elif free_at_us == 0:
        assert is_fitting(now_us)
    else:
        assert is_fitting(free_at_us)
        assert not is_fitting(free_at_us - 1)
        assert free_at_us > now_us
