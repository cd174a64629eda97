"""StoreFallback: a counter store that keeps answering while the shared store is unavailable, and reconciles afterwards.

`webhook/app/store.py` sets three callbacks of the shared store: `on_loss` and `on_missed` call the methods of these
names, and `settled.owes` calls `owes`. So a call of the shared store can call this object before it returns.

Limits: an Acquire without an answer may still be carried out by a store that returns after this replica has ended, and
its withdrawal may be lost with the store. Such a charge leaves with its window, or the controller refunds it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.breaker import BreakerView, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.ledger.deny_cache import DenyCache
from webhook.core.policy_fields import WhenStoreUnavailable
from webhook.core.quota import Acquire, Booking, CounterPlan, DeniedBy, Receipt, ServiceSnapshot
from webhook.errors import NoStoreAnswerError, StoreUnavailableError
from webhook.fallback.local_breakers import LocalBreakers
from webhook.fallback.outage_admission import OutageAdmission
from webhook.fallback.reconciler import FallbackReports, Reconciler, ReconcilerTiming
from webhook.fallback.replica_share import ReplicaShare
from webhook.ports import Clock, SharedStore


class StoreFallback:
    """One replica's `ports.CounterStore` in front of `inner`. Its rules, and the bounds on overselling: docs/redis.md.

    `late_us`: how long breakers wait for outcomes of an interval that has ended.
    """

    def __init__(
        self,
        inner: SharedStore,
        clock: Clock,
        reports: FallbackReports,
        *,
        timing: ReconcilerTiming | None = None,
        replicas: int = 1,
        ordinal: int = 0,
        late_us: int = 0,
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._reports = reports
        self._denied = DenyCache()
        self._share = ReplicaShare(inner, clock, replicas, ordinal)
        self._breakers = LocalBreakers(inner.find_last_breaker, replicas, late_us)
        self._reconciler = Reconciler(
            inner, self._share, self._breakers, reports, timing or ReconcilerTiming(), self._on_withdrawn
        )
        self._outage = OutageAdmission(inner, clock, self._share, self._breakers, self._reconciler)
        self._plans: tuple[CounterPlan, ...] = ()
        """Plans of the policy as of the last tick."""

    def set_replicas(self, replicas: int, ordinal: int) -> None:
        """Divide the remaining quota among this many replicas; this one is number `ordinal`, from 0."""
        self._share.divide(replicas, ordinal)
        self._breakers.set_replicas(replicas)

    async def acquire(self, request: Acquire) -> Receipt:
        """Judge and charge as the store does, or by the service's rule.

        StoreUnavailableError: the caller decides by failureMode, and calls `book_later` if it admits the Pod.
        While the store may lack admissions, a Pod must fit this replica's share as well. A denial by the store is
        final: the store never counts too much.
        """
        share, counted_at_us = None, 0
        try:
            if self._reconciler.is_active or request.plan.tag in self._denied.entries:
                counted_at_us = self._clock.now_us()
                answer, share = await self._judge_here(request, counted_at_us)
                if answer is not None:
                    return answer
            receipt = await self._inner.acquire(request)
        except StoreUnavailableError as error:
            self._release_share(request, share, counted_at_us)
            return self._outage.acquire(request, error)
        if share is not None or self._reconciler.is_active:
            return self._compare(request, receipt, share, counted_at_us)
        # The usual case: the store knows all admissions, and there are no refunds.
        if receipt.used:
            self._share.learn(request, receipt)
        self._remember(request, receipt)
        return receipt

    def book_later(self, request: Acquire) -> None:
        """Book, once the store answers, a Pod that the caller admitted although `acquire` raised."""
        self._outage.book_later(request)

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        self._denied.drop(plan.tag)
        self._outage.recent.remove(uid)
        self._breakers.give_back(plan, uid, self.now_us())
        entry = self._reconciler.remove(plan, uid)
        if entry is None:
            return await self._inner.refund(plan, uid)
        if entry.counted_at_us is not None:
            self._share.release(entry.request, entry.counted_at_us)
        self._reconciler.withdraw(entry.request)  # the store may have charged it all the same
        return True

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        return await self._inner.book(plan, bookings)

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        try:
            return await self._inner.record_outcomes(plan, outcomes)
        except StoreUnavailableError:
            if plan.breaker is None:
                raise
            self._reconciler.begin_fallback(plan)
            self._breakers.record_outcomes(plan, outcomes, self.now_us())
            return self._breakers.take_moves()

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        await self._inner.propose(plan, view)

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        found = await self._inner.snapshot(plan, namespace)
        if self._knows_all(plan.tag):
            self._share.take(plan, found)
        return found

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        now_us, self._plans = self._clock.now_us(), tuple(plans)
        self._outage.recent.sweep(self.now_us())
        self._denied.sweep(now_us)
        self._share.sweep()
        self._breakers.pass_time(plans, self.now_us())
        moves = self._breakers.take_moves()
        try:
            return (*moves, *await self._inner.tick(plans))
        except StoreUnavailableError:
            if not moves:
                raise
            return moves

    def find_known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        if self._breakers.records and (local := self._breakers.view(plan, self.now_us())) is not None:
            return local
        return self._inner.find_known_breaker(plan)

    def find_last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        if self._breakers.records and (local := self._breakers.view(plan, self.now_us())) is not None:
            return local
        return self._inner.find_last_breaker(plan)

    def now_us(self) -> int:
        return self._inner.now_us()

    def on_loss(self) -> None:
        """Re-submit the last minute's charges: the store may have lost writes that it acknowledged."""
        self._reports.on_loss()
        recent, current = self._outage.rebook_recent(), {plan.key: plan for plan in self._plans}
        for plan in (current | recent | current).values():
            if plan.limits:
                self._reconciler.begin_fallback(plan)  # other replicas may have lost something, too

    def on_missed(self, plan: CounterPlan) -> None:
        """Start the fallback of a service that the store did not answer for: other replicas may admit without it."""
        if plan.limits and self._share.others:
            self._reconciler.begin_fallback(plan)

    def owes(self, tag: str) -> bool:
        """Return whether the store lacks any admission of this replica under a tag."""
        return self._reconciler.owes_under(tag)

    async def close(self) -> None:
        """Book the backlog as far as the store answers now; the rest is lost with this process."""
        await self._reconciler.close()

    def _knows_all(self, tag: str) -> bool:
        """Return whether the store knows every admission of any replica, as far as this replica can tell."""
        return self._reconciler.is_settled(tag) or not (self._share.others or self._reconciler.owes_under(tag))

    async def _judge_here(self, request: Acquire, now_us: int) -> tuple[Receipt | None, Receipt | None]:
        """Judge a Pod before the store is asked: return the answer if it need not be, and this replica's share."""
        if (booked := self._find_in_backlog(request)) is not None:
            return booked, None
        cached = self._denied.find(request, now_us)
        if cached is not None:
            return await self._find_known(request) or self._report_cached(request.plan, cached), None
        share = self._acquire_share(request, now_us)
        if share is not None and share.refused is not None:
            return await self._find_known(request) or share, None
        return None, share

    def _compare(self, request: Acquire, receipt: Receipt, share: Receipt | None, counted_at_us: int) -> Receipt:
        """Return the answer for a Pod that the store judged while it may lack admissions."""
        booked = self._find_in_backlog(request)  # the answer revealed a loss that includes this Pod
        if booked is not None or receipt.refused is not None or receipt.repeated:
            self._release_share(request, share, counted_at_us)
        elif share is None:
            share = self._acquire_share(request, self._clock.now_us())  # noticed during the call
            if share is not None and share.refused is not None:
                if receipt.charged:
                    self._outage.withdraw(request, receipt.at_us)
                return share
        if receipt.used and self._knows_all(request.plan.tag):
            self._share.learn(request, receipt)
        self._remember(request, receipt)
        if receipt.refused is None and not request.peek:
            self._reconciler.keep_charge(request.plan, request.uid)
        return receipt if booked is None else replace(booked, transitions=receipt.transitions)

    def _acquire_share(self, request: Acquire, now_us: int) -> Receipt | None:
        """Judge a Pod by this replica's share; None if the store alone can judge it."""
        plan = request.plan
        if not plan.limits or plan.when_unavailable is WhenStoreUnavailable.ALLOW or self._knows_all(plan.tag):
            return None
        return self._share.acquire(request, now_us)

    def _release_share(self, request: Acquire, share: Receipt | None, counted_at_us: int) -> None:
        if share is not None and share.charged:
            self._share.release(request, counted_at_us)

    async def _find_known(self, request: Acquire) -> Receipt | None:
        """Return the answer for a Pod that any replica has admitted already; None for one that may be denied."""
        try:
            charged_us = None if request.resize_from is not None else await self._inner.find_charged_us(request)
        except StoreUnavailableError as error:
            raise NoStoreAnswerError(*error.failure, sent=False) from error  # a query: it charges nothing later
        # During the query a loss may have been noticed.
        if charged_us is None:
            return self._find_in_backlog(request)
        answer = Receipt(self.now_us(), repeated=True, charged_us=charged_us)
        self._remember(request, answer)
        self._reconciler.keep_charge(request.plan, request.uid)
        return answer

    def _find_in_backlog(self, request: Acquire) -> Receipt | None:
        """Return the answer for a Pod that this replica has admitted and the store does not know yet."""
        is_owed = request.resize_from is None and self._reconciler.owes(request.plan, request.uid)
        return Receipt(self.now_us(), repeated=True, local=True) if is_owed else None

    def _report_cached(self, plan: CounterPlan, cached: Receipt) -> Receipt:
        self._reports.on_cached(plan.service)
        return cached

    def _on_withdrawn(self, plan: CounterPlan) -> None:
        self._denied.drop(plan.tag)

    def _remember(self, request: Acquire, receipt: Receipt) -> None:
        if receipt.charged and request.resize_from is None:
            self._outage.recent.add(request, receipt.at_us)
        elif receipt.repeated:
            self._outage.recent.confirm(request, receipt.at_us, receipt.charged_us)
        elif receipt.refused is DeniedBy.QUOTA:
            self._denied.keep(request, receipt, self._clock.now_us(), max(0, self.now_us() - receipt.at_us))
