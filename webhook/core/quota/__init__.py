"""What a store is asked and what it answers: plans, acquires, receipts. The counting itself stands in `ring.py`."""

from webhook.core.quota.amounts import HOUR_US, LARGEST_EXACT, Cost, amount, canonical, is_cpu
from webhook.core.quota.answering import Look, Receipt, Refusal, Use, all_free_at_us
from webhook.core.quota.asking import Acquire, Booking
from webhook.core.quota.plans import STANDING, CounterPlan, Holder, Limit, PoolPlan, StandingPlan, WindowPlan
from webhook.core.quota.sightings import Seen, Sighting, Waiting

__all__ = [
    "HOUR_US",
    "LARGEST_EXACT",
    "STANDING",
    "Acquire",
    "Booking",
    "Cost",
    "CounterPlan",
    "Holder",
    "Limit",
    "Look",
    "PoolPlan",
    "Receipt",
    "Refusal",
    "Seen",
    "Sighting",
    "StandingPlan",
    "Use",
    "Waiting",
    "WindowPlan",
    "all_free_at_us",
    "amount",
    "canonical",
    "is_cpu",
]
