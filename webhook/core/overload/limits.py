"""Limits above which a server is overloaded, and the causes of an overload."""

from enum import StrEnum

from msgspec import Struct


class OverloadCause(StrEnum):
    """What exceeds its limit, as the metric names it."""

    LATENCY = "latency"
    FAILURES = "failures"
    STORE = "store"
    """The store does not respond."""


class OverloadLimits(Struct, frozen=True):
    """Limits on the reviews of a trailing window.

    A server becomes overloaded only if at least `bad_min` of them were too slow, or failed: a few at night are none.
    """

    p99_ns: int = 800_000_000
    failure_share: float = 0.05
    """From 0 to 1."""
    window_us: int = 10_000_000
    bad_min: int = 5
