"""Waiting Pods, and the services to which they belong, as the release queue needs them."""

from math import ceil, inf

from msgspec import Struct

from webhook.core.quota import Cost


class Member(Struct, frozen=True):
    """A service of the queue. Services of one pool share a queue; every other service has its own.

    `rank` is the position of its SLA class, 0 for the highest.
    """

    service: str
    rank: int
    ageing_us: int
    lifted_percent: int = 10
    """Share of a higher class's releases that this service's Pods may take after ageing has lifted them."""
    is_paused: bool = False
    """None of its Pods is released."""

    @property
    def natives_per_lifted(self) -> float:
        """Return how many of its own Pods a higher class releases before it releases a lifted one."""
        return ceil((100 - self.lifted_percent) / self.lifted_percent) if self.lifted_percent else inf


class WaitingPod(Struct, frozen=True, gc=False):
    """A gated Pod. `since_us` is the store's time of its registration; `scope` is as in `CounterPlan.scope_of`."""

    uid: str
    service: str
    since_us: int
    cost: Cost
    scope: str = ""
    priority: int = 0
    """Value of its annotation `podgate.io/priority`: orders the Pods of one service."""

    @property
    def order_key(self) -> tuple[int, int, str]:
        """Key of the order within its service: priority, then age."""
        return -self.priority, self.since_us, self.uid
