"""Callbacks of the waking of held controllers, and its intervals and bounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class WakeResult(StrEnum):
    """The effect of waking a controller."""

    CREATED = "created"
    """It has created Pods, or no longer lacks any."""
    REFUSED = "refused"
    """It lacks as many Pods as before."""
    GONE = "gone"
    """It was deleted."""
    FAILED = "failed"
    """The API server did not accept the annotation."""


@dataclass(frozen=True, slots=True)
class WakeReports:
    on_woken: Callable[[str, WakeResult], None]
    """A controller of the service was woken, and this was the result."""
    on_held: Callable[[Mapping[str, int]], None]
    """Current number of held controllers by service."""
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]
    """The API server does not let controllers be read or woken; it does again. Each once."""


@dataclass(frozen=True, slots=True)
class WakeTiming:
    """Intervals and bounds."""

    settle_seconds: float = 1.5
    """After it was woken, a controller has this long to create Pods: a Job begins after one second."""
    pause_seconds_max: float = 15.0
    """A controller that creates nothing although there seems to be room waits twice as long each time, up to this."""
    poll_seconds: float = 1.0
    """Interval between snapshots where the moment of room is unknown: live Pods that end, probes, resets."""
    fallback_seconds: float = 5.0
    """The same where it is known: refunds make room earlier."""
    wakes_per_second: int = 50
    reads_per_second: int = 50
    concurrent_requests_max: int = 8
    """Concurrent requests."""
    held_max: int = 10_000
    """Held controllers that are remembered. Others wait for their own retries."""
