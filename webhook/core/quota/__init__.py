"""Quota of a service: counter plans, requests to a store, and its receipts. The `ledger` package counts."""

from webhook.core.quota.amounts import HOUR_US, LARGEST_EXACT, Cost, amount, canonical, is_cpu
from webhook.core.quota.plans import (
    STANDING,
    Account,
    Accounts,
    CounterPlan,
    Holder,
    Limit,
    PoolPlan,
    QueuePlan,
    StandingPlan,
    WindowPlan,
)
from webhook.core.quota.receipts import DeniedBy, Receipt, ServiceSnapshot, Use, all_free_at_us
from webhook.core.quota.requests import Acquire, Booking
from webhook.core.quota.sightings import Seen, Sighting, UnseenPod

__all__ = [
    "HOUR_US",
    "LARGEST_EXACT",
    "STANDING",
    "Account",
    "Accounts",
    "Acquire",
    "Booking",
    "Cost",
    "CounterPlan",
    "DeniedBy",
    "Holder",
    "Limit",
    "PoolPlan",
    "QueuePlan",
    "Receipt",
    "Seen",
    "ServiceSnapshot",
    "Sighting",
    "StandingPlan",
    "UnseenPod",
    "Use",
    "WindowPlan",
    "all_free_at_us",
    "amount",
    "canonical",
    "is_cpu",
]
