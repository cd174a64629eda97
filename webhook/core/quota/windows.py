"""Windows of counter plans: their limits, and what of a limit is kept for members of a pool."""

from collections.abc import Mapping

from msgspec import Struct

from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_fields import Window
from webhook.core.quota.amounts import Cost, canonicalize, convert_amount


class Limit(Struct, frozen=True):
    """Limit `hard` of one resource in one window; `resource` is the user's name of it, `counts` the canonical one."""

    resource: str
    counts: str
    hard: int

    @classmethod
    def from_quantity(cls, resource: str, quantity: Quantity) -> "Limit":
        return cls(resource, canonicalize(resource), convert_amount(resource, quantity.value))


class LimitGuarantees(Struct, frozen=True):
    """Guarantees in one limit of a pool, as they are for one member.

    `counter`: the name under which its own use is counted, "" without a guarantee of `hard`. `others`: the counter and
    the guarantee of each other member that has one.
    """

    counter: str
    hard: int
    others: tuple[tuple[str, int], ...]

    def compute_kept(self, used: Mapping[str, int], asked: int) -> int:
        """Return how much of the limit is kept from the member for others: nothing within its own guarantee."""
        if used.get(self.counter, 0) + asked <= self.hard:
            return 0
        return self.compute_kept_for_others(used)

    def compute_kept_for_others(self, used: Mapping[str, int]) -> int:
        """Return what others have left of their guarantees."""
        return sum(max(0, hard - used.get(counter, 0)) for counter, hard in self.others)

    def compute_most(self, hard: int) -> int:
        """Return the most that a single Pod of the member can have of a limit of `hard`."""
        return max(min(self.hard, hard), hard - sum(kept for _, kept in self.others))


class WindowPlan(Struct, frozen=True):
    """One trailing window; a bucket is `seconds` * 15625 microseconds long. Of length 0: limits on live Pods."""

    name: str
    seconds: int
    limits: tuple[Limit, ...]

    @classmethod
    def from_window(cls, window: Window) -> "WindowPlan":
        limits = tuple(Limit.from_quantity(resource, hard) for resource, hard in window.hard.items())
        return cls(window.window.text, window.window.us // 1_000_000, limits)

    @property
    def is_standing(self) -> bool:
        """Whether these are limits on live Pods, which no bucket counts."""
        return self.seconds == 0

    def select_amounts(self, cost: Cost) -> Cost:
        """Return the limited part of a cost, which is what counts."""
        return {limit.counts: cost[limit.counts] for limit in self.limits if cost.get(limit.counts)}

    def find_guarantees(self, limit: Limit) -> LimitGuarantees | None:  # noqa: ARG002  a window with guarantees reads it
        """Return the guarantees in one of its limits."""
        return None
