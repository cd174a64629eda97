"""What is asked and known of breakers alone: `ports.BreakerLedger` on Redis, and the newest view of each."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from webhook.adapters.redis_store import wire
from webhook.adapters.redis_store.plans import Plans
from webhook.adapters.redis_store.pods import PodQuestions
from webhook.adapters.redis_store.views import Views
from webhook.core import breaker as machine
from webhook.core.breaker import BreakerView, State, Transition
from webhook.core.outcomes import Outcomes, Settlement, Start
from webhook.core.quota import CounterPlan

_REFUSING = frozenset({State.OPEN, State.FORCED_OPEN})


class BreakerQuestions(PodQuestions):
    """Operations on breakers. `now_us` is the store's time, as near as it is known here."""

    def __init__(self, plans: Plans, now_us: Callable[[], int]) -> None:
        super().__init__(plans)
        self._now_us = now_us
        self._views = Views()

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return a breaker that is known to be open until a moment that has not come; of others only Redis knows."""
        breaker, view = plan.breaker, self._views.get(plan.key)
        if breaker is not None and breaker.forcing is not None and self._now_us() < breaker.forcing.until_us:
            generation = view.generation if view is not None else 0
            return machine.shown(machine.Record(plan.service, generation=generation), breaker, self._now_us())
        if breaker is None or view is None or view.state not in _REFUSING:
            return None
        return view if view.open_until_us > self._now_us() else None

    def last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._views.get(plan.key) if plan.breaker is not None else None

    async def hear(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        if plan.breaker is None or not outcomes:
            return ()
        keys = self._plans.of(plan).keys
        records = tuple(keys.pod(heard.uid) for heard in outcomes if heard.uid is not None)
        request = "hear", wire.packed_outcomes(outcomes)
        return self._moved(plan, await self._ask(plan, request, records, tuple(range(len(records)))))

    async def started(
        self, plan: CounterPlan, starts: Sequence[Start]
    ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
        keys = self._plans.of(plan).keys
        requests = [(("started", start.ok, start.latency_us, start.age_us), keys.pod(start.uid)) for start in starts]
        # They travel in their order: each may move it.
        answers = await asyncio.gather(*(self._ask(plan, request, (key,), (0,)) for request, key in requests))
        moves = [move for _, *moving in answers if moving for move in self._moved(plan, moving)]
        return [Settlement(result) for result, *_ in answers], moves

    async def excuse(self, plan: CounterPlan, sources: Sequence[str]) -> None:
        if plan.breaker is not None and plan.breaker.quota is not None:
            await self._ask(plan, ("excuse", list(sources)))

    async def by_hand(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        if plan.breaker is None:
            return ()
        return self._moved(plan, await self._ask(plan, ("by_hand", reset_at_us)))

    async def offer(self, plan: CounterPlan, view: BreakerView) -> None:
        if plan.breaker is not None:
            await self._ask(plan, ("offer", wire.packed_view(view)))

    def _moved(self, plan: CounterPlan, answer: Sequence[Any]) -> Sequence[Transition]:
        """Learn how a breaker stands from an answer; return what it did."""
        moves, view, now_us = answer
        self._learn(plan, wire.breaker_view(view), now_us)
        return wire.transitions(plan, moves)

    def _learn(self, plan: CounterPlan, view: BreakerView | None, now_us: int) -> None:
        if view is not None:
            self._views.answered(plan.key, view, now_us)
