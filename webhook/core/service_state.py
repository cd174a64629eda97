"""The counters of one service: rings, uid records, breaker record. What each write means stands in `ledger.py`."""

from msgspec import Struct

from webhook.core.breaker_states import Record
from webhook.core.quota import HOUR_US, Cost, CounterPlan, Limit, Use, WindowPlan
from webhook.core.ring import Ring

NO_COST: Cost = {}


class PodRecord(Struct, frozen=True, gc=False):
    """One admitted Pod. `charges` says what went where, so that a refund is exact even under a newer policy."""

    expires_us: int
    high_water: Cost
    scope: str = ""
    charged_at_us: int = 0
    charges: tuple[tuple[int, Cost], ...] = ()
    """Seconds of a window, and the amounts that it was charged."""
    generation: int = 0
    probe: bool = False
    refunded: bool = False


class Judged(Struct, frozen=True, gc=False):
    """One limit as a Pod finds it. `free_at_us` is 0 where it holds what is asked, None where it never can."""

    window: WindowPlan
    limit: Limit
    used: int
    asked: int
    free_at_us: int | None

    def use(self, *, charged: bool = False) -> Use:
        used, free_at_us = (self.used + self.asked, 0) if charged else (self.used, self.free_at_us)
        return Use(self.window.name, self.limit.resource, used, self.limit.hard, self.asked, free_at_us)


class ServiceState:
    """Rings go by scope (a namespace, or "" where the service counts as one) and seconds of the window.

    They outlive the policy that made them, as long as anything in them counts: changed limits find what was used.
    """

    __slots__ = ("_pods", "_rings", "breaker", "last_us")

    def __init__(self, service: str) -> None:
        self.breaker = Record(service)
        self.last_us = 0
        self._rings: dict[tuple[str, int], Ring] = {}
        self._pods: dict[str, PodRecord] = {}

    def now(self, now_us: int) -> int:
        """Return the time to judge by: while a clock is behind, time stands still."""
        return max(now_us, self.last_us)

    def pod(self, uid: str, now_us: int) -> PodRecord | None:
        """Return what is remembered of an admitted Pod. Its stored time decides, not when it is swept away."""
        record = self._pods.get(uid)
        return record if record is not None and record.expires_us > now_us and not record.refunded else None

    def remember(self, uid: str, record: PodRecord) -> None:
        self._pods.pop(uid, None)  # what is written last stands last: sweeping begins in front
        self._pods[uid] = record

    def judge(self, plan: CounterPlan, scope: str, cost: Cost, now_us: int) -> list[Judged]:
        """Hold `cost` against every limit. Who asks nothing of a resource is not refused for it, even if overdrawn."""
        judged = []
        for window in plan.windows:
            ring = self._rings.get((scope, window.seconds))
            used_by_resource = NO_COST if ring is None else ring.used(now_us)
            for limit in window.limits:
                used, asked = used_by_resource.get(limit.counts, 0), cost.get(limit.counts, 0)
                free_at_us: int | None = 0
                if asked and used + asked > limit.hard:
                    free_at_us = None if ring is None else ring.free_at_us(now_us, limit.counts, limit.hard, asked)
                judged.append(Judged(window, limit, used, asked, free_at_us))
        return judged

    def charge(self, plan: CounterPlan, scope: str, cost: Cost, now_us: int) -> tuple[tuple[int, Cost], ...]:
        """Count `cost` in every window that limits any of it; return what went where."""
        charges = []
        for window in plan.windows:
            amounts = {limit.counts: cost[limit.counts] for limit in window.limits if cost.get(limit.counts)}
            if amounts:
                key = (scope, window.seconds)
                ring = self._rings.get(key)
                if ring is None:
                    ring = self._rings[key] = Ring(window.seconds)
                ring.add(now_us, amounts)
                charges.append((window.seconds, amounts))
        return tuple(charges)

    def give_back(self, record: PodRecord, now_us: int) -> bool:
        """Uncount what a Pod was charged, wherever its bucket still lives; True if anywhere."""
        given_back = False
        for seconds, amounts in record.charges:
            ring = self._rings.get((record.scope, seconds))
            if ring is not None and ring.refund(now_us, record.charged_at_us, amounts):
                given_back = True
        return given_back

    def scopes(self, now_us: int) -> set[str]:
        """Return the namespaces in which anything counts."""
        return {scope for (scope, _), ring in self._rings.items() if scope and not ring.idle(now_us)}

    def sweep(self, now_us: int) -> bool:
        """Forget what no longer counts; True where nothing is left and nobody has come for an hour."""
        while self._pods and self._pods[uid := next(iter(self._pods))].expires_us <= now_us:
            del self._pods[uid]
        for key in [key for key, ring in self._rings.items() if ring.idle(now_us)]:
            del self._rings[key]
        return not self._pods and not self._rings and self.last_us + HOUR_US <= now_us
