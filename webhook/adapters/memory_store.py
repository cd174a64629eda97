"""Counters in this process: `ports.CounterStore` and `ports.PodLedger`. No call awaits, so each is indivisible."""

from collections.abc import Sequence

from webhook.core import breaker_states, ledger
from webhook.core import sightings as rolls
from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota import Acquire, Booking, CounterPlan, Look, Receipt, Seen, Sighting, Waiting
from webhook.core.tag_state import TagState
from webhook.ports import Clock, Outcome


class MemoryStore:
    """Forgets everything when the process ends; a service that left the policy, once nothing of it counts any more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, TagState] = {}

    async def acquire(self, request: Acquire) -> Receipt:
        return ledger.acquire(self._state(request.plan, keep=not request.peek), request, self._clock.now_us())

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        return ledger.refund(self._state(plan), plan, uid, self._clock.now_us())

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        state, now_us = self._state(plan, keep=True), self._clock.now_us()
        return sum([ledger.book(state, plan, booking, now_us) for booking in bookings])

    async def see(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        state, now_us = self._state(plan, keep=True), self._clock.now_us()
        return [rolls.see(state, plan, seen, now_us) for seen in sightings]

    async def overdue(self, plan: CounterPlan, age_us: int, most: int) -> Sequence[Waiting]:
        return rolls.overdue(self._state(plan), plan, age_us, most, self._clock.now_us())

    async def let_be(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        state, now_us = self._state(plan), self._clock.now_us()
        for uid in uids:
            rolls.let_be(state, plan, uid, now_us)

    async def scopes(self, plan: CounterPlan) -> Sequence[str]:
        return sorted(self._state(plan).roll.scopes(plan))

    async def live(
        self,
        plan: CounterPlan,
        scope: str,
        after: str = "",  # noqa: ARG002  all are on one page
    ) -> tuple[Sequence[str], str]:
        return rolls.live(self._state(plan), plan, scope, self._clock.now_us()), ""

    async def counted(self, plan: CounterPlan, scopes: Sequence[str]) -> None:
        rolls.counted(self._state(plan, keep=True), plan, scopes, self._clock.now_us())

    async def reset(self, plan: CounterPlan, at_us: int, seconds: int | None = None) -> bool:
        return rolls.reset(self._state(plan, keep=True), plan, at_us, seconds, self._clock.now_us())

    async def outcome(self, plan: CounterPlan, outcome: Outcome) -> Sequence[Transition]:
        return ledger.outcome(
            self._state(plan, keep=True),
            plan,
            self._clock.now_us(),
            ok=outcome.ok,
            latency_us=outcome.latency_us,
            uid=outcome.uid,
            generation=outcome.generation,
        )

    async def look(self, plan: CounterPlan, namespace: str = "") -> Look:
        return ledger.look(self._state(plan), plan, self._clock.now_us(), namespace)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        now_us = self._clock.now_us()
        transitions: list[Transition] = []
        for plan in plans:
            state = self._states.get(plan.tag)
            if state is not None:
                transitions += ledger.tick(state, plan, now_us)
        planned = {plan.tag for plan in plans}
        for tag, state in tuple(self._states.items()):
            if state.sweep(now_us) and tag not in planned:
                del self._states[tag]
        return transitions

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        state = self._states.get(plan.tag)
        if state is None or plan.breaker is None:
            return None
        now_us = state.clock(plan).now(self._clock.now_us())
        return breaker_states.view(state.breaker(plan.service), plan.breaker, now_us)

    def _state(self, plan: CounterPlan, *, keep: bool = False) -> TagState:
        """Return what the plan's tag has, or an empty state, which nobody knows of unless it is to be kept."""
        state = self._states.get(plan.tag)
        if state is None:
            state = TagState()
            if keep:
                self._states[plan.tag] = state
        return state
