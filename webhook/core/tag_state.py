"""The counters that share a tag: rings, uid records, breakers, one clock. What a write means stands in `ledger.py`."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from webhook.core.breaker_states import Record
from webhook.core.quota import HOUR_US, Cost, CounterPlan, Holder, Limit, Use, WindowPlan
from webhook.core.ring import Ring
from webhook.core.tag_clock import TagClock

NO_COST: Cost = {}

LONG_US = 600_000_000
"""A clock that steps back finds what it should."""

Account = tuple[Holder, str, bool, str]
"""Whose rings: the holder and its name, whether the whole fleet's, and the namespace ("" where it counts as one)."""

Charge = tuple[Account, int, Cost]
"""An account, the seconds of its window, and the amounts that it was charged."""


class PodRecord(Struct, frozen=True, gc=False):
    """One admitted Pod. `charges` says what went where, so that a refund is exact even under a newer policy."""

    service: str
    expires_us: int
    high_water: Cost
    charged_at_us: int = 0
    charges: tuple[Charge, ...] = ()
    generation: int = 0
    probe: bool = False
    refunded: bool = False


class TagState:
    """Rings go by account and seconds of the window.

    They outlive the policy that made them, as long as anything in them counts: changed limits find what was used.
    """

    __slots__ = ("_breakers", "_clocks", "_pods", "_rings", "_seen_us")

    def __init__(self) -> None:
        self._clocks = {fleet: TagClock() for fleet in (False, True)}
        self._breakers: dict[str, Record] = {}
        self._rings: dict[Account, dict[int, Ring]] = {}
        self._pods: dict[str, PodRecord] = {}
        self._seen_us = 0

    def clock(self, plan: CounterPlan) -> TagClock:
        """Return the time of the rings that the plan counts in: a cluster's own, or the fleet's."""
        return self._clocks[plan.fleet]

    def breaker(self, service: str) -> Record:
        return self._breakers.get(service) or Record(service)

    def set_breaker(self, record: Record) -> None:
        self._breakers[record.service] = record

    def pod(self, uid: str, now_us: int) -> PodRecord | None:
        """Return what is remembered of an admitted Pod. Its stored time decides, not when it is swept away."""
        record = self._pods.get(uid)
        return record if record is not None and record.expires_us > now_us and not record.refunded else None

    def was_refunded(self, uid: str, now_us: int) -> bool:
        record = self._pods.get(uid)
        return record is not None and record.expires_us > now_us and record.refunded

    def remember(self, uid: str, record: PodRecord) -> None:
        self._pods.pop(uid, None)  # what is written last stands last: sweeping begins in front
        self._pods[uid] = record

    def judge(self, plan: CounterPlan, scope: str, cost: Cost, now_us: int) -> tuple[list[int], list[Use]]:
        """Return what each limit holds, and those that do not hold `cost` beside it.

        Who asks nothing of a resource is not refused for it, even if it is overdrawn.
        """
        used: list[int] = []
        over: list[Use] = []
        for account, windows in _accounts(plan, scope):
            rings = self._rings.get(account)
            for window in windows:
                ring = rings.get(window.seconds) if rings else None
                by_resource = NO_COST if ring is None else ring.used(now_us)
                for limit in window.limits:
                    has, asked = by_resource.get(limit.counts, 0), cost.get(limit.counts, 0)
                    used.append(has)
                    if asked and has + asked > limit.hard:
                        over.append(_over(account, window, limit, ring, (has, asked, now_us)))
        return used, over

    def stand(self, plan: CounterPlan, scope: str, now_us: int, holder: Holder) -> tuple[Use, ...]:
        """Return every limit of a holder, each asked for one unit, to say from when any is free."""
        found = []
        for account, windows in _accounts(plan, scope):
            rings = self._rings.get(account, {})
            for window in windows if account[0] is holder else ():
                ring = rings.get(window.seconds)
                has = NO_COST if ring is None else ring.used(now_us)
                for limit in window.limits:
                    used = has.get(limit.counts, 0)
                    is_full = used + 1 > limit.hard
                    one = _over(account, window, limit, ring, (used, 1, now_us)) if is_full else None
                    found.append(one or _use(account, window, limit, used))
        return tuple(found)

    def charge(self, plan: CounterPlan, scope: str, cost: Cost, at_us: int, now_us: int) -> tuple[Charge, ...]:
        """Count `cost` as of a moment, now or before, in every window that limits any of it; what went where.

        What has left its window by now is not counted. The clock stands no earlier afterwards.
        """
        charges = []
        for account, windows in _accounts(plan, scope):
            for window in windows:
                amounts = window.amounts(cost)
                if amounts and self._ring(account, window.seconds).add(now_us, amounts, at_us):
                    charges.append((account, window.seconds, amounts))
        if charges:
            self.clock(plan).last_us = now_us
        return tuple(charges)

    def _ring(self, account: Account, seconds: int) -> Ring:
        rings = self._rings.get(account)
        if rings is None:
            rings = self._rings[account] = {}
        ring = rings.get(seconds)
        if ring is None:
            ring = rings[seconds] = Ring(seconds)
        return ring

    def give_back(self, record: PodRecord, reading_us: int) -> bool:
        """Uncount what a Pod was charged, wherever its bucket still lives; True if anywhere."""
        given_back = False
        for account, seconds, amounts in record.charges:
            clock, ring = self._clocks[account[2]], self._rings.get(account, {}).get(seconds)
            now_us = clock.now(reading_us)
            if ring is not None and ring.refund(now_us, record.charged_at_us, amounts):
                clock.last_us, given_back = now_us, True
        return given_back

    def scopes(self, plan: CounterPlan, now_us: int) -> set[str]:
        """Return the namespaces in which anything of the service counts."""
        return {
            scope
            for (holder, name, fleet, scope), rings in self._rings.items()
            if scope and (holder, name, fleet) == (Holder.SERVICE, plan.service, plan.fleet)
            if any(not ring.idle(now_us) for ring in rings.values())
        }

    def seen(self, reading_us: int) -> None:
        """Note that somebody came."""
        self._seen_us = reading_us

    def sweep(self, reading_us: int) -> bool:
        """Forget what has long ceased to count; True where nothing is left and nobody has come for an hour."""
        times_us = {fleet: clock.now(reading_us) - LONG_US for fleet, clock in self._clocks.items()}
        earliest_us = min(times_us.values())  # a rebased clock is far from the other one, and a Pod is found by either
        while self._pods and self._pods[uid := next(iter(self._pods))].expires_us <= earliest_us:
            del self._pods[uid]
        for account, rings in list(self._rings.items()):
            for seconds in [seconds for seconds, ring in rings.items() if ring.idle(times_us[account[2]])]:
                del rings[seconds]
            if not rings:
                del self._rings[account]
        return not self._pods and not self._rings and self._seen_us + HOUR_US <= reading_us


def _accounts(plan: CounterPlan, scope: str) -> Iterator[tuple[Account, Iterable[WindowPlan]]]:
    """Yield the service's own account, and its pool's: the order of `CounterPlan.limits`."""
    if plan.windows:
        yield (Holder.SERVICE, plan.service, plan.fleet, scope), plan.windows
    if plan.pool is not None:
        yield (Holder.POOL, plan.pool.name, plan.fleet, ""), plan.pool.windows


def _use(account: Account, window: WindowPlan, limit: Limit, used: int) -> Use:
    holder, name, _, _ = account
    return Use(window.name, limit.resource, used, limit.hard, 1, 0, holder, name if holder is Holder.POOL else "")


def _over(account: Account, window: WindowPlan, limit: Limit, ring: Ring | None, asking: tuple[int, int, int]) -> Use:
    """Return a limit that does not hold what is asked: (used, asked, now)."""
    holder, name, _, _ = account
    used, asked, now_us = asking
    free_at_us = None if ring is None else ring.free_at_us(now_us, limit.counts, limit.hard, asked)
    label = name if holder is Holder.POOL else ""
    return Use(window.name, limit.resource, used, limit.hard, asked, free_at_us, holder, label)
