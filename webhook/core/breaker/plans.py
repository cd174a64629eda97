"""Thresholds of a breaker in exact integers, and the reasons of their trips."""

from typing import ClassVar

from msgspec import Struct

from webhook.core.breaker.states import State, TransitionCause
from webhook.core.policy_fields import (
    Breaker,
    CountBy,
    ErrorRate,
    Latency,
    OutcomeRules,
    OutcomeSource,
    Shares,
    WhenOpen,
)


def format_duration(us: int) -> str:
    """Return a duration exactly, in the largest unit that keeps it whole: 180s, 500ms, 1500us."""
    for unit, size_us in (("s", 1_000_000), ("ms", 1000)):
        if us % size_us == 0:
            return f"{us // size_us}{unit}"
    return f"{us}us"


class ErrorRatePlan(Struct, frozen=True):
    cause: ClassVar = TransitionCause.ERROR_RATE
    percent: int
    interval_us: int
    consecutive: int
    minimum: int

    @classmethod
    def from_rule(cls, rule: ErrorRate) -> "ErrorRatePlan":
        return cls(rule.percent, rule.interval.us, rule.consecutive, rule.minimum_outcomes)

    def is_crossed(self, outcomes: int, errors: int) -> bool:
        return outcomes >= self.minimum and 100 * errors >= self.percent * outcomes

    @property
    def reason_head(self) -> str:
        return f"{self.cause}: >= {self.percent}% {_format_intervals(self)}, "

    def format_reason(self, outcomes: int, errors: int) -> str:
        return f"{self.reason_head}{errors} of {outcomes} in the last"


class UnschedulablePlan(ErrorRatePlan, frozen=True):
    """Trips on the first Pod that finds no node for `after_us`, however many others find one meanwhile."""

    cause: ClassVar = TransitionCause.UNSCHEDULABLE
    after_us: int = 0

    def is_crossed(self, outcomes: int, errors: int) -> bool:  # noqa: ARG002  a share says nothing here
        return errors > 0

    @property
    def reason_head(self) -> str:
        return f"{self.cause}: no node for {format_duration(self.after_us)}, "

    def format_reason(self, outcomes: int, errors: int) -> str:  # noqa: ARG002  as above
        return f"{self.reason_head}{errors} Pod{'s' * (errors > 1)}"


class LatencyPlan(Struct, frozen=True):
    cause: ClassVar = TransitionCause.LATENCY
    mean_us: int
    interval_us: int
    consecutive: int
    minimum: int

    @classmethod
    def from_rule(cls, rule: Latency) -> "LatencyPlan":
        return cls(rule.mean.us, rule.interval.us, rule.consecutive, rule.minimum_outcomes)

    def is_crossed(self, outcomes: int, latency_us: int) -> bool:
        return outcomes >= self.minimum and latency_us > self.mean_us * outcomes

    @property
    def reason_head(self) -> str:
        return f"{self.cause}: mean > {format_duration(self.mean_us)} {_format_intervals(self)}, "

    def format_reason(self, outcomes: int, latency_us: int) -> str:
        # Rounded up, so that a mean above the threshold is also shown above it.
        mean = format_duration(-(-latency_us // (outcomes * 1000)) * 1000)
        return f"{self.reason_head}{mean} over {outcomes} in the last"


def _format_intervals(rule: ErrorRatePlan | LatencyPlan) -> str:
    return f"in each of {rule.consecutive} intervals of {format_duration(rule.interval_us)}"


class QuotaEventPlan(Struct, frozen=True):
    cause: ClassVar = TransitionCause.QUOTA_EXCEEDED
    count: int
    within_us: int
    by_controller: bool

    def format_reason(self) -> str:
        counted = "controller" if self.by_controller else "request"
        counted += "s" * (self.count > 1)
        return f"{self.cause}: {self.count} {counted} refused within {format_duration(self.within_us)}"


class Forcing(Struct, frozen=True):
    """A state set by an override: FORCED_OPEN or FORCED_CLOSED, its end and its reason."""

    state: State
    until_us: int
    reason: str


_REPORT_DELAY_US = 60_000_000


def _find_report_delay_us(outcomes: OutcomeRules | None) -> int:
    """Return how long the outcome of a Pod's start may take. A probe must not expire before it can fail."""
    if outcomes is None or outcomes.source is not OutcomeSource.POD_START:
        return 0
    return outcomes.start_deadline.us + _REPORT_DELAY_US


class BreakerPlan(Struct, frozen=True):
    """A breaker's thresholds in exact integers. Without outcomes a probe succeeds when its Pod is charged.

    `degrades`: the breaker denies no Pod, but Pods are admitted without the policy's preferences. `open_max`: a trip is
    held back if this many breakers are open already; None for no limit. `forcing` overrides the state machine.
    """

    has_outcomes: bool
    error_rate: ErrorRatePlan | None
    latency: LatencyPlan | None
    quota: QuotaEventPlan | None
    open_for_us: int
    probes: int
    probe_timeout_us: int
    degrades: bool = False
    open_max: int | None = None
    forcing: Forcing | None = None

    @classmethod
    def for_variant(cls, shares: Shares, forcing: Forcing | None = None) -> "BreakerPlan":
        """Return the plan of the breaker of a variant: Pods that find no node open it, bound probes close it."""
        after_us = shares.unschedulable_for.us
        return cls(
            has_outcomes=True,
            error_rate=UnschedulablePlan(1, 1_000_000, 1, 1, after_us),
            latency=None,
            quota=None,
            open_for_us=shares.open_for.us,
            probes=shares.probes,
            probe_timeout_us=after_us + _REPORT_DELAY_US,
            forcing=forcing,
        )

    @classmethod
    def from_stanza(
        cls, breaker: Breaker, open_max: int | None = None, forcing: Forcing | None = None
    ) -> "BreakerPlan":
        events = breaker.quota_exceeded
        return cls(
            has_outcomes=breaker.outcomes is not None,
            error_rate=ErrorRatePlan.from_rule(breaker.error_rate) if breaker.error_rate else None,
            latency=LatencyPlan.from_rule(breaker.latency) if breaker.latency else None,
            quota=QuotaEventPlan(events.count, events.within.us, events.count_by is CountBy.CONTROLLER)
            if events
            else None,
            open_for_us=breaker.open_for.us,
            probes=breaker.half_open.probes,
            probe_timeout_us=max(breaker.half_open.probe_timeout.us, _find_report_delay_us(breaker.outcomes)),
            degrades=breaker.when_open is WhenOpen.DEGRADE,
            open_max=open_max,
            forcing=forcing,
        )
