"""Free capacity: what each limit has left for Pods, and when a full one has more."""

from webhook.core.breaker import State
from webhook.core.compiled_policy import CompiledService
from webhook.core.controller.demand import Demand, LimitKey, make_breaker_key, make_limit_key
from webhook.core.quota import Holder, ServiceSnapshot, Use

_NO_LIMIT = 2**62

NEVER_US = 2**62
"""In place of a moment: the Pod is larger than a whole limit."""


class FreeCapacity:
    """Computed from snapshots of services, and reduced by each selected controller. Unknown limits are unlimited."""

    def __init__(self) -> None:
        self._left: dict[LimitKey, int] = {}
        self._whole: dict[LimitKey, int] = {}
        self._free_at_us: dict[LimitKey, int] = {}

    def add(self, part: CompiledService, snapshot: ServiceSnapshot, ahead_us: int = 0) -> None:
        """Add the limits of a service, and those of its pool. `ahead_us`: how far the caller's clock is ahead."""
        for scope, uses in snapshot.uses.items():
            for use in uses:
                if not use.counts_live_pods or snapshot.is_standing_known:
                    self._add_limit(make_limit_key(part.plan, use.of, scope, use.window, use.resource), use, ahead_us)
        for use in snapshot.pool:
            if not use.counts_live_pods or snapshot.is_pool_standing_known:
                self._add_limit(make_limit_key(part.plan, use.of, "", use.window, use.resource), use, ahead_us)
        self._add_breaker(part, snapshot, ahead_us)

    def count_fitting_pods(self, demand: Demand) -> int:
        """Return how many Pods fit."""
        fits = (max(0, self._left.get(key, _NO_LIMIT)) // amount for key, amount in demand.amounts.items())
        return min(fits, default=_NO_LIMIT)

    def take(self, demand: Demand, pods: int) -> None:
        """Reserve what some Pods take, even if it is not free."""
        for key, amount in demand.amounts.items():
            if key in self._left:
                self._left[key] -= amount * pods

    def reserve_pool(self, demand: Demand) -> None:
        """Reserve one Pod that only its pool denies: what the pool frees is for this Pod before lower classes."""
        lacking = self._list_lacking(demand)
        if all(key[0] == Holder.POOL and demand.amounts[key] <= self._whole[key] for key in lacking):
            for key in lacking:
                self._left[key] -= demand.amounts[key]

    def find_free_at_us(self, demand: Demand) -> int:
        """Return the earliest moment at which a Pod that does not fit may fit; 0 if it is unknown, or `NEVER_US`."""
        lacking = self._list_lacking(demand)
        if any(demand.amounts[key] > self._whole[key] for key in lacking):
            return NEVER_US
        moments = [self._free_at_us.get(key, 0) for key in lacking]
        return max(moments, default=0) if all(moments) else 0

    def _list_lacking(self, demand: Demand) -> list[LimitKey]:
        return [key for key, amount in demand.amounts.items() if self._left.get(key, amount) < amount]

    def _add_limit(self, key: LimitKey, use: Use, ahead_us: int) -> None:
        left = use.left
        self._left[key] = min(left, self._left.get(key, left))
        self._whole[key] = use.hard + use.surge
        self._free_at_us[key] = max(_translate(use.free_at_us, ahead_us), self._free_at_us.get(key, 0))

    def _add_breaker(self, part: CompiledService, snapshot: ServiceSnapshot, ahead_us: int) -> None:
        view, plan = snapshot.breaker, part.plan.breaker
        if view is None or plan is None:
            return
        key = make_breaker_key(part.plan)
        self._whole[key] = plan.probes
        if view.state.is_open:
            self._left[key], self._free_at_us[key] = 0, _translate(view.open_until_us, ahead_us)
        elif view.state is State.HALF_OPEN:
            # The breaker admits one more Pod if `probes` was lowered to the number that has succeeded.
            wanted = max(1, plan.probes - view.probes_succeeded)
            self._left[key] = max(0, wanted - view.probes_leased)


def _translate(at_us: int | None, ahead_us: int) -> int:
    """Return a moment of the store by the caller's clock; 0 if it is unknown."""
    return at_us + ahead_us if at_us else 0
