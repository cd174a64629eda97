"""Composition of the overload monitor, as one of the process's observers."""

from webhook.app.telemetry import Telemetry
from webhook.core.overload import OverloadLimits
from webhook.ports import Clock
from webhook.settings import Settings
from webhook.store.overload_monitor import OverloadMonitor


def overload_monitor(settings: Settings, telemetry: Telemetry, clock: Clock) -> OverloadMonitor:
    """Return a monitor that observes all reviews, and reports overloads to the other observers."""
    limits = OverloadLimits(
        round(settings.overload_p99_seconds * 1e9),
        settings.overload_failures,
        round(settings.overload_window_seconds * 1e6),
        settings.overload_minimum,
    )
    monitor = OverloadMonitor(limits, clock, lambda: telemetry.store_trouble, telemetry.observer.overload_changed)
    telemetry.observer.join(monitor)
    telemetry.observer.join(telemetry.metrics.health)
    return monitor
