"""Slope of a series, with its standard error."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Slope(NamedTuple):
    """Growth per unit of time by least squares, and the standard error of it."""

    per_unit: float
    error: float

    def __format__(self, form: str) -> str:
        return f"{format(self.per_unit, form)} +- {format(self.error, form)}"


def fit_slope(times: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the slope of a line through the points; there must be three of them, at different times."""
    line = statistics.linear_regression(times, values)
    mean = statistics.fmean(times)
    spread = sum((time - mean) ** 2 for time in times)
    residuals = (value - line.slope * time - line.intercept for time, value in zip(times, values, strict=True))
    variance = sum(residual**2 for residual in residuals) / (len(times) - 2)
    return Slope(line.slope, math.sqrt(variance / spread))
