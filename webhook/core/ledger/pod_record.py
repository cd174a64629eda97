"""Uid record of one admitted Pod, with parts that similar Pods share."""

from collections.abc import Hashable
from typing import NamedTuple

from msgspec import Struct

from webhook.core.ledger.live_pods import LiveSetKey, build_live_set_key
from webhook.core.lru_cache import LruCache
from webhook.core.quota import Account, Acquire, Booking, Cost, CounterPlan, Sighting

Charge = tuple[Account, int, Cost]
"""An account, the seconds of its window, and the amounts charged to it."""

_SiblingKey = tuple[int, str, str, int]
_SHARED_MAX = 64
"""Number of controllers whose Pods share parts of their records."""


class PodRecord(Struct, frozen=True, gc=False):
    """Uid record of one admitted Pod. `charges` makes a refund exact, even under a newer policy."""

    service: str
    expires_us: int
    high_water: Cost
    charged_at_us: int = 0
    charges: tuple[Charge, ...] = ()
    generation: int = 0
    probe: bool = False
    refunded: bool = False
    live_set_key: LiveSetKey = ("", False, "")
    namespace: str = ""
    name: str = ""
    source: str = ""
    """Its creator, as in quota events; only if its breaker counts outcomes."""
    settled: bool = False
    """Whether its outcome was recorded."""


class SharedParts(NamedTuple):
    """Fields of uid records that are alike for most Pods of one service."""

    namespace: str
    high_water: Cost
    charges: tuple[Charge, ...]
    live_set_key: LiveSetKey


def charges_of(plan: CounterPlan, scope: str, cost: Cost) -> tuple[Charge, ...]:
    """Return what a Pod is charged: its amounts in every window that limits any of them."""
    return tuple(
        (account, window.seconds, amounts)
        for account, windows in plan.accounts_of(scope)
        for window in windows
        if (amounts := window.select_amounts(cost))
    )


class PartsCache:
    """Parts of the newest records."""

    def __init__(self) -> None:
        self._known: LruCache[Hashable, SharedParts] = LruCache(_SHARED_MAX)
        self._of_siblings: LruCache[_SiblingKey, tuple[CounterPlan, Cost, SharedParts]] = LruCache(_SHARED_MAX)

    def get_parts(self, plan: CounterPlan, pod: Acquire | Booking | Sighting) -> SharedParts:
        """Return the parts of a record.

        Look them up by identity first: Pods of one controller have the same cost object, and comparing costs takes
        longer. An entry keeps plan and cost, so that no other object can have their identities.
        """
        key = id(plan), pod.namespace, pod.team, id(pod.cost)
        known = self._of_siblings.peek(key)
        if known is not None:
            return known[2]
        scope, cost = plan.scope_of(pod), pod.cost
        parts = SharedParts(pod.namespace, cost, charges_of(plan, scope, cost), build_live_set_key(plan, scope))
        parts = self._intern(parts)
        self._of_siblings.keep(key, (plan, cost, parts))
        return parts

    def _intern(self, parts: SharedParts) -> SharedParts:
        """Return the equal parts of an earlier record, if there are any.

        They save memory, and leave a collection of garbage nothing to scan: docs/design/start-and-memory.md.
        """
        key = parts.live_set_key, parts.namespace, *parts.high_water.items()
        known = self._known.get(key)
        if known == parts:
            return known
        self._known.keep(key, parts)
        return parts
