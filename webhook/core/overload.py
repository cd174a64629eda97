"""Overload detector: decides from the latest reviews whether a server is overloaded, by its limits.

Reviews of gated Pods do not measure load: they are fast because they skip the work. Therefore some Pods are probes,
which are judged as usual. The overload ends when reviews have been below the limits for a whole window. If it soon
returns, this time doubles, up to eight windows: otherwise full load would return every few seconds to a server that
cannot carry it.
"""

from collections import deque
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class OverloadCause(StrEnum):
    """The limit that is exceeded, as the metric names it."""

    LATENCY = "latency"
    FAILURES = "failures"
    STORE = "store"
    """The store does not respond."""


class OverloadLimits(Struct, frozen=True):
    """Limits on the reviews of a trailing window.

    A server becomes overloaded only if at least `bad_min` of them were too slow, or failed: with few reviews, as at
    night, single slow ones are no overload.
    """

    p99_ns: int = 800_000_000
    failure_share: float = 0.05
    """From 0 to 1."""
    window_us: int = 10_000_000
    bad_min: int = 5


SLICES = 10
"""Slices in a window; `advance` is called once for each."""
_PROBE_EVERY = 10
_PROBE_SLICES = 2
"""One candidate in ten is a probe, and at least one in this number of slices."""
_BACKOFF_MAX = 8


class OverloadDetector:
    """State of one server. Times in microseconds, of any monotonic clock."""

    def __init__(self, limits: OverloadLimits) -> None:
        self._limits = limits
        self._window = ReviewWindow(limits, SLICES)
        self.passed = 0
        """Reviews of this slice that neither failed nor were too slow. An observer increments it directly."""
        self.causes: Mapping[OverloadCause, str] = {}
        """Why the server is overloaded, as text for people; empty if it is not."""
        self.since_us = 0
        """When the overload began."""
        self._calm_since_us: int | None = None
        self._windows_needed = 1
        self._left_us: int | None = None
        self._candidates = 0
        self._unprobed_slices = 0

    @property
    def is_busy(self) -> bool:
        """Whether reviews exceed their limits, so that Pods are gated. An unavailable store alone does not count."""
        return OverloadCause.LATENCY in self.causes or OverloadCause.FAILURES in self.causes

    def count_review(self, duration_ns: int, *, has_failed: bool) -> None:
        """Count the review of a judged Pod; `passed` counts those that neither failed nor were too slow."""
        current = self._window.current
        current.reviews += 1
        if has_failed:
            current.failed += 1
        if duration_ns > self._limits.p99_ns:
            current.slow_ns.append(duration_ns)

    def takes_probe(self) -> bool:
        """Return whether a Pod that may be gated is judged instead. Each call is one candidate."""
        self._candidates += 1
        if self._candidates < _PROBE_EVERY and self._unprobed_slices < _PROBE_SLICES:
            self._window.current.gated += 1
            return False
        self._candidates = self._unprobed_slices = 0
        return True

    def advance(self, now_us: int, store_trouble: str) -> bool:
        """End a slice; return whether the causes have changed. `store_trouble`: why the store does not respond."""
        self._window.current.reviews += self.passed
        self.passed = 0
        self._window.end_slice()
        self._unprobed_slices += 1
        was = self.causes
        excess = self._find_excess(store_trouble)
        if excess:
            self._calm_since_us = None
            self._enter(excess, now_us)
        elif was:
            self._leave_if_calm(now_us)
        return self.causes.keys() != was.keys()

    def _find_excess(self, store_trouble: str) -> dict[OverloadCause, str]:
        found = {
            OverloadCause.LATENCY: self._window.describe_excess_latency(self._compute_bad_min(OverloadCause.LATENCY)),
            OverloadCause.FAILURES: self._window.describe_excess_failures(
                self._compute_bad_min(OverloadCause.FAILURES)
            ),
            OverloadCause.STORE: f"the store does not respond: {store_trouble}" if store_trouble else "",
        }
        return {cause: text for cause, text in found.items() if text}

    def _compute_bad_min(self, cause: OverloadCause) -> int:
        """Return the minimum number of bad reviews: one during an overload, in which few reviews are measured."""
        return 1 if cause in self.causes else self._limits.bad_min

    def _enter(self, excess: dict[OverloadCause, str], now_us: int) -> None:
        if not self.causes:
            self.since_us = now_us
            self._candidates = self._unprobed_slices = 0
            again_us = 2 * self._windows_needed * self._limits.window_us
            is_relapse = self._left_us is not None and now_us - self._left_us < again_us
            self._windows_needed = min(2 * self._windows_needed, _BACKOFF_MAX) if is_relapse else 1
        self.causes = {**self.causes, **excess}  # a cause ends with the overload

    def _leave_if_calm(self, now_us: int) -> None:
        if self._window.is_unmeasured:
            self._calm_since_us = None
            return
        if self._calm_since_us is None:
            self._calm_since_us = now_us
        if now_us - self._calm_since_us >= self._windows_needed * self._limits.window_us:
            self.causes, self._calm_since_us, self._left_us = {}, None, now_us


_SLOW_PERCENT = 1
"""The P99 is above a limit if more than this percentage of the reviews is."""
_SECOND_NS = 1_000_000_000


class ReviewSlice:
    """Counts of one slice. Every review changes them, so nothing is computed here."""

    __slots__ = ("failed", "gated", "reviews", "slow_ns")

    def __init__(self) -> None:
        self.reviews = 0
        self.failed = 0
        self.gated = 0
        """Reviews of Pods that were gated without being judged: they say nothing about the load."""
        self.slow_ns: list[int] = []
        """Durations above the limit. The bound on concurrent calls bounds their number."""


class ReviewWindow:
    """The last `slices` slices, and the current slice, which `end_slice` ends."""

    def __init__(self, limits: OverloadLimits, slices: int) -> None:
        self._limits = limits
        self._ended: deque[ReviewSlice] = deque(maxlen=slices)
        self.current = ReviewSlice()

    def end_slice(self) -> None:
        """End the current slice."""
        self._ended.append(self.current)
        self.current = ReviewSlice()

    @property
    def reviews(self) -> int:
        return sum(part.reviews for part in self._ended)

    @property
    def is_unmeasured(self) -> bool:
        """Whether Pods were gated, and no review was measured."""
        return not self.reviews and any(part.gated for part in self._ended)

    def describe_excess_latency(self, least: int) -> str:
        """Return how far the P99 is above its limit; "" if it is not, or for fewer than `least` slow reviews."""
        slow_ns = sorted(duration for part in self._ended for duration in part.slow_ns)
        reviews, limits = self.reviews, self._limits
        if len(slow_ns) < least or 100 * len(slow_ns) <= _SLOW_PERCENT * reviews:
            return ""
        p99_ns = slow_ns[-1 - _SLOW_PERCENT * reviews // 100]
        p99, limit, window = (_format_duration(ns) for ns in (p99_ns, limits.p99_ns, limits.window_us * 1000))
        return f"P99 of reviews {p99} above {limit} over {window}"

    def describe_excess_failures(self, least: int) -> str:
        """Return how far the failures are above their limit; "" if they are not, or fewer than `least`."""
        failed, reviews, limits = sum(part.failed for part in self._ended), self.reviews, self._limits
        if failed < least or failed <= limits.failure_share * reviews:
            return ""
        share = f"{100 * failed / reviews:.3g} % of reviews failed"
        return f"{share}, above {100 * limits.failure_share:g} %, over {_format_duration(limits.window_us * 1000)}"


def _format_duration(duration_ns: int) -> str:
    """Return a duration as text, such as 1.2 s or 800 ms."""
    return f"{duration_ns / _SECOND_NS:.3g} s" if duration_ns >= _SECOND_NS else f"{duration_ns / 1e6:.3g} ms"
