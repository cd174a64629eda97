"""Store outage: the store of a replay behind the fallback of its one server, switched off and on by events."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from webhook.core import breaker
from webhook.core.breaker import BreakerView, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt, ServiceSnapshot
from webhook.errors import NoStoreAnswerError, StoreUnavailableError, UserError
from webhook.fallback import FallbackReports, StoreFallback
from webhook.ports import BreakerLedger, Clock, CounterStore, GroupCharges, PodLedger, SharedStore

_WITHOUT_IO = frozenset({"find_known_breaker", "find_last_breaker", "now_us"})


class ReplayStore(CounterStore, GroupCharges, PodLedger, BreakerLedger, Protocol):
    """The store of a replay."""

    async def find_charged_us(self, request: Acquire) -> int | None:
        """Return when a Pod was charged; None if it was not, or was refunded."""
        ...


class StoreSwitch:
    """Forwards each operation to a store; while `is_down`, operations raise NoStoreAnswerError at once.

    The failure of a real store is no event of the replay: it becomes a UserError, which ends the replay.
    """

    def __init__(self, store: object) -> None:
        self._store = store
        self.is_down = False

    async def count_settled_replicas(self, plan: CounterPlan, *, afresh: bool) -> int:  # noqa: ARG002  as in the port
        """Return 0: a replay has one server."""
        return 0

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)
        if name in _WITHOUT_IO:
            return operation

        async def forward(*arguments: Any, **named: Any) -> Any:
            if self.is_down:
                raise NoStoreAnswerError("the store is down", sent=False)
            try:
                return await operation(*arguments, **named)
            except StoreUnavailableError as error:
                raise UserError(f"--store: {error}", "give the URL of a Redis that answers, or leave it out") from None

        return forward


class StoreOutage:
    """A `ports.CounterStore`. While the store is down, whenStoreUnavailable or failureMode applies, as in a server."""

    def __init__(self, store: ReplayStore, clock: Clock) -> None:
        self._switch = StoreSwitch(store)
        self.shared = cast("ReplayStore", self._switch)
        """The store without the fallback, as the controller uses it."""
        self._clock = clock
        self._fallback = self._make_fallback()
        self._to_refund: dict[str, CounterPlan] = {}

    def _make_fallback(self) -> StoreFallback:
        return StoreFallback(
            cast("SharedStore", self._switch),
            self._clock,
            FallbackReports(_ignore, _ignore, _ignore, _ignore, _ignore),
        )

    @property
    def is_down(self) -> bool:
        return self._switch.is_down

    def take_away(self) -> None:
        self._switch.is_down = True

    async def bring_back(self, plans: Iterable[CounterPlan]) -> None:
        """Book what was admitted during the outage, at once; a server needs some time for it."""
        if not self._switch.is_down:
            return
        self._switch.is_down = False
        await self._fallback.close()
        self._fallback = self._make_fallback()
        for uid, plan in self._to_refund.items():
            await self._fallback.refund(plan, uid)
        self._to_refund.clear()
        for plan in plans:
            await self._fallback.snapshot(plan)

    async def acquire(self, request: Acquire) -> Receipt:
        return await self._fallback.acquire(request)

    def book_later(self, request: Acquire) -> None:
        """Book an admission when the store is back."""
        self._fallback.book_later(request)

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        """Refund a Pod; while the store is down, queue the refund and return False."""
        try:
            return await self._fallback.refund(plan, uid)
        except StoreUnavailableError:
            self._to_refund[uid] = plan
            return False

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        return await self._fallback.book(plan, bookings)

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        """Record outcomes; those of an outage are lost."""
        with suppress(NoStoreAnswerError):
            return await self._fallback.record_outcomes(plan, outcomes)
        return ()

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        await self._fallback.propose(plan, view)

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        """Return the state of a service; while the store is down, only the last known breaker."""
        try:
            return await self._fallback.snapshot(plan, namespace)
        except NoStoreAnswerError:
            return ServiceSnapshot(self._clock.now_us(), breaker=self._advance_breaker(plan))

    def _advance_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return the last known breaker, advanced to the present."""
        known, last = self._fallback.find_known_breaker(plan), self._fallback.find_last_breaker(plan)
        if known is not None or last is None or plan.breaker is None:
            return known
        return breaker.view(breaker.from_view(plan.service, plan.breaker, last), plan.breaker, self._clock.now_us())

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        with suppress(NoStoreAnswerError):
            return await self._fallback.tick(plans)
        return ()

    def find_known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._fallback.find_known_breaker(plan)

    def find_last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._fallback.find_last_breaker(plan)

    def now_us(self) -> int:
        return self._fallback.now_us()


def _ignore(*_: object) -> None:
    """Ignore a report: the output of the replay shows its effect."""
