"""Averages by age, frozen loads of dead exporters, and the ladder of sources."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.scheduling.measured_load import (
    Decay,
    NodeLoad,
    average_with_decay,
    choose_freshest,
    compute_deviation,
    keep_last_known,
)

DECAY = Decay(0.8, 30.0)


def test_average_weighs_samples_by_age() -> None:
    samples = [(0, 8.0), (30, 4.0), (60, 2.0)]
    expected = (0.64 * 8 + 0.8 * 4 + 2) / (0.64 + 0.8 + 1)
    assert average_with_decay(samples, 60, DECAY) == pytest.approx(expected)


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0, 1e6)), min_size=1))
def test_average_lies_between_the_samples(pairs: list[tuple[float, float]]) -> None:
    average = average_with_decay(pairs, 300, DECAY)
    assert average is not None
    values = [value for _, value in pairs]
    assert min(values) - 1e-6 <= average <= max(values) * (1 + 1e-9) + 1e-6


@pytest.mark.parametrize("value", [nan, inf, -inf, -1.0])
def test_values_that_are_no_measurement_are_ignored(value: float) -> None:
    assert average_with_decay([(0, value)], 0, DECAY) is None
    assert average_with_decay([(0, value), (0, 3.0)], 0, DECAY) == 3.0


def test_deviation_weighs_samples_as_the_average_does() -> None:
    samples = [(0, 8.0), (30, 4.0), (60, 2.0)]
    average = (0.64 * 8 + 0.8 * 4 + 2) / 2.44
    variance = (0.64 * (8 - average) ** 2 + 0.8 * (4 - average) ** 2 + (2 - average) ** 2) / 2.44
    assert compute_deviation(samples, average, 60, DECAY) == pytest.approx(variance**0.5)
    noise = [(0, nan), (60, inf), (60, -9.0), (60, 1e200)]
    assert compute_deviation([*samples, *noise], average, 60, DECAY) == pytest.approx(variance**0.5)
    assert compute_deviation([(60, 3.0)], 3.0, 60, DECAY) == compute_deviation([], 3.0, 60, DECAY) == 0.0


def load(source: str, at_seconds: float, cpu: float = 1.0) -> NodeLoad:
    return NodeLoad(source, at_seconds, cpu)


def test_dead_exporter_leaves_its_last_load_until_it_is_stale_and_then_the_next_source_is_used() -> None:
    before = {"a": load("prometheus", 100, 7.5), "b": load("prometheus", 100)}
    prometheus = keep_last_known(before, {"b": load("prometheus", 130)})
    ladder = [prometheus, {"a": load("metricsAPI", 150, 7.0)}]
    assert choose_freshest(ladder, "a", 160, 90) == load("prometheus", 100, 7.5)
    assert choose_freshest(ladder, "a", 191, 90) == load("metricsAPI", 150, 7.0)
    assert choose_freshest(ladder, "a", 241, 90) is None
    assert choose_freshest(ladder, "b", 191, 90) == load("prometheus", 130)
    assert choose_freshest(ladder, "unknown", 100, 90) is None
