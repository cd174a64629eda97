"""Keeps admissions from waiting for the store, and the store from missing what was admitted without it."""

from webhook.store.backlog import Cause
from webhook.store.fallback import StoreGuard
from webhook.store.reconciler import GuardReports, Pace

__all__ = ["Cause", "GuardReports", "Pace", "StoreGuard"]
