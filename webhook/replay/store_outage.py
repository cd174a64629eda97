"""A store that a replay takes away and brings back, behind the guard of the one server that there is."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from msgspec.structs import replace

from webhook.core import breaker
from webhook.core.breaker import BreakerView, Transition
from webhook.core.breaker.outcome import Outcomes, Settlement, Start
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt, Seen, ServiceSnapshot, Sighting
from webhook.errors import StoreUnavailableError, UserError
from webhook.ports import BreakerLedger, Clock, CounterStore, PodLedger
from webhook.store import FallbackReports, StoreFallback
from webhook.store.errors import NoStoreAnswerError

T = TypeVar("T")


class ReplayStore(CounterStore, PodLedger, BreakerLedger, Protocol):
    """What a replay counts in."""

    async def knows(self, plan: CounterPlan, uid: str) -> bool:
        """Say whether a Pod was admitted and not refunded."""
        ...


class StoreOutage:
    """A `ports.CounterStore`. While the store is down each service goes by its own rule, as in a server."""

    def __init__(self, store: ReplayStore, clock: Clock) -> None:
        self._store = _Switched(store)
        self._clock = clock
        self._guard = self._guarded()
        self._to_refund: dict[str, CounterPlan] = {}
        self._to_start: list[tuple[CounterPlan, Start, int]] = []
        """How Pods started, and when that was known."""

    def _guarded(self) -> StoreFallback:
        return StoreFallback(
            self._store, self._clock, FallbackReports(_nothing, _nothing, _nothing, _nothing, _nothing)
        )

    def take_away(self) -> None:
        self._store.is_down = True

    async def bring_back(self, plans: Iterable[CounterPlan]) -> Sequence[Transition]:
        """Settle up at once, where a server would take a moment: what was let in meanwhile is counted now.

        Return what breakers do when they hear how Pods have started meanwhile.
        """
        if not self._store.is_down:
            return ()
        self._store.is_down = False
        await self._guard.close()
        self._guard = self._guarded()
        for uid, plan in self._to_refund.items():
            await self._guard.refund(plan, uid)
        self._to_refund.clear()
        for plan in plans:
            await self._guard.snapshot(plan)
        started, self._to_start = self._to_start, []
        moves: list[Transition] = []
        for plan, start, at_us in started:
            moves += (await self.started(plan, replace(start, age_us=self._clock.now_us() - at_us)))[1]
        return moves

    async def acquire(self, request: Acquire) -> Receipt:
        return await self._guard.acquire(request)

    def book_later(self, request: Acquire) -> None:
        self._guard.book_later(request)

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        """Give back; where the store is down, once it is back: then nobody can say yet whether there is anything."""
        try:
            return await self._guard.refund(plan, uid)
        except StoreUnavailableError:
            self._to_refund[uid] = plan
            return False

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        return await self._guard.book(plan, bookings)

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        """Tell the breaker; an outcome that comes while the store is down is lost."""
        with suppress(NoStoreAnswerError):
            return await self._guard.record_outcomes(plan, outcomes)
        return ()

    async def started(self, plan: CounterPlan, start: Start) -> tuple[Settlement | None, Sequence[Transition]]:
        """Tell how a Pod started; where the store is down, once it is back, as a controller does: None until then."""
        try:
            [settlement], moves = await self._store.started(plan, [start])
        except NoStoreAnswerError:
            self._to_start.append((plan, start, self._clock.now_us()))
            return None, ()
        return settlement, moves

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        await self._guard.propose(plan, view)

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        """Return how a service stands; while the store is down, the breaker as it was last known, and nothing else."""
        try:
            return await self._guard.snapshot(plan, namespace)
        except NoStoreAnswerError:
            return ServiceSnapshot(self._clock.now_us(), breaker=self._breaker(plan))

    def _breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return how a breaker stands here: as it was heard of last, but for what time has done to it since."""
        known, last = self._guard.known_breaker(plan), self._guard.last_breaker(plan)
        if known is not None or last is None or plan.breaker is None:
            return known
        return breaker.view(breaker.from_view(plan.service, plan.breaker, last), plan.breaker, self._clock.now_us())

    async def observe(self, plan: CounterPlan, sighting: Sighting) -> bool:
        """Tell what the watch shows of a Pod; False where the store is down: it is to be told again."""
        with suppress(NoStoreAnswerError):
            await self._store.observe(plan, [sighting])
            return True
        return False

    async def mark_complete(self, plan: CounterPlan) -> None:
        """Say that all Pods are known; where the store is down there is nobody to hear it."""
        with suppress(NoStoreAnswerError):
            await self._store.mark_complete(plan)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        with suppress(NoStoreAnswerError):
            return await self._guard.tick(plans)
        return ()

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._guard.known_breaker(plan)

    def last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._guard.last_breaker(plan)

    def now_us(self) -> int:
        return self._guard.now_us()


class _Switched:
    """The store behind its switch: while that is off there is no answer, at once.

    A real store that fails is no event of the replay, and ends it.
    """

    def __init__(self, store: ReplayStore) -> None:
        self._store = store
        self.is_down = False

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self.is_down:
            raise NoStoreAnswerError("the store is down", sent=False)
        try:
            return await ask()
        except StoreUnavailableError as error:
            raise UserError(f"--store: {error}", "give the URL of a Redis that answers, or leave it out") from None

    async def acquire(self, request: Acquire) -> Receipt:
        return await self._asked(lambda: self._store.acquire(request))

    def book_later(self, request: Acquire) -> None:
        self._store.book_later(request)

    async def knows(self, plan: CounterPlan, uid: str) -> bool:
        return await self._asked(lambda: self._store.knows(plan, uid))

    async def others_settled(self, plan: CounterPlan, *, afresh: bool) -> int:  # noqa: ARG002  as the port has it
        """There is no other server."""
        return 0

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        return await self._asked(lambda: self._store.refund(plan, uid))

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        return await self._asked(lambda: self._store.book(plan, bookings))

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        return await self._asked(lambda: self._store.record_outcomes(plan, outcomes))

    async def started(
        self, plan: CounterPlan, starts: Sequence[Start]
    ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
        return await self._asked(lambda: self._store.started(plan, starts))

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        await self._asked(lambda: self._store.propose(plan, view))

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        return await self._asked(lambda: self._store.snapshot(plan, namespace))

    async def observe(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        return await self._asked(lambda: self._store.observe(plan, sightings))

    async def mark_complete(self, plan: CounterPlan) -> None:
        scopes = await self._asked(lambda: self._store.scopes(plan))
        await self._asked(lambda: self._store.mark_complete(plan, scopes))

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        return await self._asked(lambda: self._store.tick(plans))

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._store.known_breaker(plan)

    def last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._store.last_breaker(plan)

    def now_us(self) -> int:
        return self._store.now_us()


def _nothing(*_: object) -> None:
    """Say nothing: the events' answers do."""
