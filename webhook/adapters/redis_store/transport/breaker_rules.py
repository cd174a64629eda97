"""Records of a plan's breaker in a call of the Lua script: when it trips, and how it recovers."""

from typing import NamedTuple


class QuotaRule(NamedTuple):
    """When quota events trip a breaker: at this many within a time."""

    trip_count: int
    within_us: int
    by_controller: bool
    reason: str


class TriggerRule(NamedTuple):
    """When outcomes trip a breaker, and by which cause. `threshold`: errors in percent, or microseconds of latency."""

    cause: str
    threshold: int
    interval_us: int
    consecutive: int
    minimum: int
    reason_head: str


class ForcedState(NamedTuple):
    """A state that an override sets."""

    state: str
    until_us: int
    reason: str


class BreakerRules(NamedTuple):
    """A plan's breaker. `False` is a rule that it does not have."""

    has_outcomes: bool
    error_rate: TriggerRule | bool
    latency: TriggerRule | bool
    open_for_us: int
    probes: int
    probe_timeout_us: int
    degrades: bool
    open_max: int | bool
    forcing: ForcedState | bool
