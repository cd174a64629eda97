"""StoreFallback before a store that a test makes unavailable, slow or forgetful; and the reports of both."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.harness.records import failure_of
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import BreakerView, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.policy_fields import WhenStoreUnavailable
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt, ServiceSnapshot
from webhook.errors import NoStoreAnswerError, StoreFault, StoreUnavailableError
from webhook.fallback import BookingCause, FallbackReports, ReconcilerTiming, StoreFallback

SECOND_US = 1_000_000
AHEAD_US = SECOND_US
"""The store's clock is a second ahead of the replica's."""

LOCAL = plan_of(window(64, pods=4))
ALLOW = replace(LOCAL, when_unavailable=WhenStoreUnavailable.ALLOW)
DENY = replace(LOCAL, when_unavailable=WhenStoreUnavailable.DENY)
NO_QUOTA = plan_of()
_numbers = iter(range(10**9))


class Clock:
    def __init__(self, at_us: int) -> None:
        self.us = at_us

    def now_us(self) -> int:
        return self.us


class SwitchableStore(MemoryStore):
    """A store that can be unavailable, can act without an answer, and can lose its state."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.settled_others = 1_000
        """How many other replicas have no debts."""
        self.others_requests: list[bool] = []
        self.on_acquire: Callable[[], None] = lambda: None
        """Called during an Acquire."""
        self.on_acquired: Callable[[], None] = lambda: None
        """Called before its answer arrives."""
        self.on_book: Callable[[], None] = lambda: None
        """Called with the first booking."""
        self.failure = ""
        self.drops_answers = False
        self.late: asyncio.Future[int | None] | None = None
        """Set: an Acquire gets no answer in time, and this is what its late answer says."""
        self.acquires = self.charged_us = 0
        self.withdrawn: list[str] = []

    def _check(self) -> None:
        if self.failure:
            raise NoStoreAnswerError(*failure_of(self.failure), sent=False)

    async def acquire(self, request: Acquire) -> Receipt:
        self.acquires += 1
        self.on_acquire()
        if self.drops_answers:
            await super().acquire(request)
            raise NoStoreAnswerError("no answer within 50 ms", StoreFault.TIMEOUT, sent=True)
        self._check()
        if self.late is not None:
            receipt = await super().acquire(request)
            self.charged_us = receipt.at_us if receipt.charged else 0
            raise NoStoreAnswerError("no answer within 50 ms", StoreFault.TIMEOUT, sent=True, charged_us=self.late)
        receipt = await super().acquire(request)
        self.on_acquired()
        return receipt

    def answer_late(self) -> None:
        """Let the answer to the last Acquire arrive; further ones are in time."""
        late, self.late = self.late, None
        assert late is not None
        late.set_result(self.charged_us)

    async def find_charged_us(self, request: Acquire) -> int | None:
        self._check()
        return await super().find_charged_us(request)

    async def count_settled_replicas(self, _: CounterPlan, *, afresh: bool) -> int:
        self._check()
        self.others_requests.append(afresh)
        return self.settled_others

    async def withdraw(self, request: Acquire, charged_us: int | None) -> bool:
        self._check()
        self.withdrawn.append(request.uid)
        return await super().withdraw(request, charged_us)

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        self._check()
        noticed, self.on_book = self.on_book, lambda: None
        noticed()
        return await super().book(plan, bookings)

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        self._check()
        return await super().snapshot(plan, namespace)

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        self._check()
        return await super().record_outcomes(plan, outcomes)

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        self._check()
        await super().propose(plan, view)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        self._check()
        return await super().tick(plans)

    def forget_all(self) -> None:
        self._states.clear()


class Simulation:
    """A guard before a store, and its reports."""

    def __init__(self) -> None:
        self.clock = Clock(10_000 * SECOND_US)
        self.store = SwitchableStore(Clock(self.clock.us + AHEAD_US))
        self.fallbacks: list[tuple[str, str, bool]] = []
        self.booked: list[tuple[str, BookingCause, int]] = []
        self.dropped = self.cached = self.lost = 0
        self.guard = self.build_guard()

    def build_guard(self, **share: Any) -> StoreFallback:
        def count(what: str) -> None:
            setattr(self, what, getattr(self, what) + 1)

        reports = FallbackReports(
            lambda *report: self.fallbacks.append(report),
            lambda *report: self.booked.append(report),
            lambda: count("dropped"),
            lambda _: count("cached"),
            lambda: count("lost"),
        )
        paces: dict[str, float] = {"others_seconds": 3600, "withdraw_after_seconds": 0, **share.pop("paces", {})}
        timing = ReconcilerTiming(first_seconds=1e-4, longest_seconds=1e-3, between_seconds=1e-4, **paces)
        return StoreFallback(share.pop("inner", self.store), self.clock, reports, timing=timing, **share)

    def sleep(self, seconds: float) -> None:
        self.clock.us += int(seconds * SECOND_US)
        self.store._clock.us += int(seconds * SECOND_US)  # type: ignore[attr-defined]

    async def ask(self, plan: CounterPlan = LOCAL, uid: str = "", **more: Any) -> Receipt:
        guard = more.pop("guard", self.guard)
        return await guard.acquire(self.request(plan, uid, **more))

    def request(self, plan: CounterPlan, uid: str = "", **more: Any) -> Acquire:
        cost = more.pop("cost", {"pods": 1})
        source = more.pop("event_source", "user:alice")
        return Acquire(plan, "shop", uid or f"uid-{next(_numbers)}", cost, source, **more)

    async def ask_unavailable(self, plan: CounterPlan, uid: str = "", *, admitted: bool, **more: Any) -> str:
        guard = more.pop("guard", self.guard)
        request = self.request(plan, uid, **more)
        with pytest.raises(StoreUnavailableError) as failed:
            await guard.acquire(request)
        if admitted:
            guard.book_later(request)
        return str(failed.value)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait while the guard's own tasks run."""
        while not condition():  # noqa: ASYNC110  the test waits for a turn of this loop
            await asyncio.sleep(1e-4)

    async def wait_until_settled(self) -> None:
        """Wait until no debt is left: the guard's own tasks have no other signal."""
        while self.guard._reconciler._task is not None:  # noqa: ASYNC110  the test waits for a turn of this loop
            await asyncio.sleep(1e-4)

    async def read_usage(self, plan: CounterPlan = LOCAL) -> list[int]:
        return [use.used for use in (await MemoryStore.snapshot(self.store, plan)).uses[""]]
