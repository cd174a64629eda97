"""State of one tag: window rings, live Pods, uid records, breakers, one clock. `operations.py` defines the writes."""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.breaker import (
    ALONE,
    BreakerEnvironment,
    BreakerPlan,
    BreakerView,
    Record,
    build_view,
    find_rest_end_us,
    has_moved,
)
from webhook.core.ledger.guaranteed_windows import list_pool_uses
from webhook.core.ledger.live_pods import LiveAmounts, LivePods
from webhook.core.ledger.pod_record import Charge, PartsCache, PodRecord
from webhook.core.ledger.store_time import TagClock
from webhook.core.ledger.window_ring import Ring
from webhook.core.quota import HOUR_US, Account, Cost, CounterPlan, Holder, Limit, Use, WindowPlan

NO_COST: Cost = {}

LONG_US = 600_000_000
"""Retention beyond expiry, in case the store's clock steps back."""

RESET_US = 30 * 86_400_000_000
"""Retention of resets: no window is longer, and no reset is requested again later."""

_KEPT_PER_SWEEP_MAX = 1000
"""Records put behind the others in one sweep."""


class AtRest(NamedTuple):
    """A breaker under a plan, the moment up to which time does not change it, and its view until then."""

    record: Record
    plan: BreakerPlan
    until_us: int
    view: BreakerView


class TagState:
    """All counters of a tag. Rings are keyed by account and seconds of the window.

    They outlive the policy that created them while anything in them counts: changed limits apply to prior use.
    """

    __slots__ = (
        "_at_rest",
        "_breakers",
        "_clocks",
        "_pods",
        "_resets",
        "_rings",
        "_seen_us",
        "environment",
        "live_pods",
        "parts",
    )

    def __init__(self, environment: BreakerEnvironment = ALONE) -> None:
        self.live_pods = LivePods()
        self.parts = PartsCache()
        self.environment = environment
        self._clocks = {fleet: TagClock() for fleet in (False, True)}
        self._breakers: dict[str, Record] = {}
        self._at_rest: dict[str, AtRest] = {}
        self._rings: dict[Account, dict[int, Ring]] = {}
        self._resets: dict[tuple[Account, int], tuple[int, int]] = {}
        """By account and seconds of a window: the time of the newest reset request, and the end of what it reset."""
        self._pods: dict[str, PodRecord] = {}
        self._seen_us = 0

    def find_clock(self, plan: CounterPlan) -> TagClock:
        """Return the clock of the rings that the plan counts in: the cluster's own, or the fleet's."""
        return self._clocks[plan.fleet]

    def find_breaker(self, service: str) -> Record:
        return self._breakers.get(service) or Record(service)

    def find_at_rest(self, service: str, plan: BreakerPlan, now_us: int) -> AtRest | None:
        """Return a breaker that time has not changed, computed once for all callers; None if it may have changed."""
        known = self._at_rest.get(service)
        if known is None or known.record is not self._breakers.get(service) or known.plan is not plan:
            record = self.find_breaker(service)
            until_us = 0 if plan.forcing is not None else find_rest_end_us(record, plan, self.environment)
            known = self._at_rest[service] = AtRest(record, plan, until_us, build_view(record, plan, 0))
        return known if now_us < known.until_us else None

    def set_breaker(self, record: Record) -> None:
        self._breakers[record.service] = record

    def move_breaker(self, plan: CounterPlan, record: Record, now_us: int) -> None:
        """Store a breaker. If its state changed, the clock does not go back behind `now_us`."""
        known = self._breakers.get(record.service)
        if known is record:
            return  # nearly every Pod leaves the breaker unchanged
        if has_moved(known or Record(record.service), record):
            self.find_clock(plan).last_us = now_us
        self.set_breaker(record)

    def find_pod(self, uid: str, now_us: int) -> PodRecord | None:
        """Return the record of an admitted Pod. The stored expiry decides, not the sweep."""
        record = self._pods.get(uid)
        return record if record is not None and record.expires_us > now_us and not record.refunded else None

    def was_refunded(self, uid: str, now_us: int) -> bool:
        record = self._pods.get(uid)
        return record is not None and record.expires_us > now_us and record.refunded

    def remember(self, uid: str, record: PodRecord) -> None:
        self._pods.pop(uid, None)  # in order of writing: the sweep starts at the front
        self._pods[uid] = record

    def judge(
        self, plan: CounterPlan, scope: str, cost: Cost, now_us: int, standing: LiveAmounts | None = None
    ) -> tuple[list[int], list[Use]]:
        """Return what each limit holds, and the limits that `cost` (for live Pods `standing`, if given) would exceed.

        A Pod that asks for none of a resource is not denied for it, even if it is overdrawn.
        """
        used: list[int] = []
        over: list[Use] = []
        for account, windows in plan.accounts_of(scope):
            rings = self._rings.get(account)
            for window in windows:
                ring = rings.get(window.seconds) if rings else None
                by_resource = NO_COST if ring is None else ring.used(now_us)
                for limit in window.limits:
                    resource = limit.counts
                    has, asked = by_resource.get(resource, 0), cost.get(resource, 0)
                    used.append(has)
                    if asked and has + asked > limit.hard:
                        over.append(_build_exceeded_use(account, window, limit, ring, (has, asked, now_us)))
        if plan.has_sums_only:
            return used, over
        if plan.has_guarantees:
            over = [use for use in over if use.of is not Holder.POOL]
            over += [use for use, is_over in self._list_pool_uses(plan, cost, now_us) if is_over]
            if not plan.limits_live_pods:
                return used, over
        standing = LiveAmounts(cost, cost) if standing is None else standing
        live, over_live = self.live_pods.judge(plan, scope, standing, now_us)
        return [*used, *live], [*over, *over_live]

    def list_uses(self, plan: CounterPlan, scope: str, now_us: int, holder: Holder) -> tuple[Use, ...]:
        """Return every limit of a holder, each asked for one unit, to find when any is free."""
        found: list[Use] = []
        if holder is Holder.POOL and plan.has_guarantees:
            units = dict.fromkeys(plan.limited, 1)
            return tuple(use for use, _ in self._list_pool_uses(plan, units, now_us))
        for account, windows in plan.accounts_of(scope):
            rings = self._rings.get(account, {})
            for window in windows if account[0] is holder else ():
                ring = rings.get(window.seconds)
                has = NO_COST if ring is None else ring.used(now_us)
                for limit in window.limits:
                    used = has.get(limit.counts, 0)
                    is_full = used + 1 > limit.hard
                    use = _build_exceeded_use(account, window, limit, ring, (used, 1, now_us)) if is_full else None
                    found.append(use or _build_use(account, window, limit, used))
        return tuple(found)

    def _list_pool_uses(self, plan: CounterPlan, cost: Cost, now_us: int) -> Iterator[tuple[Use, bool]]:
        """Yield the limits of a pool with guarantees, and whether `cost` would exceed each of them."""
        for account, windows in plan.accounts_of(""):
            for window in windows if account[0] is Holder.POOL else ():
                ring = self._rings.get(account, {}).get(window.seconds)
                yield from list_pool_uses(account, window, ring, cost, now_us)

    def charge(self, plan: CounterPlan, charges: tuple[Charge, ...], at_us: int, now_us: int) -> tuple[Charge, ...]:
        """Count `charges` as of a moment, now or before; return those that count.

        Amounts that have left their window by now are not counted. The clock does not go back behind a charge.
        """
        counted = [item for item in charges if self._get_or_create_ring(item[0], item[1]).add(now_us, item[2], at_us)]
        if counted:
            self.find_clock(plan).last_us = now_us
        return charges if len(counted) == len(charges) else tuple(counted)

    def _get_or_create_ring(self, account: Account, seconds: int) -> Ring:
        rings = self._rings.get(account)
        if rings is None:
            rings = self._rings[account] = {}
        ring = rings.get(seconds)
        if ring is None:
            ring = rings[seconds] = Ring(seconds)
        return ring

    def give_back(self, record: PodRecord, reading_us: int) -> bool:
        """Refund a Pod's charges, wherever they still count; True if any did."""
        given_back = False
        for account, seconds, amounts in record.charges:
            clock, ring = self._clocks[account[2]], self._rings.get(account, {}).get(seconds)
            now_us = clock.now(reading_us)
            _, forgotten_us = self._resets.get((account, seconds), (0, -1))
            if record.charged_at_us <= forgotten_us:
                continue
            if ring is not None and ring.refund(now_us, record.charged_at_us, amounts):
                clock.last_us, given_back = now_us, True
        return given_back

    def reset(self, plan: CounterPlan, scope: str, asked_us: int, seconds: int | None, now_us: int) -> bool:
        """Reset the service's own windows up to a moment, or one of them; True if they held anything.

        Once for each request. If the record of a request was lost, its repetition may also reset charges after that
        moment, of one bucket at most. The clock does not go back behind `now_us`.
        """
        done, at_us = False, min(asked_us + self.find_clock(plan).offset_us, now_us)
        for account, windows in plan.accounts_of(scope):
            for window in windows if account[0] is Holder.SERVICE else ():
                key = account, window.seconds
                if seconds not in {None, window.seconds} or self._resets.get(key, (0, 0))[0] >= asked_us:
                    continue
                forgotten_us, any_held = self._get_or_create_ring(account, window.seconds).forget(now_us, at_us)
                self._resets[key] = asked_us, forgotten_us
                self.find_clock(plan).last_us = now_us
                done |= any_held
        return done

    def list_scopes(self, plan: CounterPlan, now_us: int) -> set[str]:
        """Return the namespaces in which anything of the service counts."""
        return {
            scope
            for (holder, name, fleet, scope), rings in self._rings.items()
            if scope and (holder, name, fleet) == (Holder.SERVICE, plan.service, plan.fleet)
            if any(not ring.idle(now_us) for ring in rings.values())
        }

    def record_time(self, reading_us: int) -> None:
        """Record the time of an operation."""
        self._seen_us = reading_us

    def sweep(self, reading_us: int) -> bool:
        """Drop what no longer counts; True if nothing is left, and the last operation was an hour ago."""
        times_us = {fleet: clock.now(reading_us) - LONG_US for fleet, clock in self._clocks.items()}
        earliest_us = min(times_us.values())  # clocks may be far apart after a rebase, and a Pod is looked up by either
        self._sweep_pods(earliest_us)
        for account, rings in list(self._rings.items()):
            for seconds in [seconds for seconds, ring in rings.items() if ring.idle(times_us[account[2]])]:
                del rings[seconds]
            if not rings:
                del self._rings[account]
        for key in [key for key, (_, done_us) in self._resets.items() if done_us <= times_us[key[0][2]] - RESET_US]:
            del self._resets[key]
        has_no_live_pods = self.live_pods.sweep(times_us[False])
        return has_no_live_pods and not self._pods and not self._rings and self._seen_us + HOUR_US <= reading_us

    def _sweep_pods(self, earliest_us: int) -> None:
        """Drop expired records, from the oldest on. One that a long `maxWait` keeps longer goes behind the others."""
        ended: list[str] = []
        kept: list[str] = []
        for uid, record in self._pods.items():
            if record.expires_us <= earliest_us:
                ended.append(uid)
            elif record.charged_at_us + HOUR_US <= earliest_us and len(kept) < _KEPT_PER_SWEEP_MAX:
                kept.append(uid)
            else:
                break
        for uid in ended:
            del self._pods[uid]
        for uid in kept:
            self.remember(uid, self._pods[uid])


def _build_use(account: Account, window: WindowPlan, limit: Limit, used: int) -> Use:
    holder, name, _, _ = account
    return Use(window.name, limit.resource, used, limit.hard, 1, 0, holder, name if holder is Holder.POOL else "")


def _build_exceeded_use(
    account: Account, window: WindowPlan, limit: Limit, ring: Ring | None, asking: tuple[int, int, int]
) -> Use:
    """Return the use of a limit that is exceeded; `asking` is (used, asked, now)."""
    holder, name, _, _ = account
    used, asked, now_us = asking
    free_at_us = None if ring is None else ring.free_at_us(now_us, limit.counts, limit.hard, asked)
    label = name if holder is Holder.POOL else ""
    return Use(window.name, limit.resource, used, limit.hard, asked, free_at_us, holder, label)
