"""Median, minimum and maximum of the rounds of a measurement."""

import statistics
from collections.abc import Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Median, minimum and maximum."""

    median: float
    low: float
    high: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def from_ratios(cls, values: Sequence[float], others: Sequence[float]) -> "Spread":
        """Return the spread of the ratios of each round: the load of the machine differs between rounds."""
        return cls.from_values([mine / theirs for mine, theirs in zip(values, others, strict=True)])

    def __format__(self, form: str) -> str:
        low, high = format(self.low, form), format(self.high, form)
        return f"{format(self.median, form)} ({low}-{high})"
