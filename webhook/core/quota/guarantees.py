"""Guarantees in a pool: the part of each of its limits that is kept for a service. Why so: docs/design/guarantees.md.

Of each limit a member may use its own guarantee, and of the rest what the guarantees of the others leave. The use of a
member with a guarantee is counted beside the pool's, in the same buckets, under a name of its own; so is that of its
live Pods.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from webhook.core.policy.model import Service
from webhook.core.policy_fields import Guaranteed, Window
from webhook.core.quota.amounts import Cost, canonicalize, convert_amount
from webhook.core.quota.windows import Limit, LimitGuarantees, WindowPlan

_GuaranteesByLimit = Mapping[tuple[int, str], tuple[tuple[str, int], ...]]
"""By the seconds of a window and its resource: each service with a guarantee, and the amount. 0: of live Pods."""


def build_counter_name(resource: str, service: str) -> str:
    """Return the name under which the pool's windows count what one service uses; no resource has a space in it."""
    return f"{resource} {service}"


class PoolGuarantees(Struct, frozen=True):
    """The guarantees of all members of a pool."""

    by_limit: _GuaranteesByLimit = {}

    def bind(self, window: WindowPlan, service: str) -> WindowPlan:
        """Return a window of the pool as a member is judged by it; the window itself without guarantees."""
        found = tuple(self._find(window.seconds, limit, service) for limit in window.limits)
        if not any(found):
            return window
        return GuaranteedWindow(window.name, window.seconds, window.limits, found)

    def _find(self, seconds: int, limit: Limit, service: str) -> LimitGuarantees | None:
        listed = self.by_limit.get((seconds, limit.counts))
        if listed is None:
            return None
        own = dict(listed).get(service, 0)
        others = tuple((build_counter_name(limit.counts, name), hard) for name, hard in listed if name != service)
        return LimitGuarantees(build_counter_name(limit.counts, service) if own else "", own, others)


class GuaranteedWindow(WindowPlan, frozen=True):
    """A window of a pool with guarantees, as one member is judged by it; one entry for each of its limits."""

    guarantees: tuple[LimitGuarantees | None, ...] = ()

    def select_amounts(self, cost: Cost) -> Cost:
        """Return the limited part of a cost, and again under the names of the member's own counters."""
        amounts = dict(WindowPlan.select_amounts(self, cost))
        own = {
            found.counter: amounts[limit.counts]
            for limit, found in zip(self.limits, self.guarantees, strict=True)
            if found is not None and found.counter and limit.counts in amounts
        }
        return amounts | own

    def find_guarantees(self, limit: Limit) -> LimitGuarantees | None:
        return self.guarantees[self.limits.index(limit)]


def group_guarantees(services: Iterable[Service]) -> dict[str, PoolGuarantees]:
    """Return the guarantees by pool, whatever the modes of the services are."""
    found: dict[str, dict[tuple[int, str], list[tuple[str, int]]]] = {}
    for service in services:
        if service.pool is not None and service.guaranteed is not None:
            limits = found.setdefault(service.pool, {})
            for key, amount in _list_amounts(service.guaranteed):
                limits.setdefault(key, []).append((service.name, amount))
    return {
        pool: PoolGuarantees({key: tuple(listed) for key, listed in limits.items()}) for pool, limits in found.items()
    }


def _list_amounts(guaranteed: Guaranteed) -> Iterable[tuple[tuple[int, str], int]]:
    """Yield each guaranteed amount, by seconds and canonical resource; of live Pods by 0 seconds."""
    yield from list_guaranteed_amounts(guaranteed.windows)
    if guaranteed.standing is not None:
        for resource, quantity in guaranteed.standing.hard.items():
            yield (0, canonicalize(resource)), convert_amount(resource, quantity.value)


def list_guaranteed_amounts(windows: Iterable[Window]) -> Iterable[tuple[tuple[int, str], int]]:
    """Yield each guaranteed amount, by seconds and canonical resource."""
    for window in windows:
        for resource, quantity in window.hard.items():
            yield (window.window.us // 1_000_000, canonicalize(resource)), convert_amount(resource, quantity.value)
