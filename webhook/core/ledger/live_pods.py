"""Live and not-yet-seen Pods of a tag, confirmed and corrected by a watch."""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

from webhook.core.ledger.live_set import IDLE_US, KNOWN_US, LiveSet, take_larger
from webhook.core.ledger.pool_live_set import PoolLiveSet
from webhook.core.quota import HOUR_US, Cost, CounterPlan, PoolPod, Use

WAITED_US = HOUR_US
"""Maximum wait for a sighting of a Pod. Its uid record lasts at least as long."""

LiveSetKey = tuple[str, bool, str]
"""Key of a set of live Pods: the service, whether fleet-wide, and the namespace ("" where it counts as one)."""


_PoolKey = tuple[str, bool]
"""Key of the live Pods of a pool: its name, and whether fleet-wide."""


class LiveAmounts(NamedTuple):
    """Amounts for the live Pods of a service, and for those of its pool."""

    own: Cost
    pooled: Cost


class LivePods:
    """Live Pods by service and namespace, and by pool, and Pods not seen yet by uid. Time is the tag's."""

    __slots__ = ("_known_us", "_live", "_pooled", "_pools_known_us", "_waiting")

    def __init__(self) -> None:
        self._live: dict[LiveSetKey, LiveSet] = {}
        self._pooled: dict[_PoolKey, PoolLiveSet] = {}
        self._known_us: dict[tuple[str, bool, str], int] = {}
        """By service, whether fleet-wide, and what counts apart."""
        self._pools_known_us: dict[_PoolKey, int] = {}
        self._waiting: dict[str, int] = {}

    def is_known(self, plan: CounterPlan, now_us: int) -> bool:
        """Whether limits on live Pods are enforced: all Pods have been listed, and the watch was confirmed recently."""
        at_us = self._known_us.get((plan.service, plan.fleet, plan.counts_apart))
        return at_us is not None and now_us - at_us < KNOWN_US

    def set_known(self, plan: CounterPlan, scopes: Iterable[str], now_us: int) -> None:
        """Mark the live Pods as complete. Those of `scopes` are kept, even if nothing has changed for long.

        Pods of a time when the service counted as one, or otherwise, are forgotten, or not known to be complete.
        """
        others = [key for key in self._known_us if key[:2] == (plan.service, plan.fleet)]
        for key in others:
            del self._known_us[key]
        self._known_us[plan.service, plan.fleet, plan.counts_apart] = now_us
        if plan.per_namespace:
            self._live.pop((plan.service, plan.fleet, ""), None)
        for scope in scopes:
            self._find_set(plan, scope).touched_us = now_us

    def is_pool_known(self, plan: CounterPlan, now_us: int) -> bool:
        """Whether limits on the live Pods of the plan's pool are enforced: those of all its members are known."""
        at_us = self._pools_known_us.get(_build_pool_key(plan))
        return at_us is not None and now_us - at_us < KNOWN_US

    def set_pool_known(self, plan: CounterPlan, now_us: int) -> None:
        """Mark the live Pods of the plan's pool as complete, and keep them."""
        if plan.pool_standing is not None:
            key = _build_pool_key(plan)
            self._pools_known_us[key] = now_us
            self._pooled.setdefault(key, PoolLiveSet()).touched_us = now_us

    def judge(self, plan: CounterPlan, scope: str, asked: LiveAmounts, now_us: int) -> tuple[list[int], list[Use]]:
        """Return what each limit on live Pods holds, and the limits that `asked` would exceed."""
        used: list[int] = []
        over: list[Use] = []
        if plan.standing is not None:
            used, exceeded = self._find_set(plan, scope).judge(plan.standing, asked.own, now_us)
            over = exceeded if self.is_known(plan, now_us) else []
        if plan.limited_pool is not None:
            used_of_pool, exceeded = self._find_pool_set(plan).judge_pool(plan.limited_pool, asked.pooled)
            used, over = [*used, *used_of_pool], [*over, *(exceeded if self.is_pool_known(plan, now_us) else ())]
        return used, over

    def list_uses(self, plan: CounterPlan, scope: str, now_us: int) -> tuple[Use, ...]:
        return self._find_set(plan, scope).list_uses(plan.standing, now_us) if plan.standing else ()

    def list_uses_of_pool(self, plan: CounterPlan) -> tuple[Use, ...]:
        """Return the current use of every limit on the live Pods of the plan's pool."""
        return self._find_pool_set(plan).list_uses_of_pool(plan.pool) if plan.pool is not None else ()

    def find_held(self, plan: CounterPlan, scope: str, uid: str) -> Cost | None:
        """Return the amounts of a live Pod of the service, None for any other, or without limits of its own."""
        return self._find_set(plan, scope).find_held(uid) if plan.standing is not None else None

    def find_held_of_pool(self, plan: CounterPlan, uid: str) -> Cost | None:
        """Return the amounts of a live Pod of the pool, whichever service it counts for."""
        return self._find_pool_set(plan).find_held(uid) if plan.pool_standing is not None else None

    def find_all_held(self, plan: CounterPlan, scope: str, uid: str) -> tuple[Cost | None, Cost | None]:
        """Return the amounts of a live Pod of the service, in its own limits and in those of its pool."""
        pooled = self._find_pool_set(plan).find_held_by(plan.service, uid) if plan.pool_standing is not None else None
        return self.find_held(plan, scope, uid), pooled

    def put(self, plan: CounterPlan, scope: str, uid: str, cost: Cost, now_us: int) -> None:
        """Add or update a live Pod."""
        if plan.standing is not None:
            self._live.setdefault(build_live_set_key(plan, scope), LiveSet()).put(plan.standing, uid, cost, now_us)
        if plan.limited_pool is not None:
            pooled = self._pooled.setdefault(_build_pool_key(plan), PoolLiveSet())
            pooled.put_for(plan.service, plan.limited_pool, uid, cost, now_us)

    def raise_to(self, plan: CounterPlan, scope: str, uid: str, cost: Cost, unless_held: Cost, now_us: int) -> None:
        """Add or update a live Pod that keeps what it holds; `unless_held` if it is not live."""
        if plan.standing is not None:
            own = self._live.setdefault(build_live_set_key(plan, scope), LiveSet())
            own.put(plan.standing, uid, take_larger(cost, own.find_held(uid), unless_held), now_us)
        if plan.limited_pool is not None:
            pooled = self._pooled.setdefault(_build_pool_key(plan), PoolLiveSet())
            larger = take_larger(cost, pooled.find_held(uid), unless_held)
            pooled.put_for(plan.service, plan.limited_pool, uid, larger, now_us)

    def remove(self, where: LiveSetKey, uid: str, now_us: int) -> bool:
        """Remove a live Pod; return whether it was there."""
        live = self._live.get(where)
        return live is not None and live.remove(uid, now_us)

    def remove_from_pool(self, plan: CounterPlan, where: LiveSetKey, uid: str, now_us: int) -> None:
        """Remove a live Pod of a service from those of the plan's pool."""
        service, fleet, _ = where
        if plan.limited_pool is not None:
            pooled = self._pooled.get((plan.limited_pool.name, fleet))
            if pooled is not None:
                pooled.remove_for(service, uid, now_us)

    def list_of_pool(self, plan: CounterPlan, now_us: int) -> list[PoolPod]:
        """Return the live Pods of the plan's pool that have been seen, or are no longer waited for."""
        return [pod for pod in self._find_pool_set(plan).list_pods() if self._is_settled(pod.uid, now_us)]

    def list_live(self, plan: CounterPlan, scope: str, now_us: int) -> dict[str, Cost]:
        """Return the amounts of the live Pods that have been seen, or are no longer waited for."""
        return {uid: held for uid, held in self._find_set(plan, scope).items() if self._is_settled(uid, now_us)}

    def _is_settled(self, uid: str, now_us: int) -> bool:
        return self._waiting.get(uid, -WAITED_US) <= now_us - WAITED_US

    def list_scopes(self, plan: CounterPlan) -> Iterator[str]:
        for (service, fleet, scope), live in self._live.items():
            if live and (service, fleet, bool(scope)) == (plan.service, plan.fleet, plan.per_namespace):
                yield scope

    def wait_for(self, uid: str, at_us: int) -> None:
        self._waiting.pop(uid, None)  # in order of writing: the sweep starts at the front
        self._waiting[uid] = at_us

    def find_wait_start(self, uid: str) -> int | None:
        return self._waiting.get(uid)

    def stop_waiting(self, uid: str) -> None:
        """Stop waiting for a Pod."""
        self._waiting.pop(uid, None)

    def list_waiting(self, age_us: int, now_us: int, most: int) -> list[tuple[int, str]]:
        """Return (charge time, uid), oldest first, of the Pods not seen for at least `age_us`."""
        found = [(at_us, uid) for uid, at_us in self._waiting.items() if now_us - WAITED_US < at_us <= now_us - age_us]
        return sorted(found)[:most]

    def sweep(self, now_us: int) -> bool:
        """Drop expired waits and idle sets; return whether nothing is left."""
        for uid in self._list_waited(now_us - WAITED_US):
            del self._waiting[uid]
        for where in [where for where, live in self._live.items() if live.touched_us <= now_us - IDLE_US]:
            del self._live[where]
        for pool in [pool for pool, live in self._pooled.items() if live.touched_us <= now_us - IDLE_US]:
            del self._pooled[pool]
        return not self._live and not self._pooled and not self._waiting

    def _list_waited(self, until_us: int) -> list[str]:
        """Return the Pods that waited before the first one that has not waited for so long.

        Waits are written in the order of time. One that is written late is found late, but no sweep reads all of them.
        """
        return [uid for uid, _ in takewhile(lambda wait: wait[1] <= until_us, self._waiting.items())]

    def _find_set(self, plan: CounterPlan, scope: str) -> LiveSet:
        live = self._live.get(build_live_set_key(plan, scope))
        return LiveSet() if live is None else live

    def _find_pool_set(self, plan: CounterPlan) -> PoolLiveSet:
        pooled = self._pooled.get(_build_pool_key(plan))
        return PoolLiveSet() if pooled is None else pooled


def _build_pool_key(plan: CounterPlan) -> _PoolKey:
    return plan.pool.name if plan.pool is not None else "", plan.fleet


def build_live_set_key(plan: CounterPlan, scope: str) -> LiveSetKey:
    return plan.service, plan.fleet, scope
