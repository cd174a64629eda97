"""Availability of the counters: fallback while the shared store is unavailable, and reconciliation afterwards."""

from webhook.fallback.backlog import BookingCause
from webhook.fallback.fallback import StoreFallback
from webhook.fallback.reconciler import FallbackReports, ReconcilerTiming

__all__ = ["BookingCause", "FallbackReports", "ReconcilerTiming", "StoreFallback"]
