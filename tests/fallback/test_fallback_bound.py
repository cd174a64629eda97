"""Random outages, staggered recoveries and losses: total admissions compared with the documented bound."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.core.strategies import examples
from webhook.adapters.memory_store import MemoryStore
from webhook.core.policy_fields import WhenStoreUnavailable
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt, ServiceSnapshot
from webhook.errors import NoStoreAnswerError, StoreUnavailableError
from webhook.fallback import FallbackReports, ReconcilerTiming, StoreFallback

SECOND_US = 1_000_000
SECONDS, HARD = 32, 12
"""Shorter than the minute in which lost charges are booked again."""

TURNS = 40
"""Turns of the loop, enough for some rounds of settling."""


class HandClock:
    def __init__(self) -> None:
        self.us = 65_000 * SECOND_US

    def now_us(self) -> int:
        return self.us


class Connection(MemoryStore):
    """One replica's connection to a shared store: it may be unavailable, or report a loss."""

    def __init__(self, number: int, connections: list["Connection"], clock: HandClock) -> None:
        super().__init__(clock)
        if connections:
            self._states = connections[0]._states
        self._connections = connections
        self._number = number
        self.guard: StoreFallback
        self.is_away = False
        self.has_lost = False
        self.settled_others: set[int] | None = None
        """The replicas without debts since this one asked."""
        connections.append(self)

    def _reach(self, plan: CounterPlan) -> None:
        if self.is_away:
            raise NoStoreAnswerError("away", sent=False)
        if not self.has_lost and not self.guard.owes(plan.tag):
            for connection in self._connections:
                if connection is not self and connection.settled_others is not None:
                    connection.settled_others.add(self._number)

    def _notice(self) -> None:
        if self.has_lost:
            self.has_lost = False
            self.guard.on_loss()

    async def acquire(self, request: Acquire) -> Receipt:
        self._reach(request.plan)
        receipt = await super().acquire(request)
        self._notice()
        return receipt

    async def find_charged_us(self, request: Acquire) -> int | None:
        self._reach(request.plan)
        return await super().find_charged_us(request)

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

    async def count_settled_replicas(self, plan: CounterPlan, *, afresh: bool) -> int:
        self._reach(plan)
        self._notice()
        if afresh or self.settled_others is None:
            self.settled_others = set()
        return len(self.settled_others)


class Scenario:
    """Replicas of one store, and their admissions."""

    def __init__(self, replicas: int, rule: WhenStoreUnavailable) -> None:
        self.plan = replace(plan_of(window(SECONDS, pods=HARD)), when_unavailable=rule)
        self.clock = HandClock()
        self.connections: list[Connection] = []
        self.admitted: list[tuple[int, int]] = []
        self.pods = 0
        for number in range(replicas):
            connection = Connection(number, self.connections, self.clock)
            timing = ReconcilerTiming(0, 0, 0, 0, others_seconds=3600)
            reports = FallbackReports(_ignore, _ignore, _ignore, _ignore, _ignore)
            connection.guard = StoreFallback(
                connection, self.clock, reports, timing=timing, replicas=replicas, ordinal=number
            )

    async def ask(self, connection: Connection, amount: int) -> None:
        self.pods += 1
        request = Acquire(self.plan, "shop", f"uid-{self.pods}", {"pods": amount}, "user:alice")
        try:
            receipt = await connection.guard.acquire(request)
        except StoreUnavailableError:
            return
        if receipt.refused is None:
            self.admitted.append((self.clock.us, amount))
            since_us = self.clock.us - SECONDS * SECOND_US
            inside = sum(amount for at_us, amount in self.admitted if at_us > since_us)
            largest = max(amount for _, amount in self.admitted)
            assert inside <= HARD + (len(self.connections) - 1) * largest

    async def refresh_all(self) -> None:
        """Refresh each replica's snapshot: stale snapshots are not part of this bound."""
        for connection in self.connections:
            try:
                await connection.guard.snapshot(self.plan)
            except StoreUnavailableError:
                continue

    async def apply(self, operation: tuple[str, int, int]) -> None:
        kind, number, amount = operation
        connection = self.connections[number % len(self.connections)]
        if kind == "ask":
            for _ in range(3 * amount):
                await self.ask(connection, 1)
        elif kind == "ask for more":
            await self.ask(connection, amount)
        elif kind == "pass":
            self.clock.us += amount * amount * SECOND_US
        elif kind == "turns":
            for _ in range(TURNS):
                await asyncio.sleep(0)
        elif kind == "return":
            connection.is_away = False
        elif not any(
            connection.is_away for connection in self.connections
        ):  # a partition of one replica has another bound
            await self.begin(kind)

    async def begin(self, kind: str) -> None:
        """Make the store unavailable to all replicas, or lose all its data."""
        await self.refresh_all()
        if kind == "lose":
            self.connections[0]._states.clear()
        for connection in self.connections:
            connection.is_away, connection.has_lost = kind == "away", kind == "lose"
            if connection.is_away:
                connection.guard.on_missed(self.plan)


def _ignore(*_: object) -> None:
    """Report nothing."""


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
def test_admissions_stay_within_the_limit_plus_one_pod_per_other_replica(
    replicas: int, rule: WhenStoreUnavailable, operations: list[tuple[str, int, int]]
) -> None:
    async def run() -> None:
        scenario = Scenario(replicas, rule)
        for connection in scenario.connections:
            await connection.guard.tick([scenario.plan])
        for operation in operations:
            await scenario.apply(operation)
        for connection in scenario.connections:
            connection.is_away = False
            await connection.guard.close()

    asyncio.run(run())
