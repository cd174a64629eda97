"""Overload monitor: an observer that measures this server's reviews, and tells whether it is overloaded."""

import asyncio
from collections.abc import Callable, Mapping

from webhook.core.admission.decision import Half, Verdict
from webhook.core.findings import Code
from webhook.core.overload import SLICES, OverloadCause, OverloadDetector, OverloadLimits
from webhook.ports import Clock, PartialObserver, Review

_FAILURES = frozenset(
    {"internal_error", "overloaded", "body_displaced", "caller_gone", "no_policy", "namespace_unknown"}
)
"""Reasons of calls that were refused with a 5xx after their caller was authenticated: others cannot gate Pods."""


class OverloadMonitor(PartialObserver):
    """`run` evaluates the reviews each tenth of the window; a review itself is only counted.

    `store_trouble` returns why the store gives no answer, "" if it does. `on_changed` receives the former causes and
    the present ones.
    """

    def __init__(
        self,
        limits: OverloadLimits,
        clock: Clock,
        store_trouble: Callable[[], str],
        on_changed: Callable[[Mapping[OverloadCause, str], Mapping[OverloadCause, str]], None],
    ) -> None:
        self._detector = OverloadDetector(limits)
        self._slow_ns = limits.p99_ns
        self._slice_seconds = limits.window_us / SLICES / 1_000_000
        self._clock = clock
        self.store_trouble = store_trouble
        self._on_changed = on_changed
        self.gated = 0
        """Pods gated during this overload."""

    @property
    def causes(self) -> Mapping[OverloadCause, str]:
        """Why this server is overloaded; empty if it is not."""
        return self._detector.causes

    @property
    def since_us(self) -> int:
        return self._detector.since_us

    @property
    def is_busy(self) -> bool:
        """Whether Pods are to be gated because of the reviews, whatever the store does."""
        return self._detector.is_busy

    def find_reason_to_gate(self) -> str:
        """Return why a Pod that may be gated is not judged; "" without an overload, and for a probe."""
        if not self.is_busy or self._detector.takes_probe():
            return ""
        return "; ".join(self.causes.values())

    def on_reviewed(self, review: Review) -> None:
        decision = review.decision
        if decision.deviation.overload:
            self.gated += decision.half is Half.MUTATE and not decision.call.dry_run
        elif decision.verdict is Verdict.QUEUE:
            pass  # a waiting Pod is only registered: it is judged later
        elif decision.findings or decision.charge.uncounted or review.duration_ns > self._slow_ns:
            has_failed = decision.charge.uncounted or any(
                found.code is Code.STORE_UNAVAILABLE for found in decision.findings
            )
            self._detector.count_review(review.duration_ns, has_failed=has_failed)
        else:
            self._detector.passed += 1

    def on_refused(self, reason: str, detail: str) -> None:  # noqa: ARG002  the detail is for the log
        if reason in _FAILURES:
            self._detector.count_review(0, has_failed=True)

    async def run(self) -> None:
        """Evaluate until cancelled."""
        while True:
            await asyncio.sleep(self._slice_seconds)
            self.evaluate()

    def evaluate(self) -> None:
        """End a slice of the window."""
        former = self.causes
        if self._detector.advance(self._clock.now_us(), self.store_trouble()):
            if not former:
                self.gated = 0
            self._on_changed(former, self.causes)
