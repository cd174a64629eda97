"""What a store is asked: to judge a Pod, or to take note of one that is there already."""

from msgspec import Struct

from webhook.core.quota.amounts import Cost
from webhook.core.quota.plans import CounterPlan


class Acquire(Struct, frozen=True):
    """One Pod asks. `peek` (dryRun) reads only; `resize_from` is the old cost where a running Pod is resized."""

    plan: CounterPlan
    namespace: str
    uid: str
    cost: Cost
    event_source: str
    peek: bool = False
    resize_from: Cost | None = None
    name: str = ""
    """The Pod's: by it one looks whether it came to be."""


class Booking(Struct, frozen=True):
    """A Pod that was admitted without the store, or whose record may be lost: to be charged at its own time."""

    namespace: str
    uid: str
    cost: Cost
    at_us: int
    name: str = ""
