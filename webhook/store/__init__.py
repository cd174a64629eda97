"""Availability of the counters: what keeps admission going while the store is away, and settles up afterwards."""

from webhook.store.backlog import BookingCause
from webhook.store.fallback import StoreFallback
from webhook.store.reconciler import FallbackReports, ReconcilerTiming

__all__ = ["BookingCause", "FallbackReports", "ReconcilerTiming", "StoreFallback"]
