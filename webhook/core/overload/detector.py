"""Overload detector: decides from the latest reviews whether a server is overloaded, and when it no longer is.

Gated Pods are no measure: their reviews are fast because they skip the work. Therefore some Pods are probes, which are
judged as usual. The overload ends when reviews have been below the limits for a whole window. If it soon returns, this
time doubles, up to eight windows: else full load would return every few seconds to a server that cannot carry it.
"""

from collections.abc import Mapping

from webhook.core.overload.limits import OverloadCause, OverloadLimits
from webhook.core.overload.review_window import ReviewWindow

SLICES = 10
"""Slices of a window; `advance` is called once for each."""
_PROBE_EVERY = 10
_PROBE_SLICES = 2
"""One candidate of ten is a probe, and at least one in so many slices."""
_BACKOFF_MAX = 8


class OverloadDetector:
    """State of one server. Times in microseconds, of any monotonic clock."""

    def __init__(self, limits: OverloadLimits) -> None:
        self._limits = limits
        self._window = ReviewWindow(limits, SLICES)
        self.passed = 0
        """Reviews of this slice that neither failed nor were too slow. An observer counts them here, without a call."""
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
        """Whether reviews exceed their limits, so that Pods are gated; an absent store alone is no reason."""
        return OverloadCause.LATENCY in self.causes or OverloadCause.FAILURES in self.causes

    def reviewed(self, duration_ns: int, *, has_failed: bool) -> None:
        """Count a review of any Pod that was judged; `passed` takes those that need no more than a count."""
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
        """End a slice; return whether the causes have changed. `store_trouble`: why the store gives no answer."""
        self._window.current.reviews += self.passed
        self.passed = 0
        self._window.next()
        self._unprobed_slices += 1
        was = self.causes
        excess = self._excess(store_trouble)
        if excess:
            self._calm_since_us = None
            self._enter(excess, now_us)
        elif was:
            self._leave_if_calm(now_us)
        return self.causes.keys() != was.keys()

    def _excess(self, store_trouble: str) -> dict[OverloadCause, str]:
        found = {
            OverloadCause.LATENCY: self._window.excess_latency(self._least(OverloadCause.LATENCY)),
            OverloadCause.FAILURES: self._window.excess_failures(self._least(OverloadCause.FAILURES)),
            OverloadCause.STORE: f"the store does not respond: {store_trouble}" if store_trouble else "",
        }
        return {cause: text for cause, text in found.items() if text}

    def _least(self, cause: OverloadCause) -> int:
        """Return how many bad reviews count: of an overload each one, as few are measured."""
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
