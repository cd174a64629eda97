"""Counters in this process: `ports.CounterStore` for one event loop. No call awaits, so each is indivisible."""

from collections.abc import Sequence

from webhook.core import breaker_states, ledger
from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota import Acquire, CounterPlan, Look, Receipt
from webhook.core.service_state import ServiceState
from webhook.ports import Clock, Outcome


class MemoryStore:
    """Forgets everything when the process ends; a service that left the policy, once nothing of it counts any more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[tuple[str, str], ServiceState] = {}

    async def acquire(self, request: Acquire) -> Receipt:
        state = self._state(request.plan)
        if not request.peek:
            self._states[_key(request.plan)] = state
        return ledger.acquire(state, request, self._clock.now_us())

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        return ledger.refund(self._state(plan), uid, self._clock.now_us())

    async def outcome(self, plan: CounterPlan, outcome: Outcome) -> Sequence[Transition]:
        state = self._states[_key(plan)] = self._state(plan)
        return ledger.outcome(
            state,
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
        planned = {_key(plan): plan for plan in plans}
        transitions: list[Transition] = []
        for key, state in tuple(self._states.items()):
            plan = planned.get(key)
            if plan is not None:
                transitions += ledger.tick(state, plan, now_us)
            elif state.sweep(now_us):
                del self._states[key]
        return transitions

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        state = self._states.get(_key(plan))
        if state is None or plan.breaker is None:
            return None
        return breaker_states.view(state.breaker, plan.breaker, state.now(self._clock.now_us()))

    def _state(self, plan: CounterPlan) -> ServiceState:
        """Return the state of the plan's service, or an empty one that nobody knows of yet."""
        return self._states.get(_key(plan)) or ServiceState(plan.service)


def _key(plan: CounterPlan) -> tuple[str, str]:
    # By tag too: a service that moves to another pool starts anew there.
    return plan.tag, plan.service
