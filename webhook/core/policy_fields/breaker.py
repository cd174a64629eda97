"""The stanza `breaker` of a service: when its breaker opens, and how it closes."""

from typing import Annotated

from msgspec import Meta, Struct, field

from webhook.core.kubernetes.quantity import Duration
from webhook.core.policy_fields.field_types import Choice, Count, Interval, Name, Percent, default_duration


class OutcomeSource(Choice):
    PUSHED = "Pushed"
    POD_START = "PodStart"


class OutcomeRules(Struct, frozen=True, rename="camel"):
    """Source of the outcomes that the breaker counts."""

    source: OutcomeSource
    reporters: tuple[Name, ...] = ()
    start_deadline: Duration = default_duration("5m")


class ErrorRate(Struct, frozen=True, rename="camel"):
    """Trips when each of the last `consecutive` complete intervals has at least `percent` errors."""

    percent: Percent = 95
    interval: Interval = default_duration("1s")
    consecutive: Count = 3
    minimum_outcomes: Count = 10


class Latency(Struct, frozen=True, rename="camel"):
    """Trips when each of the last `consecutive` complete intervals has a mean latency above `mean`."""

    mean: Duration = default_duration("2s")
    interval: Interval = default_duration("1s")
    consecutive: Count = 5
    minimum_outcomes: Count = 1


class CountBy(Choice):
    CONTROLLER = "Controller"
    REQUEST = "Request"


class QuotaExceeded(Struct, frozen=True, rename="camel"):
    """Trips on `count` quota events `within` a trailing span."""

    count: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1000})] = 10
    within: Duration = default_duration("1m")
    count_by: CountBy = CountBy.CONTROLLER


class HalfOpen(Struct, frozen=True, rename="camel"):
    probes: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 100})] = 3
    probe_timeout: Duration = default_duration("5m")


class WhenOpen(Choice):
    DENY = "Deny"
    DEGRADE = "Degrade"
    QUEUE = "Queue"


class Breaker(Struct, frozen=True, rename="camel"):
    outcomes: OutcomeRules | None = None
    error_rate: ErrorRate | None = None
    latency: Latency | None = None
    quota_exceeded: QuotaExceeded | None = None
    open_for: Duration = default_duration("180s")
    half_open: HalfOpen = field(default_factory=HalfOpen)
    when_open: WhenOpen = WhenOpen.DENY
