"""Review window: counts of the reviews of a trailing window, in slices."""

from collections import deque

from webhook.core.overload.limits import OverloadLimits

_SLOW_PERCENT = 1
"""The P99 is above a limit if a larger part of the reviews is."""
_SECOND_NS = 1_000_000_000


class ReviewSlice:
    """Counts of one slice. They are changed with every review: nothing is computed here."""

    __slots__ = ("failed", "gated", "reviews", "slow_ns")

    def __init__(self) -> None:
        self.reviews = 0
        self.failed = 0
        self.gated = 0
        """Reviews of Pods that were gated without being judged: they say nothing about the load."""
        self.slow_ns: list[int] = []
        """Durations above the limit. The bound on concurrent calls bounds their number."""


class ReviewWindow:
    """The last `slices` slices, and the current one, which `next` ends."""

    def __init__(self, limits: OverloadLimits, slices: int) -> None:
        self._limits = limits
        self._ended: deque[ReviewSlice] = deque(maxlen=slices)
        self.current = ReviewSlice()

    def next(self) -> None:
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

    def excess_latency(self, least: int) -> str:
        """Return by how much the P99 is too high, "" if it is not, or if fewer than `least` reviews were too slow."""
        slow_ns = sorted(duration for part in self._ended for duration in part.slow_ns)
        reviews, limits = self.reviews, self._limits
        if len(slow_ns) < least or 100 * len(slow_ns) <= _SLOW_PERCENT * reviews:
            return ""
        p99_ns = slow_ns[-1 - _SLOW_PERCENT * reviews // 100]
        return f"P99 of reviews {_shown(p99_ns)} above {_shown(limits.p99_ns)} over {_shown(limits.window_us * 1000)}"

    def excess_failures(self, least: int) -> str:
        """Return by how much too many reviews failed, "" if not, or if fewer than `least` did."""
        failed, reviews, limits = sum(part.failed for part in self._ended), self.reviews, self._limits
        if failed < least or failed <= limits.failure_share * reviews:
            return ""
        share = f"{100 * failed / reviews:.3g} % of reviews failed"
        return f"{share}, above {100 * limits.failure_share:g} %, over {_shown(limits.window_us * 1000)}"


def _shown(duration_ns: int) -> str:
    """Return a duration as text, such as 1.2 s or 800 ms."""
    return f"{duration_ns / _SECOND_NS:.3g} s" if duration_ns >= _SECOND_NS else f"{duration_ns / 1e6:.3g} ms"
