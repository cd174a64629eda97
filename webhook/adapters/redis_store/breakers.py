"""What is asked and known of breakers alone: `ports.BreakerLedger` on Redis, and the newest view of each."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.breaker_cache import BreakerCache
from webhook.adapters.redis_store.micro_batcher import ScriptOperation
from webhook.adapters.redis_store.plans import PlanCache
from webhook.adapters.redis_store.pods import PodQuestions
from webhook.core import breaker as machine
from webhook.core.breaker import BreakerView, State, Transition
from webhook.core.breaker.outcome import Outcomes, Settlement, Start
from webhook.core.quota import CounterPlan


class BreakerQuestions(PodQuestions):
    """Operations on breakers. `now_us` is the store's time, as near as it is known here."""

    def __init__(self, plans: PlanCache, now_us: Callable[[], int]) -> None:
        super().__init__(plans)
        self._now_us = now_us
        self._views = BreakerCache()
        self._untold: list[Transition] = []
        """What breakers did as time passed, and in calls that nobody waited for any more: the next tick tells it."""

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return a breaker that is known to be open until a moment that has not come.

        Of others only Redis knows, and of a hand that the plan says nothing of: it may have let go, or come just now.
        """
        breaker, view = plan.breaker, self._views.get(plan.key)
        if breaker is not None and breaker.forcing is not None and self._now_us() < breaker.forcing.until_us:
            generation = view.generation if view is not None else 0
            return machine.shown(machine.Record(plan.service, generation=generation), breaker, self._now_us())
        if breaker is None or view is None or view.state is not State.OPEN:
            return None
        return view if view.open_until_us > self._now_us() else None

    def last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._views.get(plan.key) if plan.breaker is not None else None

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        if plan.breaker is None or not outcomes:
            return ()
        keys = self._plans.of(plan).keys
        records = tuple(keys.pod(heard.uid) for heard in outcomes if heard.uid is not None)
        request = "record_outcomes", codec.packed_outcomes(outcomes)
        return self._moved(plan, await self._ask(plan, request, records, tuple(range(len(records)))))

    async def started(
        self, plan: CounterPlan, starts: Sequence[Start]
    ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
        # They travel in their order: each may move it.
        settlements = await asyncio.gather(*(self._started(plan, start) for start in starts))
        return settlements, self._take_untold()

    async def _started(self, plan: CounterPlan, start: Start) -> Settlement:
        key = self._plans.of(plan).keys.pod(start.uid)
        result, *moving = await self._ask(plan, ("started", start.ok, start.latency_us, start.age_us), (key,), (0,))
        self._untold += self._moved(plan, moving) if moving else ()
        return Settlement(result)

    async def suppress_quota_events(self, plan: CounterPlan, sources: Sequence[str]) -> None:
        if plan.breaker is not None and plan.breaker.quota is not None:
            await self._ask(plan, ("suppress_quota_events", list(sources)))

    async def apply_override(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        if plan.breaker is None:
            return ()
        return self._moved(plan, await self._ask(plan, ("apply_override", reset_at_us)))

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        if plan.breaker is not None:
            self._moved(plan, await self._ask(plan, ("propose", codec.packed_view(view))))

    def _moved(self, plan: CounterPlan, answer: Sequence[Any]) -> Sequence[Transition]:
        """Learn how a breaker stands from an answer; return what it did."""
        moves, view, now_us = answer
        self._learn(plan, codec.breaker_view(view), now_us)
        return codec.transitions(plan, moves)

    def _late(self, asked: ScriptOperation, result: Sequence[Any]) -> None:
        self._untold += codec.transitions(asked.plan, codec.moves(asked.request[0], result))

    def _take_untold(self) -> Sequence[Transition]:
        untold, self._untold = self._untold, []
        return untold

    def _learn(self, plan: CounterPlan, view: BreakerView | None, now_us: int) -> None:
        if view is not None:
            self._views.answered(plan.key, view, now_us)
