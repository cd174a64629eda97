"""Accumulators of the hot path: a dictionary and a bisection. The SDK is too slow for it."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from webhook.adapters.metrics.family import Family

OTHER = "other"

BOUNDS_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 0.8, 1.0, 2.5, 5.0, 10.0),
)
"""From 100 us, a fast decision, to 10 s, Kubernetes' default webhook timeout; 0.8 s is the objective for reviews."""

STAGE_BOUNDS_SECONDS = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.8)
"""Fewer: there are 14 series. 50 ms is the default of --store-deadline."""

WAIT_BOUNDS_SECONDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 21600.0)
"""Of waiting Pods; 15 minutes is the default of `maxWait`."""

Row = tuple[tuple[str, ...], float]
"""Label values, in the family's order, and the value."""


class Count:
    """The value of one counter series; frequent writers keep it instead of looking up its labels again."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Totals:
    """One counter family. Label sets beyond its bound count under `other`, so that no client can exhaust memory."""

    __slots__ = ("_counts", "family")

    def __init__(self, family: Family, *start: tuple[str, ...]) -> None:
        self.family = family
        self._counts = {labels: Count() for labels in start}

    def add(self, *labels: str, count: int = 1) -> None:
        self.find_count(labels).value += count

    def find_count(self, labels: tuple[str, ...]) -> Count:
        """Return the count of a series. `keep` ends those of a service."""
        counts = self._counts
        found = counts.get(labels)
        if found is None:
            if len(counts) >= self.family.series_max:
                labels = (OTHER,) * len(labels)
            found = counts.setdefault(labels, Count())
        return found

    def keep(self, services: frozenset[str]) -> None:
        """Remove the series of services that are gone; series without a service stay."""
        if "service" in self.family.labels:
            index = self.family.labels.index("service")
            self.select(lambda labels: not labels[index] or labels[index] in services)

    def select(self, is_kept: Callable[[tuple[str, ...]], bool]) -> None:
        """Remove the series whose labels are not kept."""
        self._counts = {labels: count for labels, count in self._counts.items() if is_kept(labels)}

    def rows(self) -> Iterable[Row]:
        return [(labels, count.value) for labels, count in list(self._counts.items())]


class Exemplar(NamedTuple):
    """A traced review in one bucket of a histogram."""

    trace_id: str
    span_id: str
    seconds: float
    at_seconds: float
    """Since the Unix epoch."""


class Durations:
    """One histogram series."""

    __slots__ = ("_bounds_ns", "_counts", "_sum_ns", "bounds_seconds", "exemplars")

    def __init__(self, bounds_seconds: Sequence[float] = BOUNDS_SECONDS) -> None:
        self.bounds_seconds = bounds_seconds
        self._bounds_ns = [round(bound * 1e9) for bound in bounds_seconds]
        self._counts = [0] * (len(bounds_seconds) + 1)
        self._sum_ns = 0
        self.exemplars: dict[int, Exemplar] = {}
        """The newest exemplar of each bucket, by its index."""

    def add(self, duration_ns: int) -> None:
        self._counts[bisect_left(self._bounds_ns, duration_ns)] += 1
        self._sum_ns += duration_ns

    def add_all(self, durations_ns: list[int]) -> None:
        """Add many durations, which are sorted in place: cheaper than one `add` for each."""
        durations_ns.sort()
        counts, begin = self._counts, 0
        for index, bound_ns in enumerate(self._bounds_ns):
            end = bisect_right(durations_ns, bound_ns, begin)
            counts[index] += end - begin
            begin = end
        counts[-1] += len(durations_ns) - begin
        self._sum_ns += sum(durations_ns)

    def keep(self, exemplar: Exemplar) -> None:
        self.exemplars[bisect_left(self.bounds_seconds, exemplar.seconds)] = exemplar

    def read(self) -> tuple[list[int], float]:
        """Return the count of each bucket and the sum in seconds."""
        return list(self._counts), self._sum_ns / 1e9
