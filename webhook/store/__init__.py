"""Availability of the counters: fallback while the shared store is unavailable, and reconciliation afterwards."""

from webhook.store.backlog import BookingCause
from webhook.store.fallback import StoreFallback
from webhook.store.reconciler import FallbackReports, ReconcilerTiming

__all__ = ["BookingCause", "FallbackReports", "ReconcilerTiming", "StoreFallback"]
