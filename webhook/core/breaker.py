"""The words of a service's SLA breaker: its states, its thresholds, what callers see. It moves in `breaker_states`."""

from enum import StrEnum

from msgspec import Struct

from webhook.core.stanzas import Breaker, CountBy, ErrorRate, Latency


class State(StrEnum):
    """What callers see; the FORCED ones are set by hand."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"
    FORCED_OPEN = "FORCED_OPEN"
    FORCED_CLOSED = "FORCED_CLOSED"


def span(us: int) -> str:
    """Return a span exactly, in the largest unit that keeps it whole: 180s, 500ms, 1500us."""
    for unit, size_us in (("s", 1_000_000), ("ms", 1000)):
        if us % size_us == 0:
            return f"{us // size_us}{unit}"
    return f"{us}us"


class ErrorRatePlan(Struct, frozen=True):
    percent: int
    interval_us: int
    consecutive: int
    minimum: int

    @classmethod
    def of(cls, rule: ErrorRate) -> "ErrorRatePlan":
        return cls(rule.percent, rule.interval.us, rule.consecutive, rule.minimum_outcomes)

    def crossed(self, outcomes: int, errors: int) -> bool:
        return outcomes >= self.minimum and 100 * errors >= self.percent * outcomes

    @property
    def reason_head(self) -> str:
        return f"errorRate: >= {self.percent}% {_each(self)}, "

    def reason(self, outcomes: int, errors: int) -> str:
        return f"{self.reason_head}{errors} of {outcomes} in the last"


class LatencyPlan(Struct, frozen=True):
    mean_us: int
    interval_us: int
    consecutive: int
    minimum: int

    @classmethod
    def of(cls, rule: Latency) -> "LatencyPlan":
        return cls(rule.mean.us, rule.interval.us, rule.consecutive, rule.minimum_outcomes)

    def crossed(self, outcomes: int, latency_us: int) -> bool:
        return outcomes >= self.minimum and latency_us > self.mean_us * outcomes

    @property
    def reason_head(self) -> str:
        return f"latency: mean > {span(self.mean_us)} {_each(self)}, "

    def reason(self, outcomes: int, latency_us: int) -> str:
        # Rounded up: what stands above the threshold is shown above it.
        mean = span(-(-latency_us // (outcomes * 1000)) * 1000)
        return f"{self.reason_head}{mean} over {outcomes} in the last"


def _each(rule: ErrorRatePlan | LatencyPlan) -> str:
    return f"in each of {rule.consecutive} intervals of {span(rule.interval_us)}"


class QuotaEventPlan(Struct, frozen=True):
    count: int
    within_us: int
    by_controller: bool

    def reason(self) -> str:
        counted = "controller" if self.by_controller else "request"
        counted += "s" * (self.count > 1)
        return f"quotaExceeded: {self.count} {counted} refused within {span(self.within_us)}"


class BreakerPlan(Struct, frozen=True):
    """A breaker's thresholds in exact integers. Without outcomes a probe succeeds when its Pod is charged."""

    has_outcomes: bool
    error_rate: ErrorRatePlan | None
    latency: LatencyPlan | None
    quota: QuotaEventPlan | None
    open_for_us: int
    probes: int
    probe_timeout_us: int

    @classmethod
    def of(cls, breaker: Breaker) -> "BreakerPlan":
        events = breaker.quota_exceeded
        return cls(
            has_outcomes=breaker.outcomes is not None,
            error_rate=ErrorRatePlan.of(breaker.error_rate) if breaker.error_rate else None,
            latency=LatencyPlan.of(breaker.latency) if breaker.latency else None,
            quota=QuotaEventPlan(events.count, events.within.us, events.count_by is CountBy.CONTROLLER)
            if events
            else None,
            open_for_us=breaker.open_for.us,
            probes=breaker.half_open.probes,
            probe_timeout_us=breaker.half_open.probe_timeout.us,
        )


class Transition(Struct, frozen=True):
    """One change of state; `at_us` is when it took place, which may be before it was noticed."""

    service: str
    old: State
    new: State
    at_us: int
    reason: str
    generation: int


class BreakerView(Struct, frozen=True):
    """A breaker as callers see it at one moment. `open_until_us` is 0 unless OPEN."""

    state: State
    generation: int
    since_us: int
    open_until_us: int = 0
    reason: str = ""
    probes_leased: int = 0
    probes_succeeded: int = 0

    def open_remaining_us(self, now_us: int) -> int:
        """Return the countdown: microseconds until probes are let through, 0 unless OPEN."""
        return max(0, self.open_until_us - now_us) if self.state is State.OPEN else 0
