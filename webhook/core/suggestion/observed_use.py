"""Observed use of one counter: its largest and usual use in sliding windows, when that was, and by which workloads."""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import median_high

from msgspec import Struct

from webhook.core.quota import Cost

_SECOND_US = 1_000_000
_HOUR_SECONDS = 3600
_BUCKETS = 64
"""A charge counts for up to 1/64 longer than its window: the largest use holds for any position of the buckets."""
_CONTRIBUTORS_MAX = 3
_OUTLIER_FACTOR = 3
_OUTLIER_SPANS_MIN = 6
"""Fewer spans with use do not show what is usual."""


class WorkloadShare(Struct, frozen=True):
    """The share of one workload in a use."""

    workload: str
    amount: int


class Outlier(Struct, frozen=True):
    """A single burst far above all other use, mostly by one workload; `without` is the largest use without it."""

    workload: str
    amount: int
    without: int


class ObservedUse(Struct, frozen=True):
    """Use of one resource in one sliding window, or at one time (`seconds` 0), in the units of counters.

    `usual` is the median of the largest use in each hour with use, or in each span as long as a longer window.
    """

    seconds: int
    resource: str
    largest: int
    at_us: int
    usual: int
    spans: int
    """Hours with use, or spans as long as the window."""
    contributors: tuple[WorkloadShare, ...]
    """The workloads of the largest use, the largest share first."""
    outlier: Outlier | None = None
    source: str = ""
    """The system that has measured it, each hour at its end; "" if it was observed in requests."""


class UseHistory:
    """Charges of one counter in order of time, and what ended. A charge takes some bytes; equal costs are kept once."""

    def __init__(self) -> None:
        self._at_us = array("q")
        self._signs = array("b")
        self._workloads = array("L")
        self._costs = array("L")
        self._names: dict[str, int] = {}
        self._known: dict[tuple[tuple[str, int], ...], int] = {}

    def add(self, at_us: int, workload: str, cost: Cost, sign: int = 1) -> None:
        """Add a charge, or with `sign` -1 its end; `at_us` does not decrease."""
        self._at_us.append(at_us)
        self._signs.append(sign)
        self._workloads.append(self._names.setdefault(workload, len(self._names)))
        self._costs.append(self._known.setdefault(tuple(sorted(cost.items())), len(self._known)))

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that were charged, `pods` first."""
        found = {resource for cost in self._known for resource, amount in cost if amount}
        return tuple(sorted(found, key=lambda resource: (resource != "pods", resource)))

    def measure(self, seconds: int, resource: str) -> ObservedUse | None:
        """Return the use of a resource in windows of that length, 0: at one time. None: it was never charged."""
        amounts = [dict(cost).get(resource, 0) for cost in self._known]
        span_us = max(_HOUR_SECONDS, seconds) * _SECOND_US
        largest = peak = peak_first = 0
        spans: dict[int, int] = {}
        for index, first, used in self._slide(amounts, seconds):
            span = self._at_us[index] // span_us
            spans[span] = max(spans.get(span, 0), used)
            if used > largest:
                largest, peak, peak_first = used, index, first
        if not largest:
            return None
        shares = self._share(amounts, peak_first, peak)
        at_us = self._at_us[peak]
        return ObservedUse(
            seconds,
            resource,
            largest,
            at_us,
            usual=median_high(spans.values()),
            spans=len(spans),
            contributors=shares,
            outlier=_find_outlier(largest, at_us // span_us, spans, shares[0]),
        )

    def _slide(self, amounts: list[int], seconds: int) -> Iterator[tuple[int, int, int]]:
        """Yield the index of each change, the first index that counts then, and the use."""
        window_us = seconds * _SECOND_US
        kept_us = window_us + window_us // _BUCKETS
        used = first = 0
        for index, at_us in enumerate(self._at_us):
            amount = amounts[self._costs[index]]
            if not amount:
                continue
            if seconds:
                while self._at_us[first] <= at_us - kept_us:
                    used -= amounts[self._costs[first]]
                    first += 1
            used += amount * self._signs[index]
            yield index, first, used

    def _share(self, amounts: list[int], first: int, last: int) -> tuple[WorkloadShare, ...]:
        found: Counter[int] = Counter()
        for index in range(first, last + 1):
            found[self._workloads[index]] += amounts[self._costs[index]] * self._signs[index]
        names = list(self._names)
        return tuple(WorkloadShare(names[name], amount) for name, amount in found.most_common(_CONTRIBUTORS_MAX))


def _find_outlier(largest: int, peak: int, spans: Mapping[int, int], first: WorkloadShare) -> Outlier | None:
    """Return the largest use as an outlier, if it is one. Spans beside it may have its use in their windows."""
    others = [used for span, used in spans.items() if abs(span - peak) > 1]
    if len(others) < _OUTLIER_SPANS_MIN or largest < _OUTLIER_FACTOR * max(others) or 2 * first.amount < largest:
        return None
    return Outlier(first.workload, first.amount, max(others))
