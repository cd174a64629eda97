"""Keeps admissions from waiting for the store, and the store from missing what was admitted without it."""

from webhook.store_guard.debts import Cause
from webhook.store_guard.guard import StoreGuard
from webhook.store_guard.settling import GuardReports, Pace

__all__ = ["Cause", "GuardReports", "Pace", "StoreGuard"]
