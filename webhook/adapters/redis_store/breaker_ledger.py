"""RedisBreakerLedger: `ports.BreakerLedger` on Redis, with the breaker states that this process has cached."""

import asyncio
from collections.abc import Sequence

from webhook.adapters.redis_store import codec, operations
from webhook.adapters.redis_store.breaker_cache import BreakerCache
from webhook.adapters.redis_store.lane_group import Lanes
from webhook.adapters.redis_store.plans import PlanCache
from webhook.adapters.redis_store.store_clock import StoreClock
from webhook.adapters.redis_store.transport.records import BreakerAnswer, StartAnswer, TickAnswer
from webhook.core import breaker as machine
from webhook.core.breaker import BreakerView, State, Transition
from webhook.core.breaker.outcome_types import Outcomes, Settlement, Start
from webhook.core.quota import CounterPlan


class RedisBreakerLedger:
    """Every answer that shows a breaker updates the cache and the clock."""

    def __init__(self, plans: PlanCache, lanes: Lanes, cache: BreakerCache, clock: StoreClock) -> None:
        self._plans = plans
        self._ask = lanes.ask_patiently
        self._cache = cache
        self._clock = clock

    def find_known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return a breaker that is known to be open until a moment in the future.

        Any other state must be read from Redis. A forced state counts only if the plan has it: an override may have
        begun or ended since the last answer.
        """
        breaker = plan.breaker
        if breaker is None:
            return None
        if breaker.forcing is not None and self._clock.now_us() < breaker.forcing.until_us:
            view = self._cache.get(plan.key)
            generation = view.generation if view is not None else 0
            return machine.build_view(
                machine.Record(plan.service, generation=generation), breaker, self._clock.now_us()
            )
        if plan.key not in self._cache.open:
            return None
        view = self._cache.get(plan.key)
        if view is None or view.state is not State.OPEN:
            return None
        return view if view.open_until_us > self._clock.now_us() else None

    def find_last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._cache.get(plan.key) if plan.breaker is not None else None

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        if plan.breaker is None or not outcomes:
            return ()
        answer = await self._ask(operations.record_outcomes(self._plans.prepare(plan), outcomes))
        return self.learn_moves(plan, BreakerAnswer(*answer))

    async def record_starts(
        self, plan: CounterPlan, starts: Sequence[Start]
    ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
        # In order: each may cause a transition of the breaker.
        settlements = await asyncio.gather(*(self._record_start(plan, start) for start in starts))
        return settlements, self._cache.take_unreported()

    async def _record_start(self, plan: CounterPlan, start: Start) -> Settlement:
        answer = StartAnswer(*await self._ask(operations.record_start(self._plans.prepare(plan), start)))
        if answer.view is not None:  # reported even if the answer to another start is late
            self._cache.add_unreported(self.learn_moves(plan, answer))
        return Settlement(answer.settlement)

    async def suppress_quota_events(self, plan: CounterPlan, sources: Sequence[str]) -> None:
        if plan.breaker is not None and plan.breaker.quota is not None:
            await self._ask(operations.suppress_quota_events(self._plans.prepare(plan), sources))

    async def apply_override(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        if plan.breaker is None:
            return ()
        answer = await self._ask(operations.apply_override(self._plans.prepare(plan), reset_at_us))
        return self.learn_moves(plan, BreakerAnswer(*answer))

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        if plan.breaker is not None:
            self.learn_moves(plan, BreakerAnswer(*await self._ask(operations.propose(self._plans.prepare(plan), view))))

    async def repropose_lost(self, plan: CounterPlan) -> None:
        """Propose the state that Redis had and has lost: it came back empty, or with older data."""
        lost = self._cache.find_lost(plan.key)
        if lost is not None:
            await self.propose(plan, lost)

    def learn_moves(self, plan: CounterPlan, answer: BreakerAnswer | StartAnswer | TickAnswer) -> Sequence[Transition]:
        """Learn a breaker's state from an answer; return its transitions."""
        self.learn(plan, codec.decode_view(answer.view), answer.now_us)
        return codec.decode_transitions(plan, answer.moves)

    def learn(self, plan: CounterPlan, view: BreakerView | None, now_us: int) -> None:
        """Cache the state that Redis has written, and adjust the clock to its time."""
        if view is not None:
            self._cache.learn_answer(plan.key, view, now_us)
        self._clock.learn(now_us)
