"""Helpers of the `operations` tests that other tests use, too."""

from webhook.core.breaker import BreakerPlan, ErrorRatePlan, QuotaEventPlan

SECOND_US = 1_000_000


BREAKER = BreakerPlan(
    has_outcomes=True,
    error_rate=ErrorRatePlan(percent=50, interval_us=SECOND_US, consecutive=1, minimum=1),
    latency=None,
    quota=QuotaEventPlan(count=2, within_us=60 * SECOND_US, by_controller=True),
    open_for_us=10 * SECOND_US,
    probes=2,
    probe_timeout_us=30 * SECOND_US,
)
