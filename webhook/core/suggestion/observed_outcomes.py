"""Observed outcomes of a service: starts or requests, their failures, and breaker triggers above their noise."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes.quantity import Duration
from webhook.core.policy_fields import Breaker, ErrorRate, Latency, OutcomeRules, OutcomeSource

_PERCENT_MIN = 50
_LATENCY_FACTOR = 2
_MS_US = 1_000
_LATENCIES_MAX = 10_000
"""Latencies kept for the usual one."""
_START_INTERVAL = Duration.parse("1m")


class _Sums(Struct):
    succeeded: int = 0
    failed: int = 0
    latency_us: int = 0

    @property
    def total(self) -> int:
        return self.succeeded + self.failed

    def add(self, succeeded: int, failed: int, latency_us: int) -> None:
        self.succeeded += succeeded
        self.failed += failed
        self.latency_us += latency_us


class ObservedOutcomes(Struct, frozen=True, rename="camel"):
    """What was reported. The noise is the highest level that lasted for a trigger's `consecutive` intervals, or 0."""

    source: OutcomeSource
    succeeded: int
    failed: int
    usual_latency_us: int
    largest_latency_us: int
    noise_percent: int
    noise_latency_us: int


class BreakerSuggestion(Struct, frozen=True, rename="camel"):
    """A breaker with triggers above the noise, and why: a note by the name of the trigger."""

    breaker: Breaker
    reasons: Mapping[str, str]


class OutcomeHistory:
    """Outcomes of one service, by the intervals of the triggers of its breaker, or of those that it would have."""

    def __init__(self, breaker: Breaker | None) -> None:
        self._breaker = breaker
        self._errors: dict[int, _Sums] = {}
        self._latency: dict[int, _Sums] = {}
        self._latencies_us: list[int] = []
        self._largest_us = 0
        self._total = _Sums()
        self._rules = breaker.outcomes if breaker is not None else None
        starts = self._rules is None or self._rules.source is OutcomeSource.POD_START
        error_rate, latency = (breaker.error_rate, breaker.latency) if breaker is not None else (None, None)
        self._error_rate = error_rate or (ErrorRate(interval=_START_INTERVAL) if starts else ErrorRate())
        self._slowness = latency or (Latency(interval=_START_INTERVAL) if starts else Latency())

    def add(self, at_us: int, succeeded: int, failed: int, latency_us: int) -> None:
        """Add outcomes; `latency_us` is their mean."""
        count = succeeded + failed
        if not count:
            return
        for sums in (
            self._errors.setdefault(at_us // self._error_rate.interval.us, _Sums()),
            self._latency.setdefault(at_us // self._slowness.interval.us, _Sums()),
            self._total,
        ):
            sums.add(succeeded, failed, latency_us * count)
        self._largest_us = max(self._largest_us, latency_us)
        if len(self._latencies_us) < _LATENCIES_MAX:
            self._latencies_us.append(latency_us)

    def measure(self) -> ObservedOutcomes | None:
        """Return what was seen; None: nothing was reported."""
        if not self._total.total:
            return None
        percents = {
            number: 100 * sums.failed // sums.total
            for number, sums in self._errors.items()
            if sums.total >= self._error_rate.minimum_outcomes
        }
        means_us = {
            number: sums.latency_us // sums.total
            for number, sums in self._latency.items()
            if sums.total >= self._slowness.minimum_outcomes
        }
        latencies_us = sorted(self._latencies_us)
        return ObservedOutcomes(
            self._rules.source if self._rules is not None else OutcomeSource.POD_START,
            self._total.succeeded,
            self._total.failed,
            usual_latency_us=latencies_us[len(latencies_us) // 2],
            largest_latency_us=self._largest_us,
            noise_percent=_find_noise(percents, self._error_rate.consecutive),
            noise_latency_us=_find_noise(means_us, self._slowness.consecutive),
        )

    def suggest(self) -> BreakerSuggestion | None:
        """Return triggers above the noise where the breaker has none, or one that the noise reaches."""
        seen = self.measure()
        if seen is None:
            return None
        breaker = self._breaker or Breaker(outcomes=OutcomeRules(seen.source))
        if breaker.outcomes is None:
            return None
        reasons = {}
        if (self._breaker is None or breaker.error_rate is not None) and (
            breaker.error_rate is None or breaker.error_rate.percent <= seen.noise_percent
        ):
            percent = max(_PERCENT_MIN, (100 + seen.noise_percent + 1) // 2)
            if percent > seen.noise_percent:
                breaker = replace(breaker, error_rate=replace(self._error_rate, percent=percent))
                reasons["errorRate"] = f"halfway from the noise, {seen.noise_percent}%, to all, and at least 50%"
        if breaker.latency is not None and breaker.latency.mean.us <= seen.noise_latency_us:
            mean = _round_duration(_LATENCY_FACTOR * seen.noise_latency_us)
            breaker = replace(breaker, latency=replace(breaker.latency, mean=mean))
            reasons["latency"] = f"twice the noise, {_round_duration(seen.noise_latency_us)}"
        return BreakerSuggestion(breaker, reasons) if reasons else None


def _find_noise(levels: Mapping[int, int], consecutive: int) -> int:
    """Return the highest level that each of `consecutive` intervals in a row has reached."""
    return max(
        (min(levels.get(first + offset, 0) for offset in range(consecutive)) for first in levels),
        default=0,
    )


def _round_duration(us: int) -> Duration:
    """Return a duration, rounded up to whole milliseconds."""
    return Duration.parse(f"{-(-us // _MS_US)}ms")
