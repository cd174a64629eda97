"""Form of a metric family: its name, kind, labels and help, and how many series it may have."""

from dataclasses import dataclass
from enum import StrEnum

SERIES_MAX = 50_000
"""Maximum number of series per family; further label sets count under `other`, and those at 0 are left out."""


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `series_max` bounds its label sets."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    series_max: int = SERIES_MAX


def build_counter(name: str, labels: str, text: str, series_max: int = SERIES_MAX) -> Family:
    return Family(f"podgate_{name}", MetricKind.COUNTER, tuple(labels.split()), text, series_max)


def build_gauge(name: str, labels: str, text: str) -> Family:
    return Family(f"podgate_{name}", MetricKind.GAUGE, tuple(labels.split()), text)
