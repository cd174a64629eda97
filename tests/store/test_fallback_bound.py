"""Random outages, staggered recoveries and losses: total admissions compared with the documented bound."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.core.strategies import examples
from webhook.adapters.memory_store import MemoryStore
from webhook.core.policy_spec import WhenStoreUnavailable
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt, ServiceSnapshot
from webhook.errors import NoStoreAnswerError, StoreUnavailableError
from webhook.store import FallbackReports, ReconcilerTiming, StoreFallback

SECOND_US = 1_000_000
SECONDS, HARD = 32, 12
"""Shorter than the minute in which a loss is told again."""

TURNS = 40
"""Of the loop: enough for some rounds of settling."""


class HandClock:
    def __init__(self) -> None:
        self.us = 65_000 * SECOND_US

    def now_us(self) -> int:
        return self.us


class Way(MemoryStore):
    """One replica's way to a store that all share: it may be closed, or say that something was lost."""

    def __init__(self, number: int, ways: list["Way"], clock: HandClock) -> None:
        super().__init__(clock)
        if ways:
            self._states = ways[0]._states
        self._ways = ways
        self._number = number
        self.guard: StoreFallback
        self.away = False
        self.has_lost = False
        self.heard_of: set[int] | None = None
        """Who has shown that it owes nothing since this replica asked."""
        ways.append(self)

    def _reach(self, plan: CounterPlan) -> None:
        if self.away:
            raise NoStoreAnswerError("away", sent=False)
        if not self.has_lost and not self.guard.owes(plan.tag):
            for way in self._ways:
                if way is not self and way.heard_of is not None:
                    way.heard_of.add(self._number)

    def _notice(self) -> None:
        if self.has_lost:
            self.has_lost = False
            self.guard.lost()

    async def acquire(self, request: Acquire) -> Receipt:
        self._reach(request.plan)
        receipt = await super().acquire(request)
        self._notice()
        return receipt

    async def knows(self, plan: CounterPlan, uid: str) -> bool:
        self._reach(plan)
        return await super().knows(plan, uid)

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        self._reach(plan)
        return await super().refund(plan, uid)

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        self._reach(plan)
        return await super().book(plan, bookings)

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        self._reach(plan)
        self._notice()
        return await super().snapshot(plan, namespace)

    async def others_settled(self, plan: CounterPlan, *, afresh: bool) -> int:
        self._reach(plan)
        self._notice()
        if afresh or self.heard_of is None:
            self.heard_of = set()
        return len(self.heard_of)


class Life:
    """Replicas of one store, and who came in when."""

    def __init__(self, replicas: int, rule: WhenStoreUnavailable) -> None:
        self.plan = replace(plan_of(window(SECONDS, pods=HARD)), when_unavailable=rule)
        self.clock = HandClock()
        self.ways: list[Way] = []
        self.admitted: list[tuple[int, int]] = []
        self.pods = 0
        for number in range(replicas):
            way = Way(number, self.ways, self.clock)
            timing = ReconcilerTiming(0, 0, 0, 0, others_seconds=3600)
            reports = FallbackReports(_nothing, _nothing, _nothing, _nothing, _nothing)
            way.guard = StoreFallback(way, self.clock, reports, timing=timing, replicas=replicas, ordinal=number)

    async def ask(self, way: Way, amount: int) -> None:
        self.pods += 1
        request = Acquire(self.plan, "shop", f"uid-{self.pods}", {"pods": amount}, "user:alice")
        try:
            receipt = await way.guard.acquire(request)
        except StoreUnavailableError:
            return
        if receipt.refused is None:
            self.admitted.append((self.clock.us, amount))
            since_us = self.clock.us - SECONDS * SECOND_US
            inside = sum(amount for at_us, amount in self.admitted if at_us > since_us)
            largest = max(amount for _, amount in self.admitted)
            assert inside <= HARD + (len(self.ways) - 1) * largest

    async def all_hear(self) -> None:
        """Let each hear how much is used: what one has not heard of the others is not what is held here."""
        for way in self.ways:
            try:
                await way.guard.snapshot(self.plan)
            except StoreUnavailableError:
                continue

    async def do(self, operation: tuple[str, int, int]) -> None:
        kind, number, amount = operation
        way = self.ways[number % len(self.ways)]
        if kind == "ask":
            for _ in range(3 * amount):
                await self.ask(way, 1)
        elif kind == "ask for more":
            await self.ask(way, amount)
        elif kind == "pass":
            self.clock.us += amount * amount * SECOND_US
        elif kind == "turns":
            for _ in range(TURNS):
                await asyncio.sleep(0)
        elif kind == "return":
            way.away = False
        elif not any(way.away for way in self.ways):  # one that is away alone is another bound
            await self.begin(kind)

    async def begin(self, kind: str) -> None:
        """Take the store away from all, or have it lose everything."""
        await self.all_hear()
        if kind == "lose":
            self.ways[0]._states.clear()
        for way in self.ways:
            way.away, way.has_lost = kind == "away", kind == "lose"
            if way.away:
                way.guard.missed(self.plan)


def _nothing(*_: object) -> None:
    """Tell nobody."""


OPERATIONS = st.tuples(
    st.sampled_from(("ask", "ask", "ask", "ask for more", "pass", "turns", "turns", "away", "lose", "return")),
    st.integers(0, 2),
    st.integers(1, 4),
)


@given(
    replicas=st.integers(1, 3),
    rule=st.sampled_from((WhenStoreUnavailable.LOCAL, WhenStoreUnavailable.DENY)),
    operations=st.lists(OPERATIONS, max_size=80),
)
@examples(300)
def test_replicas_admit_no_more_than_the_limit_and_one_largest_pod_for_each_but_one(
    replicas: int, rule: WhenStoreUnavailable, operations: list[tuple[str, int, int]]
) -> None:
    async def live() -> None:
        life = Life(replicas, rule)
        for way in life.ways:
            await way.guard.tick([life.plan])
        for operation in operations:
            await life.do(operation)
        for way in life.ways:
            way.away = False
            await way.guard.close()

    asyncio.run(live())
