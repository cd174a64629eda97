"""In-memory store of one process: counters, breakers and uid records. No operation awaits, so each is atomic."""

from collections.abc import Mapping, Sequence

from webhook.core import breaker as machine
from webhook.core.breaker import BreakerView, State, Transition
from webhook.core.breaker.outcome_types import Outcomes, Settlement, Start
from webhook.core.breaker.record import BreakerEnvironment
from webhook.core.ledger import breaker_operations, group_charge, operations, store_time
from webhook.core.ledger import observed_pods as rolls
from webhook.core.ledger.breaker_operations import BreakerScript
from webhook.core.ledger.tag_state import TagState
from webhook.core.quota import (
    Acquire,
    AcquireGroup,
    Booking,
    Cost,
    CounterPlan,
    PoolPod,
    Receipt,
    Seen,
    ServiceSnapshot,
    Sighting,
    UnseenPod,
)
from webhook.ports import Clock

_TAGS_PER_TICK_MAX = 100
"""Tags swept per tick. Expired entries do not count even before they are swept."""


class MemoryStore:
    """Store without persistence. It drops a service that left the policy once none of its charges count.

    `late_us`: grace period for late outcomes after the end of an interval.
    """

    def __init__(self, clock: Clock, *, late_us: int = 0) -> None:
        self._clock = clock
        self._around = BreakerEnvironment(late_us, self._count_open)
        self._states: dict[str, TagState] = {}
        self._empty = TagState(self._around)
        """Of every tag that has none; only read."""
        self._unswept: list[str] = []
        self._guarded: tuple[CounterPlan, ...] = ()

    async def acquire(self, request: Acquire) -> Receipt:
        return operations.acquire(self._find_state(request.plan, keep=not request.peek), request, self._clock.now_us())

    async def acquire_group(self, request: AcquireGroup) -> Receipt:
        return group_charge.acquire_group(self._find_state(request.plan, keep=True), request, self._clock.now_us())

    async def find_charged_us(self, request: Acquire) -> int | None:
        """Return when a Pod was charged; None if it was not, or was refunded."""
        return operations.find_charged_us(self._find_state(request.plan), request, self._clock.now_us())

    async def withdraw(self, request: Acquire, charged_us: int | None) -> bool:
        return operations.withdraw(self._find_state(request.plan), request, charged_us, self._clock.now_us())

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        return operations.refund(self._find_state(plan), plan, uid, self._clock.now_us())

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        state, now_us = self._find_state(plan, keep=True), self._clock.now_us()
        return sum([operations.book(state, plan, booking, now_us) for booking in bookings])

    async def observe(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        state, now_us = self._find_state(plan, keep=True), self._clock.now_us()
        return [rolls.observe(state, plan, seen, now_us) for seen in sightings]

    async def list_overdue(self, plan: CounterPlan, age_us: int, most: int) -> Sequence[UnseenPod]:
        return rolls.overdue(self._find_state(plan), plan, age_us, most, self._clock.now_us())

    async def stop_waiting(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        state, now_us = self._find_state(plan), self._clock.now_us()
        for uid in uids:
            rolls.stop_waiting(state, plan, uid, now_us)

    async def list_scopes(self, plan: CounterPlan) -> Sequence[str]:
        return sorted(self._find_state(plan).live_pods.list_scopes(plan))

    async def list_live(
        self,
        plan: CounterPlan,
        scope: str,
        after: str = "",  # noqa: ARG002  all are on one page
    ) -> tuple[Mapping[str, Cost], str]:
        return rolls.live(self._find_state(plan), plan, scope, self._clock.now_us()), ""

    async def mark_complete(self, plan: CounterPlan, scopes: Sequence[str]) -> None:
        rolls.mark_complete(self._find_state(plan, keep=True), plan, scopes, self._clock.now_us())

    async def list_pool_live(
        self,
        plan: CounterPlan,
        after: str = "",  # noqa: ARG002  all are on one page
    ) -> tuple[Sequence[PoolPod], str]:
        return rolls.live_of_pool(self._find_state(plan), plan, self._clock.now_us()), ""

    async def mark_pool_complete(self, plan: CounterPlan) -> None:
        rolls.mark_pool_complete(self._find_state(plan, keep=True), plan, self._clock.now_us())

    async def drop_pool_pods(self, plan: CounterPlan, pods: Sequence[PoolPod]) -> None:
        rolls.drop_pool_pods(self._find_state(plan), plan, pods, self._clock.now_us())

    async def reset(self, plan: CounterPlan, at_us: int, seconds: int | None = None) -> bool:
        return rolls.reset(self._find_state(plan, keep=True), plan, at_us, seconds, self._clock.now_us())

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        return breaker_operations.record_outcomes(
            self._find_state(plan, keep=True), plan, outcomes, self._clock.now_us()
        )

    async def record_starts(
        self, plan: CounterPlan, starts: Sequence[Start]
    ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
        state, now_us = self._find_state(plan), self._clock.now_us()
        results = [breaker_operations.started(state, plan, start, now_us) for start in starts]
        return [settlement for settlement, _ in results], [move for _, moves in results for move in moves]

    async def suppress_quota_events(self, plan: CounterPlan, sources: Sequence[str]) -> None:
        breaker_operations.suppress_quota_events(self._find_state(plan, keep=True), plan, sources, self._clock.now_us())

    async def apply_override(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        return breaker_operations.apply_override(
            self._find_state(plan, keep=True), plan, reset_at_us, self._clock.now_us()
        )

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        breaker_operations.propose(self._find_state(plan, keep=True), plan, view, self._clock.now_us())

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        return operations.snapshot(self._find_state(plan), plan, self._clock.now_us(), namespace)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        now_us = self._clock.now_us()
        self._guarded = tuple(plan for plan in plans if plan.breaker is not None and plan.breaker.open_max is not None)
        transitions: list[Transition] = []
        for plan in plans:
            state = self._states.get(plan.tag)
            if state is not None:
                transitions += breaker_operations.tick(state, plan, now_us)
        self._sweep(plans, now_us)
        return transitions

    def _sweep(self, plans: Sequence[CounterPlan], now_us: int) -> None:
        """Drop expired entries, a few tags at a time: all in one turn of the event loop would delay reviews."""
        self._unswept = self._unswept or list(self._states)
        tags, self._unswept = self._unswept[:_TAGS_PER_TICK_MAX], self._unswept[_TAGS_PER_TICK_MAX:]
        ended = [tag for tag in tags if (state := self._states.get(tag)) is not None and state.sweep(now_us)]
        if ended:
            for tag in set(ended).difference(plan.tag for plan in plans):
                del self._states[tag]

    def find_known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        state = self._states.get(plan.tag)
        if state is None or plan.breaker is None:
            return None
        if state.find_breaker(plan.service).state is State.CLOSED and plan.breaker.forcing is None:
            return None  # `acquire` decides whether it is about to trip, as the Redis script does
        clock = state.find_clock(plan)
        return store_time.convert_view(clock, BreakerScript(state, plan, clock.now(self.now_us())).view())

    def find_last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        state = self._states.get(plan.tag) or self._empty  # a breaker without stored state has had no transition
        clock = state.find_clock(plan)
        breaker = store_time.convert_forcing(clock, plan.breaker)
        if breaker is None:
            return None
        return store_time.convert_view(
            clock, machine.build_view(state.find_breaker(plan.service), breaker, clock.now(self.now_us()))
        )

    def now_us(self) -> int:
        return self._clock.now_us()

    def _count_open(self) -> int:
        """Count the open breakers among those that breakerGuard counts, as of their last transition."""
        states = [(self._states.get(plan.tag), plan.service) for plan in self._guarded]
        return sum([state is not None and state.find_breaker(service).state.is_tripped for state, service in states])

    def _find_state(self, plan: CounterPlan, *, keep: bool = False) -> TagState:
        """Return the state of the plan's tag, or an empty one, which is stored only with `keep`."""
        state = self._states.get(plan.tag)
        if state is None:
            state = TagState(self._around)
            if keep:
                self._states[plan.tag] = state
        return state
