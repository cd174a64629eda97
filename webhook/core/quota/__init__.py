"""Quota of a service: counter plans, requests to a store, and its receipts. The `ledger` package counts."""

from webhook.core.quota.amounts import EXACT_AMOUNT_MAX, HOUR_US, Cost, canonicalize, convert_amount, is_cpu, sum_costs
from webhook.core.quota.guarantees import PoolGuarantees, group_guarantees, list_guaranteed_amounts
from webhook.core.quota.plans import (
    STANDING,
    Account,
    Accounts,
    CounterPlan,
    Holder,
    PoolPlan,
    StandingPlan,
)
from webhook.core.quota.queue_plan import GroupPlan, QueuePlan
from webhook.core.quota.receipts import (
    Acquire,
    AcquireGroup,
    Booking,
    DeniedBy,
    GroupMember,
    GuaranteeUse,
    Receipt,
    Seen,
    ServiceSnapshot,
    Sighting,
    UnseenPod,
    Use,
    find_free_at_us,
)
from webhook.core.quota.windows import Limit, LimitGuarantees, WindowPlan

__all__ = [
    "EXACT_AMOUNT_MAX",
    "HOUR_US",
    "STANDING",
    "Account",
    "Accounts",
    "Acquire",
    "AcquireGroup",
    "Booking",
    "Cost",
    "CounterPlan",
    "DeniedBy",
    "GroupMember",
    "GroupPlan",
    "GuaranteeUse",
    "Holder",
    "Limit",
    "LimitGuarantees",
    "PoolGuarantees",
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
    "canonicalize",
    "convert_amount",
    "find_free_at_us",
    "group_guarantees",
    "is_cpu",
    "list_guaranteed_amounts",
    "sum_costs",
]
