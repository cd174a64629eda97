"""Observed outcomes: noise by the trigger's own intervals, and thresholds above it."""

import pytest

from webhook.core.kubernetes.quantity import Duration
from webhook.core.policy_fields import Breaker, ErrorRate, Latency, OutcomeRules, OutcomeSource
from webhook.core.suggestion.observed_outcomes import OutcomeHistory

SECOND_US = 1_000_000
PUSHED = OutcomeRules(OutcomeSource.PUSHED, ("edge",))


def breaker(percent: int = 95, mean: str = "2s") -> Breaker:
    return Breaker(PUSHED, ErrorRate(percent, consecutive=2), Latency(Duration.parse(mean), consecutive=2))


def history(found: Breaker | None, *seconds: tuple[int, int, int]) -> OutcomeHistory:
    """Return the outcomes of seconds: succeeded, failed, mean latency in milliseconds."""
    seen = OutcomeHistory(found)
    for number, (succeeded, failed, latency_ms) in enumerate(seconds):
        seen.add(number * SECOND_US, succeeded, failed, latency_ms * 1000)
    return seen


def test_noise_is_what_lasts_for_consecutive_intervals() -> None:
    seen = history(breaker(), (90, 10, 100), (20, 80, 900), (70, 30, 300), (100, 0, 50)).measure()
    assert seen is not None
    assert (seen.noise_percent, seen.noise_latency_us) == (30, 300_000)
    assert (seen.succeeded, seen.failed, seen.largest_latency_us) == (280, 120, 900_000)


def test_intervals_with_few_outcomes_do_not_count() -> None:
    seen = history(breaker(), (0, 5, 1), (0, 5, 1)).measure()
    assert seen is not None
    assert seen.noise_percent == 0


def test_thresholds_above_the_noise_are_kept() -> None:
    assert history(breaker(), (90, 10, 100), (80, 20, 100)).suggest() is None
    assert OutcomeHistory(breaker()).suggest() is None


def test_thresholds_within_the_noise_are_raised() -> None:
    found = history(breaker(10, "100ms"), (40, 60, 400), (60, 40, 300), (60, 40, 300)).suggest()
    assert found is not None
    assert found.breaker.error_rate == ErrorRate(70, consecutive=2)
    assert found.breaker.latency == Latency(Duration.parse("600ms"), consecutive=2)
    assert set(found.reasons) == {"errorRate", "latency"}


def test_noise_of_all_leaves_no_threshold() -> None:
    assert history(breaker(100), (0, 50, 1), (0, 50, 1)).suggest() is None


@pytest.mark.parametrize(("failed", "percent"), [(0, 50), (10, 55), (98, 99), (99, 100)])
def test_starts_without_a_breaker_get_one_above_their_noise(failed: int, percent: int) -> None:
    seen = OutcomeHistory(None)
    for minute in range(5):
        seen.add(minute * 60 * SECOND_US, 100 - failed, failed, 4 * SECOND_US)
    found = seen.suggest()
    assert found is not None
    assert found.breaker.error_rate is not None
    assert found.breaker.error_rate.percent == percent
    assert found.breaker.outcomes == OutcomeRules(OutcomeSource.POD_START)
