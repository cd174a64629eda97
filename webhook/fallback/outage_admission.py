"""OutageAdmission: admission of one Pod by its service's rule while the store gives no answer."""

from msgspec.structs import replace

from webhook.core.policy_fields import Mode, WhenStoreUnavailable
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt
from webhook.errors import NoStoreAnswerError, StoreUnavailableError
from webhook.fallback.backlog import BacklogEntry, BookingCause, ServiceKey
from webhook.fallback.local_breakers import LocalBreakerDecision, LocalBreakers
from webhook.fallback.recent_admissions import RecentAdmissions
from webhook.fallback.reconciler import Reconciler
from webhook.fallback.replica_share import ReplicaShare
from webhook.ports import Clock, SharedStore


class OutageAdmission:
    """Decides by the breaker as this replica knows it, then by whenStoreUnavailable.

    A Pod that this replica has admitted within the last minute is admitted again, whatever the rule.
    What it admits is counted in the replica's share and added to the backlog.
    """

    def __init__(
        self, store: SharedStore, clock: Clock, share: ReplicaShare, breakers: LocalBreakers, reconciler: Reconciler
    ) -> None:
        self._store = store
        self._clock = clock
        self._share = share
        self._breakers = breakers
        self._reconciler = reconciler
        self.recent = RecentAdmissions()

    def acquire(self, request: Acquire, error: StoreUnavailableError) -> Receipt:
        """Judge a Pod after the store failed with `error`; StoreUnavailableError if the caller must decide."""
        plan, now_us = request.plan, self._clock.now_us()
        self._reconciler.begin_fallback(plan)
        if self.recent.has_admitted(request):
            self._reconciler.keep_charge(plan, request.uid)
            return Receipt(self._store.now_us(), repeated=True, local=True)
        if isinstance(error, NoStoreAnswerError) and error.sent:
            self.withdraw(request, error)
        is_new = request.resize_from is None
        decision = self._breakers.judge(request, self._store.now_us()) if is_new else None
        if decision is not None and not decision.admits and plan.breaker_mode is Mode.ENFORCE:
            moves = self._breakers.take_moves()
            return Receipt(self._store.now_us(), DeniedBy.BREAKER, breaker=decision.view, transitions=moves, local=True)
        if not plan.limits or plan.when_unavailable is not WhenStoreUnavailable.LOCAL:
            raise StoreUnavailableError(*error.failure) from error
        receipt = self._share.acquire(request, now_us)
        if receipt.refused is None:
            self.book_later(request, now_us)
        return receipt if decision is None else self._add_breaker(receipt, request, decision)

    def book_later(self, request: Acquire, counted_at_us: int | None = None) -> None:
        """Add an admission to the backlog; `counted_at_us` is when the share counted it, if it did."""
        if request.peek:
            return
        at_us = self._store.now_us()
        if request.resize_from is None:
            if request.uid not in self.recent:
                self._breakers.lease_probe(request, at_us)
            self._reconciler.keep_charge(request.plan, request.uid)
            self.recent.add(request, at_us)
        self._reconciler.add(BacklogEntry(request, at_us, counted_at_us, BookingCause.AWAY))

    def withdraw(self, request: Acquire, known: NoStoreAnswerError | int) -> None:
        """Undo the charge that the store made, or may yet make, for a Pod that is not admitted."""
        if not request.peek and request.resize_from is None:
            self._reconciler.withdraw(request, known)

    def rebook_recent(self) -> dict[ServiceKey, CounterPlan]:
        """Add the last minute's admissions to the backlog: the store may have lost them. Return their plans, by key."""
        plans: dict[ServiceKey, CounterPlan] = {}
        for request, at_us in self.recent.list_all():
            plans.setdefault(request.plan.key, request.plan)
            self._reconciler.add(BacklogEntry(request, at_us, None, BookingCause.LOSS))
        return plans

    def _add_breaker(self, receipt: Receipt, request: Acquire, decision: LocalBreakerDecision) -> Receipt:
        """Add the breaker's view, and its denial if it only warns."""
        denials = () if decision.admits else (DeniedBy.BREAKER,)
        return replace(
            receipt,
            would_refuse=(*denials, *receipt.would_refuse),
            breaker=self._breakers.view(request.plan, self._store.now_us()),
            transitions=self._breakers.take_moves(),
        )
