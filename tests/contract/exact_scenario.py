"""A small set of services that share a pool: a store, the exact log and a witness."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from tests.contract.exact_log import ExactLog, TagTime
from tests.contract.exact_operations import (
    API,
    BATCH,
    NAMESPACES,
    POOL,
    POOLED,
    SECOND_US,
    SERVICES,
    SOLO,
    WEB,
    HandClock,
    Operation,
    Terms,
)
from tests.contract.witness import Witness
from tests.core.plans import plan_of
from webhook.core.quota import Acquire, Booking, Cost, CounterPlan, PoolGuarantees, PoolPlan, Receipt, canonicalize
from webhook.ports import CounterStore

_KEPT_US = 600 * SECOND_US
"""Expired events are kept this long for a clock that steps back; no result is guaranteed further back."""


@dataclass
class Scenario:
    """Every answer of the store is compared with the log, and passed to the witness.

    `name` separates scenarios in one store.
    """

    store: CounterStore
    clock: HandClock
    name: str = ""
    reports: list[str] = field(default_factory=list)
    """What the store reported besides its answers: nothing is expected."""
    log: ExactLog = field(default_factory=ExactLog)
    witness: Witness = field(default_factory=Witness)
    operations: list[Operation] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        self._terms = {
            SOLO: Terms({1: {"pods": 4}, 3: {"pods": 9, "cpu": 700}}),
            WEB: Terms({2: {"pods": 5, "memory": 90}}),
            API: Terms({1: {"pods": 3}, 64: {"pods": 20, "cpu": 1500}}, apart=True),
            BATCH: Terms({}),
            POOL: Terms({1: {"pods": 6}, 60: {"pods": 25, "cpu": 2000, "example.com/gpu": 5}}),
        }
        self._guaranteed: dict[tuple[int, str], dict[str, int]] = {
            (1, "pods"): {WEB: 2, API: 1},
            (60, "pods"): {WEB: 8, BATCH: 3},
            (60, "cpu"): {API: 700},
        }
        """Guarantees in the pool, by seconds and resource, and by service."""
        self._fleet = {SOLO: False, POOL: False}
        self._uids: list[str] = []
        self._swept: dict[tuple[str, bool], tuple[TagTime, int]] = {}
        """The clocks of each tag, and the latest time by which anything was swept."""
        self._plans: dict[str, CounterPlan] = {}
        self._plan_all()

    async def do(self, operation: Operation) -> None:
        """Do one operation, then compare a snapshot of its service."""
        self.operations.append(operation)
        name, *arguments = operation
        method: Callable[..., Any] = getattr(self, f"_{name}")
        await method(*arguments)
        service = next((argument for argument in arguments if argument in SERVICES), SERVICES[len(self.operations) % 4])
        await self._look(service, NAMESPACES[len(self.operations) % 3])
        assert self.reports == []

    async def _look(self, service: str, namespace: str) -> int:
        self.calls += 1
        expected = self.log.snapshot(self._plans[service], namespace, self.clock.now_us())
        snapshot = await self.store.snapshot(self._plans[service], namespace)
        assert snapshot == expected, f"looked:\n{snapshot}\nlogged:\n{expected}"
        return snapshot.at_us

    async def _ask(self, service: str, namespace: str, uid: int, cost: Cost, peek: bool) -> None:  # noqa: FBT001
        await self._acquire([self._request(service, namespace, self._make_uid(uid), cost, peek=peek)])

    async def _again(self, service: str, namespace: str, index: int, cost: Cost, peek: bool) -> None:  # noqa: FBT001
        await self._acquire([self._request(service, namespace, self._find_uid(index), cost, peek=peek)])

    async def _burst(self, service: str, namespace: str, uid: int, cost: Cost, size: int) -> None:
        """Ask for several at one moment, of the pool's other services too; one twice, and one with a peek."""
        services = (service,) if service == SOLO else (service, WEB, API)
        requests = [
            self._request(services[n % len(services)], namespace, self._make_uid(uid + n), cost, peek=n == size // 2)
            for n in range(size)
        ]
        again = self._request(service, namespace, requests[0].uid, {"pods": 1})
        await self._acquire([*requests, again])

    async def _storm(self, seconds: int, nudge: int, bucket: int, service: str, cost: Cost) -> None:
        """Ask until nothing fits, at a bucket's edge, plus or minus 1 us; and once more a window later, by buckets."""
        await self._edge(seconds, 0, nudge)
        for after in (0, bucket):
            self.clock.true_us += after * seconds * 15_625
            uids = (self._make_uid(30_000 + self.calls * 10 + n) for n in range(6))
            await self._acquire([self._request(service, "x", uid, cost) for uid in uids])

    async def _resize(
        self,
        service: str,
        namespace: str,
        index: int,
        old: Cost,
        new: Cost,
        peek: bool,  # noqa: FBT001
    ) -> None:
        request = self._request(service, namespace, self._find_uid(index), new, peek=peek)
        await self._acquire([replace(request, resize_from=old)])

    async def _both_sides(self, service: str, namespace: str, cost: Cost) -> None:
        """Ask when a denied Pod will fit, and peek on both sides of that time."""
        request = self._request(service, namespace, f"{self.name}peek", cost, peek=True)
        free_at_us = (await self._acquire([request]))[0].free_at_us
        if not free_at_us:
            return
        true_us, reading_us = self.clock.true_us, self.clock.now_us()
        self.clock.true_us += free_at_us - 1 - reading_us
        (before,) = await self._acquire([request])
        self.clock.true_us += 1
        (after,) = await self._acquire([request])
        self.clock.true_us = true_us
        assert before.over, "it fits before"
        assert not after.over, "it does not fit then"

    async def _refund(self, service: str, index: int) -> None:
        """Refund twice; only the first may succeed."""
        uid, plan = self._find_uid(index), self._plans[service]
        expected = self.log.refund(plan, uid, self.clock.now_us())
        self.calls += 2
        assert await self.store.refund(plan, uid) is expected
        assert not await self.store.refund(plan, uid), "refunded a second time"
        if expected:
            self.witness.forget_charge(plan, uid)

    async def _book(self, service: str, namespace: str, index: int, cost: Cost, ago_us: int) -> None:
        await self._check_bookings(
            service, [Booking(namespace, self._find_uid(index), cost, self.clock.now_us() - ago_us)]
        )

    async def _book_new(self, service: str, namespace: str, uid: int, cost: Cost, ago_us: int) -> None:
        """Book three at once, one of them twice."""
        at_us = self.clock.now_us() - ago_us
        names = [self._make_uid(20_000 + uid + n) for n in (0, 1, 0)]
        await self._check_bookings(service, [Booking(namespace, name, cost, at_us - n) for n, name in enumerate(names)])

    async def _tick(self) -> None:
        plans = tuple(self._plans.values())
        self.calls += 1
        assert list(await self.store.tick(plans)) == []
        for plan in plans:
            self.log.find_time(plan).advance(self.clock.now_us())
            for fleet in (False, True):
                time = self.log.find_time(replace(plan, fleet=fleet))
                _, latest_us = self._swept.get((plan.tag, fleet), (time, 0))
                self._swept[plan.tag, fleet] = time, max(latest_us, time.compute_tag_time(self.clock.now_us()))

    async def _change(self, changed: str, what: str, number: int) -> None:
        if what == "guarantee":
            keys = sorted(self._guaranteed)
            parties = self._guaranteed[keys[number % len(keys)]]
            if parties.pop(changed, None) is None and changed in POOLED:
                parties[changed] = 1 + number % 5
        elif what == "fleet":
            tag = SOLO if changed == SOLO else POOL
            self._fleet[tag] = not self._fleet[tag]
        else:
            self._terms[changed].change(what, number)
        if not self._terms[POOL].windows:
            self._terms[POOL].windows[1] = {"pods": 1}  # a pool has at least one
        self._plan_all()

    async def _pause(self, us: int) -> None:
        self.clock.true_us += us

    async def _edge(self, seconds: int, buckets: int, nudge: int) -> None:
        """Advance to an edge of a window's buckets, by the pool's time, or to the microsecond before or after it."""
        width_us = seconds * 15_625
        now_us = self.log.find_time(self._plans[WEB]).compute_tag_time(self.clock.now_us())
        self.clock.true_us += -now_us % width_us + buckets * width_us
        self.clock.true_us += nudge if nudge >= 0 or now_us % width_us else 0

    async def _step_back(self, us: int) -> None:
        reading_us = self.clock.now_us() - us
        if all(time.compute_tag_time(reading_us) + _KEPT_US > swept_us for time, swept_us in self._swept.values()):
            self.clock.back_us += us

    async def _step_forward(self, us: int) -> None:
        self.clock.forward_us += us

    async def _stay_behind(self, service: str, back_us: int, waits_us: int) -> None:
        """Step back, and ask twice: at once, and about 10 s later, when waiting for the clock ends."""
        await self._step_back(back_us)
        for after_us in (0, waits_us):
            self.clock.true_us += after_us
            await self._ask(service, "x", 40_000 + len(self.operations), {"pods": 1}, peek=False)

    async def _acquire(self, requests: Sequence[Acquire]) -> list[Receipt]:
        """Ask all of them at once: Redis judges them in one script, in this order."""
        wall = self.clock.wall()
        expected = [self.log.acquire(request, wall.reading_us) for request in requests]
        self.calls += len(requests)
        receipts = await asyncio.gather(*(self.store.acquire(request) for request in requests))
        for request, receipt, (logged, amounts) in zip(requests, receipts, expected, strict=True):
            assert receipt == logged, f"{request.uid}:\n{receipt}\nlogged:\n{logged}"
            if receipt.over:
                self.witness.check_denial(request, receipt.over, wall)
            if receipt.charged:
                self.witness.record_charge(request, amounts, receipt, wall)
        return receipts

    async def _check_bookings(self, service: str, bookings: Sequence[Booking]) -> None:
        plan, wall = self._plans[service], self.clock.wall()
        at_us = await self._look(service, "")
        expected = [self.log.book(plan, booking, wall.reading_us) for booking in bookings]
        self.calls += 1
        assert await self.store.book(plan, bookings) == sum(moment is not None for moment in expected)
        for booking, moment in zip(bookings, expected, strict=True):
            if moment is not None:
                self.witness.record_booking(plan, booking, at_us, wall)

    def _request(self, service: str, namespace: str, uid: str, cost: Cost, *, peek: bool = False) -> Acquire:
        return Acquire(self._plans[service], namespace, uid, cost, "user:x", peek=peek)

    def _make_uid(self, number: int) -> str:
        self._uids.append(f"{self.name}{number}")
        return self._uids[-1]

    def _find_uid(self, index: int) -> str:
        """Return one of the latest uids."""
        return self._uids[-1 - index % len(self._uids)] if self._uids else f"{self.name}none"

    def _plan_all(self) -> None:
        guarantees = PoolGuarantees(
            {
                (seconds, canonicalize(resource)): tuple(
                    (f"{service}{self.name}", hard) for service, hard in parties.items()
                )
                for (seconds, resource), parties in self._guaranteed.items()
            }
        )
        windows = self._terms[POOL].build_plans()
        for service in SERVICES:
            of_service = tuple(guarantees.bind(window, f"{service}{self.name}") for window in windows)
            pool = PoolPlan(f"{POOL}{self.name}", of_service)
            terms, is_solo = self._terms[service], service == SOLO
            self._plans[service] = plan_of(
                *terms.build_plans(),
                service=f"{service}{self.name}",
                tag=f"{service}{self.name}" if is_solo else pool.name,
                per_namespace=terms.apart,
                quota_mode=terms.mode,
                remember_us=(90 if is_solo else 3600) * SECOND_US,
                fleet=self._fleet[SOLO if is_solo else POOL],
                pool=None if is_solo else pool,
            )
