"""The slope of a series and its error."""

import random

from tests.soak.slope import fit_slope


def test_a_line_has_its_slope_and_no_error() -> None:
    slope = fit_slope([0, 1, 2, 3], [5, 7, 9, 11])
    assert (round(slope.per_unit, 9), round(slope.error, 9)) == (2, 0)


def test_the_error_is_that_of_repeated_samples() -> None:
    drawn = random.Random(1)  # noqa: S311  no secret
    times = range(50)
    slopes = [fit_slope(times, [drawn.gauss(3 * time, 10) for time in times]) for _ in range(400)]
    mean = sum(slope.per_unit for slope in slopes) / len(slopes)
    deviation = (sum((slope.per_unit - mean) ** 2 for slope in slopes) / len(slopes)) ** 0.5
    error = sum(slope.error for slope in slopes) / len(slopes)
    assert abs(mean - 3) < 0.05
    assert abs(deviation / error - 1) < 0.1
