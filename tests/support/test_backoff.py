"""Backoff: delays double up to a bound, differ between replicas and start over after a success."""

import pytest

from webhook.support.backoff import Backoff


def test_delays_double_up_to_the_bound_and_start_over() -> None:
    backoff = Backoff(1, 30, jitter=0)
    assert [backoff.next_seconds() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    backoff.reset()
    assert backoff.next_seconds() == 1


def test_long_series_of_failures_does_not_overflow() -> None:
    backoff = Backoff(0.5, 30, jitter=0)
    assert {backoff.next_seconds() for _ in range(5000)} == {0.5, 1, 2, 4, 8, 16, 30}


@pytest.mark.parametrize(("uniform", "delays"), [(0.0, [0.8, 1.6]), (0.5, [0.9, 1.8]), (1.0, [1, 2])])
def test_jitter_shortens_a_delay_by_its_share_at_most(uniform: float, delays: list[float]) -> None:
    backoff = Backoff(1, 30, jitter=0.2, uniform=lambda: uniform)
    assert [backoff.next_seconds(), backoff.next_seconds()] == pytest.approx(delays)


def test_delays_differ_between_replicas() -> None:
    assert len({Backoff(1, 30).next_seconds() for _ in range(20)}) > 1


@pytest.mark.parametrize(("requested", "low", "high"), [(0.1, 0.5, 1), (7, 7, 7.5), (86_400, 60, 60.5)])
def test_requested_delay_is_a_minimum_within_its_bound(requested: float, low: float, high: float) -> None:
    delays = [Backoff(1, 30, requested_max_seconds=60).next_seconds(requested) for _ in range(50)]
    assert low <= min(delays) <= max(delays) <= high
    assert Backoff(1, 30, jitter=0).next_seconds(86_400) == 86_400, "without a bound it is unchanged"


def test_first_delay_of_zero_stays_zero() -> None:
    backoff = Backoff(0, 0)
    assert [backoff.next_seconds() for _ in range(3)] == [0, 0, 0]
