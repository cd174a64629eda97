"""Requests to a store: to check and charge a Pod, or to record one that exists already."""

from msgspec import Struct

from webhook.core.quota.amounts import Cost
from webhook.core.quota.plans import CounterPlan


class Acquire(Struct, frozen=True, gc=False):
    """Request to charge one Pod. `peek` (dryRun) only reads; `resize_from` is the old cost of a Pod that is resized."""

    plan: CounterPlan
    namespace: str
    uid: str
    cost: Cost
    event_source: str
    peek: bool = False
    resize_from: Cost | None = None
    name: str = ""
    """Name of the Pod, to check later whether it was created."""
    counts_as_event: bool = True
    """Whether a denial by quota is an event for the breaker; of a waiting Pod it is not: nobody has asked."""


class Booking(Struct, frozen=True, gc=False):
    """A Pod admitted without the store, or whose record may be lost; it is charged at its own time."""

    namespace: str
    uid: str
    cost: Cost
    at_us: int
    name: str = ""
