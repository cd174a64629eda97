"""A store that a replay takes away and brings back, behind the guard of the one server that there is."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota import Acquire, Booking, CounterPlan, Look, Receipt, Seen, Sighting
from webhook.errors import StoreUnavailableError, UserError
from webhook.ports import Clock, CounterStore, Outcome, PodLedger
from webhook.store_guard import GuardReports, StoreGuard
from webhook.uncounted import NoAnswerError

T = TypeVar("T")


class Store(CounterStore, PodLedger, Protocol):
    """What a replay counts in."""


class Outage:
    """A `ports.CounterStore`. While the store is down each service goes by its own rule, as in a server."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = _Switched(store)
        self._clock = clock
        self._guard = self._guarded()
        self._to_refund: dict[str, CounterPlan] = {}

    def _guarded(self) -> StoreGuard:
        return StoreGuard(self._store, self._clock, GuardReports(_nothing, _nothing, _nothing, _nothing, _nothing))

    def take_away(self) -> None:
        self._store.is_down = True

    async def bring_back(self, plans: Iterable[CounterPlan]) -> None:
        """Settle up at once, where a server would take a moment: what was let in meanwhile is counted now."""
        if not self._store.is_down:
            return
        self._store.is_down = False
        await self._guard.close()
        self._guard = self._guarded()
        for uid, plan in self._to_refund.items():
            await self._guard.refund(plan, uid)
        self._to_refund.clear()
        for plan in plans:
            await self._guard.look(plan)

    async def acquire(self, request: Acquire) -> Receipt:
        return await self._guard.acquire(request)

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        """Give back; where the store is down, once it is back: then nobody can say yet whether there is anything."""
        try:
            return await self._guard.refund(plan, uid)
        except StoreUnavailableError:
            self._to_refund[uid] = plan
            return False

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        return await self._guard.book(plan, bookings)

    async def outcome(self, plan: CounterPlan, outcome: Outcome) -> Sequence[Transition]:
        """Tell the breaker; an outcome that comes while the store is down is lost."""
        with suppress(NoAnswerError):
            return await self._guard.outcome(plan, outcome)
        return ()

    async def look(self, plan: CounterPlan, namespace: str = "") -> Look:
        """Return how a service stands; while the store is down, the breaker as it was last known, and nothing else."""
        try:
            return await self._guard.look(plan, namespace)
        except NoAnswerError:
            return Look(self._clock.now_us(), breaker=self._guard.known_breaker(plan))

    async def see(self, plan: CounterPlan, sighting: Sighting) -> bool:
        """Tell what the watch shows of a Pod; False where the store is down: it is to be told again."""
        with suppress(NoAnswerError):
            await self._store.see(plan, [sighting])
            return True
        return False

    async def counted(self, plan: CounterPlan) -> None:
        """Say that all Pods are known; where the store is down there is nobody to hear it."""
        with suppress(NoAnswerError):
            await self._store.counted(plan)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        with suppress(NoAnswerError):
            return await self._guard.tick(plans)
        return ()

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._guard.known_breaker(plan)


class _Switched:
    """The store behind its switch: while that is off there is no answer, at once.

    A real store that fails is no event of the replay, and ends it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_down = False

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self.is_down:
            raise NoAnswerError("the store is down", sent=False)
        try:
            return await ask()
        except StoreUnavailableError as error:
            raise UserError(f"--store: {error}", "give the URL of a Redis that answers, or leave it out") from None

    async def acquire(self, request: Acquire) -> Receipt:
        return await self._asked(lambda: self._store.acquire(request))

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        return await self._asked(lambda: self._store.refund(plan, uid))

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        return await self._asked(lambda: self._store.book(plan, bookings))

    async def outcome(self, plan: CounterPlan, outcome: Outcome) -> Sequence[Transition]:
        return await self._asked(lambda: self._store.outcome(plan, outcome))

    async def look(self, plan: CounterPlan, namespace: str = "") -> Look:
        return await self._asked(lambda: self._store.look(plan, namespace))

    async def see(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        return await self._asked(lambda: self._store.see(plan, sightings))

    async def counted(self, plan: CounterPlan) -> None:
        scopes = await self._asked(lambda: self._store.scopes(plan))
        await self._asked(lambda: self._store.counted(plan, scopes))

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        return await self._asked(lambda: self._store.tick(plans))

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._store.known_breaker(plan)


def _nothing(*_: object) -> None:
    """Say nothing: the events' answers do."""
