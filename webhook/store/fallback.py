"""StoreFallback: a counter store that keeps answering while the shared store is away, and settles up afterwards."""

from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.breaker import BreakerView, Transition
from webhook.core.breaker.outcome import Outcomes
from webhook.core.ledger.deny_cache import DenyCache
from webhook.core.ledger.local_share import LocalLedger
from webhook.core.policy_spec import Mode, WhenStoreUnavailable
from webhook.core.quota import Acquire, Booking, CounterPlan, Holder, Look, Receipt, Refusal, Use
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, SharedStore
from webhook.store.backlog import BacklogEntry, BookingCause, RecentAdmissions, ServiceKey
from webhook.store.errors import NoStoreAnswerError, UncountedError
from webhook.store.local_breakers import LocalBreakerDecision, LocalBreakers
from webhook.store.reconciler import FallbackReports, Reconciler, ReconcilerTiming

FAILURE_MODE = "failureMode"
"""The rule of a service that has no quota."""


class StoreFallback:
    """Rules, bounds and what may remain oversold are in docs/redis.md. `late_us`: how late outcomes may arrive."""

    def __init__(
        self,
        inner: SharedStore,
        clock: Clock,
        reports: FallbackReports,
        *,
        pace: ReconcilerTiming | None = None,
        replicas: int = 1,
        ordinal: int = 0,
        late_us: int = 0,
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._reports = reports
        self._local = LocalLedger(replicas, ordinal)
        self._denied = DenyCache()
        self._recent = RecentAdmissions()
        self._breakers = LocalBreakers(inner.last_breaker, replicas, late_us)
        self._others = replicas - 1
        self._plans: tuple[CounterPlan, ...] = ()
        self._settling = Reconciler(
            inner,
            self._look_again,
            self._tell,
            self._local.forget,
            lambda: self._others,
            reports,
            pace or ReconcilerTiming(),
        )

    def share(self, replicas: int, ordinal: int) -> None:
        """Divide what is left among so many replicas, of which this is number `ordinal`, from 0."""
        self._others = replicas - 1
        self._local.share(replicas, ordinal, self._clock.now_us())
        self._breakers.share(replicas)

    async def acquire(self, request: Acquire) -> Receipt:
        """Judge and charge as the store does, or by the service's rule; UncountedError where others must decide.

        While the store may lack what was admitted without it, its word alone admits nobody: a Pod must fit this
        replica's share, too. What it refuses is refused justly, for nothing that it counts is too much.
        """
        plan, now_us, share = request.plan, self._clock.now_us(), None
        if (owed := self._if_owed(request)) is not None:
            return owed
        cached = self._denied.find(request, now_us) if self._denied else None
        if cached is None and self._settling:
            share = self._shared(request, now_us)
        try:
            if cached is not None:
                return await self._unless_known(request) or self._from_cache(plan, cached)
            if share is not None and share.refused is not None:
                return await self._unless_known(request) or share
            receipt = await self._inner.acquire(request)
        except StoreUnavailableError as error:
            self._release(request, share, now_us)
            return self._alone(request, error)
        owed = self._if_owed(request)  # the answer told of a loss, and the Pod is one of those that were lost
        if owed is not None or receipt.refused is not None or receipt.repeated:
            self._release(request, share, now_us)
        elif share is None and self._settling:
            share = self._shared(request, now_us)  # it fell, or heard of a loss, while the store was asked
            if share is not None and share.refused is not None:
                self._undo(request)
                return share
        self._heard(request, receipt)
        return receipt if owed is None else replace(owed, transitions=receipt.transitions)

    def _shared(self, request: Acquire, now_us: int) -> Receipt | None:
        """Count a Pod within this replica's share, where the store may lack what it should be held against."""
        plan = request.plan
        if not plan.limits or plan.when_unavailable is WhenStoreUnavailable.ALLOW or self._knows_all(plan.tag):
            return None
        return self._local.acquire(request, now_us, self.now_us() - now_us)

    def _knows_all(self, tag: str) -> bool:
        """Say whether the store knows of all that any replica has admitted, as far as it can be told here."""
        return self._settling.is_settled(tag) or not (self._others or self._settling.owes_under(tag))

    async def _unless_known(self, request: Acquire) -> Receipt | None:
        """Return that a Pod was admitted already, by whatever replica; None for one that may be refused."""
        try:
            known = request.resize_from is None and await self._inner.knows(request.plan, request.uid)
        except StoreUnavailableError as error:
            raise NoStoreAnswerError(str(error), sent=False) from error  # it was only asked, and will do nothing
        return Receipt(self.now_us(), repeated=True) if known else self._if_owed(request)  # heard of a loss meanwhile

    def _if_owed(self, request: Acquire) -> Receipt | None:
        """Return that a Pod was admitted here already, where the store is still to be told."""
        is_owed = self._settling and request.resize_from is None and self._settling.owes(request.plan, request.uid)
        return Receipt(self.now_us(), repeated=True, local=True) if is_owed else None

    def _from_cache(self, plan: CounterPlan, cached: Receipt) -> Receipt:
        self._reports.on_cached(plan.service)
        return cached

    def _release(self, request: Acquire, share: Receipt | None, counted_at_us: int) -> None:
        """Count no longer what was to be admitted within the share."""
        if share is not None and share.charged:
            self._local.give_back(request, counted_at_us, self._clock.now_us())

    def _undo(self, request: Acquire) -> None:
        """Have given back what the store did, or may yet do, for a Pod that is not admitted."""
        if not request.peek and request.resize_from is None:
            self._settling.refund_later(request.plan, request.uid)

    def book_later(self, request: Acquire) -> None:
        self._owe(request, self._clock.now_us())

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        self._denied.drop(plan.tag)
        self._recent.remove(uid)
        self._breakers.give_back(plan, uid)
        debt = self._settling.remit(plan, uid)
        if debt is None:
            return await self._inner.refund(plan, uid)
        if debt.cause is BookingCause.AWAY:
            self._local.give_back(debt.request, debt.counted_at_us, self._clock.now_us())
        self._settling.refund_later(plan, uid)  # the store may have charged it all the same
        return True

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        return await self._inner.book(plan, bookings)

    async def hear(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        try:
            return await self._inner.hear(plan, outcomes)
        except StoreUnavailableError:
            if plan.breaker is None:
                raise
            self._settling.fall(plan, _rule(plan))
            self._breakers.hear(plan, outcomes, self.now_us())
            return self._breakers.take_moves()

    async def offer(self, plan: CounterPlan, view: BreakerView) -> None:
        await self._inner.offer(plan, view)

    async def look(self, plan: CounterPlan, namespace: str = "") -> Look:
        look = await self._inner.look(plan, namespace)
        if self._knows_all(plan.tag):
            self._take(plan, look)
        return look

    async def _look_again(self, plan: CounterPlan) -> None:
        """Take the figures of a store that has been told everything."""
        self._take(plan, await self._inner.look(plan))

    def _take(self, plan: CounterPlan, look: Look) -> None:
        now_us = self._clock.now_us()
        for scope, uses in (look.uses or {"": ()}).items():  # where namespaces count apart, none may have begun
            self._local.heard(plan, scope, _used(plan, (*uses, *look.pool)), now_us)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        now_us, self._plans = self._clock.now_us(), tuple(plans)
        self._recent.sweep(self.now_us())
        self._denied.sweep(now_us)
        self._local.sweep(now_us)
        self._breakers.pass_time(plans, self.now_us())
        moves = self._breakers.take_moves()
        try:
            return (*moves, *await self._inner.tick(plans))
        except StoreUnavailableError:
            if not moves:
                raise
            return moves

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        mine = self._my_breaker(plan)
        return self._inner.known_breaker(plan) if mine is None else mine

    def last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        mine = self._my_breaker(plan)
        return self._inner.last_breaker(plan) if mine is None else mine

    def now_us(self) -> int:
        return self._inner.now_us()

    def _my_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return how a breaker stands here while the store is away; None where the store alone knows."""
        return self._breakers.view(plan, self.now_us()) if self._breakers else None

    def lost(self) -> None:
        """Hear that the store may have lost what it had acknowledged: it is told again."""
        self._reports.on_loss()
        now_us, fallen = self._clock.now_us(), {plan.key: plan for plan in self._plans}
        for request, at_us in self._recent.all():
            fallen.setdefault(request.plan.key, request.plan)
            self._settling.owe(BacklogEntry(request, at_us, now_us, BookingCause.LOSS))
        for plan in fallen.values():
            if plan.limits:
                self._settling.fall(plan, _rule(plan))  # others may have lost something, too

    def missed(self, plan: CounterPlan) -> None:
        """Hear that the store did not answer for a service, whether or not anybody asks for it: others may owe."""
        if plan.limits and self._others:
            self._settling.fall(plan, _rule(plan))

    def owes(self, tag: str) -> bool:
        """Say whether the store lacks anything that was admitted here under a tag."""
        return self._settling.owes_under(tag)

    async def close(self) -> None:
        """Tell the store what can be told at once; the rest is lost with this process."""
        await self._settling.close()

    def _heard(self, request: Acquire, receipt: Receipt) -> None:
        plan, now_us = request.plan, self._clock.now_us()
        if receipt.used and self._knows_all(plan.tag):
            self._local.heard(plan, request.namespace, receipt.used, now_us)
        if receipt.charged and request.resize_from is None:
            self._recent.add(request, receipt.at_us)
        elif receipt.refused is Refusal.QUOTA:
            self._denied.keep(request, receipt, now_us)
        if receipt.refused is None and not request.peek:
            self._settling.keep(plan, request.uid)

    def _alone(self, request: Acquire, error: StoreUnavailableError) -> Receipt:
        """Go by the service's rule. What the store may yet do for a Pod that is not admitted is given back."""
        plan, now_us = request.plan, self._clock.now_us()
        self._settling.fall(plan, _rule(plan))
        if isinstance(error, NoStoreAnswerError) and error.sent:
            self._undo(request)
        is_new = request.resize_from is None and request.uid not in self._recent
        judgement = self._breakers.judge(request, self.now_us()) if is_new else None
        if judgement is not None and not judgement.admits and plan.breaker_mode is Mode.ENFORCE:
            moves = self._breakers.take_moves()
            view = judgement.view
            return Receipt(self.now_us(), Refusal.BREAKER, breaker=view, transitions=moves, local=True)
        if _rule(plan) != WhenStoreUnavailable.LOCAL:
            raise UncountedError(str(error)) from error
        if request.uid in self._recent and request.resize_from is None:
            self._settling.keep(plan, request.uid)
            return Receipt(self.now_us(), repeated=True, local=True)
        receipt = self._local.acquire(request, now_us, self.now_us() - now_us)
        if receipt.refused is None:
            self._owe(request, now_us)
        return receipt if judgement is None else self._with_breaker(receipt, request, judgement)

    def _with_breaker(self, receipt: Receipt, request: Acquire, judgement: LocalBreakerDecision) -> Receipt:
        """Add what the breaker has to say of a Pod that it does not refuse."""
        objects = () if judgement.admits else (Refusal.BREAKER,)
        return replace(
            receipt,
            would_refuse=(*objects, *receipt.would_refuse),
            breaker=self._breakers.view(request.plan, self.now_us()),
            transitions=self._breakers.take_moves(),
        )

    def _owe(self, request: Acquire, counted_at_us: int) -> None:
        """Add an admission to the backlog; `counted_at_us` is when this replica's share counted it."""
        if request.peek:
            return
        at_us = self.now_us()
        if request.resize_from is None:
            if request.uid not in self._recent:
                self._breakers.admitted(request, at_us)
            self._settling.keep(request.plan, request.uid)
            self._recent.add(request, at_us)
        self._settling.owe(BacklogEntry(request, at_us, counted_at_us, BookingCause.AWAY))

    async def _tell(self, key: ServiceKey) -> None:
        await self._breakers.tell(key, self._inner.offer, self.now_us())


def _rule(plan: CounterPlan) -> str:
    """Return what a service goes by while the store gives no answer."""
    return str(plan.when_unavailable) if plan.limits else FAILURE_MODE


def _used(plan: CounterPlan, uses: Sequence[Use]) -> tuple[int, ...]:
    """Return what each of the plan's limits holds, in their order; 0 where nothing is said of it."""
    by_holder = {of: iter([use.used for use in uses if use.of is of]) for of in Holder}
    return tuple(next(by_holder[of], 0) for of, _, _ in plan.limits)
