"""Replicas under load while Redis flaps around their deadline, against an exact log of what Redis wrote.

The log has every charge by Redis' own time, from MONITOR; our counters have no part in it. Nothing is timed: the order
of the calls decides what a replica had to know. `make soak` flaps for ten minutes (`PODGATE_TEST_FLAPPING`).
"""

import asyncio
import os
import random
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer, names, program
from tests.redis_servers.flapping_link import FlappingLink
from tests.redis_servers.record_log import Charge, RecordLog
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.policy_fields import WhenStoreUnavailable
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt
from webhook.errors import StoreUnavailableError
from webhook.fallback import FallbackReports, StoreFallback
from webhook.fallback.breaker_ticker import LATE_US
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

SOAK_SECONDS = float(os.environ.get("PODGATE_TEST_FLAPPING", "0"))
FLAPS_SECONDS, SECONDS, HARD = (SOAK_SECONDS, 10, 400) if SOAK_SECONDS else (8.0, 2, 80)
REVIEWS_A_SECOND = 120
TOGETHER = 1, 1, 2, 5, 20
"""How many Pods are created at once: a controller creates many."""
DEADLINE_SECONDS = 0.05
"""The server's default."""
STALL_SECONDS = 0.03, 0.4
PAUSE_SECONDS = 0.02, 0.3
RETRIED, LEFT = 0.2, 0.01
"""How many reviews without an answer of the store are sent again, to any replica; how many callers go away."""

DENY = plan_of(window(SECONDS, pods=HARD), when_unavailable=WhenStoreUnavailable.DENY)
LOCAL = replace(DENY, when_unavailable=WhenStoreUnavailable.LOCAL)


class Answer(NamedTuple):
    """The answer to one review. `receipt` is None for a denial without the store, and for a caller that has left."""

    uid: str
    replica: int
    answered_us: int
    receipt: Receipt | None
    has_left: bool = False

    @property
    def is_admitted(self) -> bool:
        return self.receipt is not None and self.receipt.refused is None

    @property
    def is_denied_by_redis(self) -> bool:
        return self.receipt is not None and self.receipt.refused is DeniedBy.QUOTA and not self.receipt.local


@dataclass
class Replica:
    """The parts of a server between its listener and Redis, on a link of its own."""

    number: int
    replicas: int
    plan: CounterPlan
    link: FlappingLink

    def __post_init__(self) -> None:
        clock = SystemClock()
        transport = open_transport(self.link.url)
        quiet = StoreReports(_report_nothing, _report_nothing, _report_nothing)
        self.store = RedisStore(transport, "test", clock, quiet, deadline_seconds=DEADLINE_SECONDS, late_us=LATE_US)
        reports = FallbackReports(_report_nothing, _report_nothing, _report_nothing, _report_nothing, _report_nothing)
        self.guard = StoreFallback(
            self.store, clock, reports, replicas=self.replicas, ordinal=self.number, late_us=LATE_US
        )
        self.store.on_loss, self.store.on_missed = self.guard.on_loss, self.guard.on_missed
        self.store.settled.owes = self.guard.owes

    async def tick(self) -> None:
        while True:
            with suppress(StoreUnavailableError):
                await self.guard.tick([self.plan])
            await asyncio.sleep(1)

    async def close(self) -> None:
        await self.guard.close()
        await self.store.close()


def _report_nothing(*_: object) -> None:
    """Report nothing."""


@dataclass
class Load:
    """Reviews of new Pods, and all answers to them."""

    plan: CounterPlan
    replicas: Sequence[Replica]
    dice: random.Random
    answers: list[Answer] = field(default_factory=list)
    last: dict[str, Answer] = field(default_factory=dict)
    """The last answer to each Pod: the one that counts."""

    async def run(self) -> None:
        numbers, asking = count(), set[asyncio.Task[None]]()
        try:
            while True:
                pods = self.dice.choice(TOGETHER)
                for _ in range(pods):
                    task = asyncio.create_task(self._create(f"uid-{next(numbers)}"))
                    asking.add(task)
                    task.add_done_callback(asking.discard)
                await asyncio.sleep(pods / REVIEWS_A_SECOND)
        finally:
            await asyncio.gather(*asking)

    def has_effect(self, log: RecordLog) -> bool:
        """Return whether a call was late, and Redis has denied a Pod, where the judge asks for it.

        On a busy machine the store waits for longer than its deadline: it may take more stalls until a call is late.
        """
        taken_back = (charge.taken_back_in is not None for charges in log.charges.values() for charge in charges)
        has_late = self.plan is not DENY or any(taken_back)
        return has_late and (len(self.replicas) > 1 or any(answer.is_denied_by_redis for answer in self.answers))

    async def _create(self, uid: str) -> None:
        answer = await self._review(uid)
        if answer.receipt is None and not answer.has_left and self.dice.random() < RETRIED:
            await asyncio.sleep(self.dice.random() / 10)
            answer = await self._review(uid)
        self.last[uid] = answer

    async def _review(self, uid: str) -> Answer:
        replica, leaves = self.dice.choice(self.replicas), self.dice.random() < LEFT
        receipt = None
        try:
            async with asyncio.timeout(self.dice.random() * DEADLINE_SECONDS if leaves else None):
                receipt = await replica.guard.acquire(Acquire(self.plan, "shop", uid, {"pods": 1}, "user:alice"))
        except StoreUnavailableError:
            leaves = False
        except TimeoutError:
            pass
        answer = Answer(uid, replica.number, time.time_ns() // 1000, receipt, leaves and receipt is None)
        self.answers.append(answer)
        return answer


@dataclass
class Judge:
    """Compares answers with the log of Redis' writes."""

    log: RecordLog
    load: Load
    links: Sequence[FlappingLink]

    def __post_init__(self) -> None:
        last = self.load.last
        kept = (charges[-1] for charges in self.log.charges.values() if charges[-1].taken_back_in is None)
        self.kept = sorted(kept, key=lambda charge: charge.charged_us)
        self.admitted = {uid for uid, answer in last.items() if answer.is_admitted}
        self.left = {uid for uid, answer in last.items() if answer.has_left}
        self.wrong = [
            charge
            for charges in self.log.charges.values()
            for charge in charges
            if charge.taken_back_in is not None or charge.uid not in self.admitted | self.left
        ]
        """Charges of Pods that were denied."""
        asked = Counter(answer.uid for answer in self.load.answers)
        self.shared = {charge.uid for charge in self.wrong if charge.taken_back_in is None and asked[charge.uid] > 1}
        """Denied by two replicas, both of which have found the charge: neither may take it back for the other."""

    def check_oversold(self) -> None:
        """Check that each admitted Pod is charged, and no window holds too many of them."""
        charged = {charge.uid: charge for charge in self.kept}
        missing = sorted(self.admitted - charged.keys())
        assert not missing, f"{len(missing)} admitted Pods are not charged: {missing[:5]}"
        times = sorted(self._find_admission_us(charged[uid]) for uid in self.admitted)
        window_us = SECONDS * 1_000_000
        most = max(bisect_left(times, first + window_us) - index for index, first in enumerate(times))
        print(f"{len(self.load.last)} Pods, {len(times)} admitted, at most {most} in {SECONDS} s, hard {HARD}")  # noqa: T201  a measurement is for people
        assert most <= HARD

    def _find_admission_us(self, charge: Charge) -> int:
        """Return when a Pod was admitted: by Redis' time if an acquire has charged it, else by that of its answer."""
        return self.load.last[charge.uid].answered_us if self.log.is_booked(charge) else charge.charged_us

    def check_denials(self) -> None:
        """Check that places of denied Pods are taken back, and until when they were counted against others."""
        kept_wrongly = [
            charge.uid for charge in self.wrong if charge.taken_back_in is None and charge.uid not in self.shared
        ]
        assert not kept_wrongly, f"{len(kept_wrongly)} denied Pods stay charged: {kept_wrongly[:5]}"
        denials = [answer for answer in self.load.answers if answer.is_denied_by_redis]
        without_cause = [denial for denial in denials if not self._has_cause(denial, is_excused=False)]
        worst = [denial for denial in without_cause if not self._has_cause(denial, is_excused=True)]
        lives = [charge.taken_back_us - charge.charged_us for charge in self.wrong if charge.taken_back_in is not None]
        print(  # noqa: T201  as above
            f"{len(self.wrong)} denied Pods were charged, for at most {max(lives, default=0) / 1e6:.3f} s; "
            f"{len(self.shared)} of two replicas stay charged"
        )
        print(f"{len(denials)} denials, {len(without_cause)} of them because of such Pods, {len(worst)} for too long")  # noqa: T201  as above
        assert not worst
        if self.load.plan is DENY:
            assert self.wrong, "Redis flaps"
        if len(self.links) == 1:
            assert denials, "the limit is reached"

    def _has_cause(self, denial: Answer, *, is_excused: bool) -> bool:
        """Return whether the limit was reached by Pods that were admitted, or by those that may count for a while.

        A denied Pod may count in the call that charges it, and for other replicas until the next call of its own.
        """
        assert denial.receipt is not None
        at_us = denial.receipt.at_us  # all charges of this call have the same time
        from_us, number = at_us - SECONDS * 1_015_625, self.log.find_call(at_us)
        first = bisect_right(self.kept, from_us, key=lambda charge: charge.charged_us)
        used = bisect_right(self.kept, at_us, key=lambda charge: charge.charged_us) - first
        for charge in self.wrong if is_excused else ():
            if from_us < charge.charged_us <= at_us and (charge.taken_back_in is None or charge.taken_back_in > number):
                used += charge.charged_us == at_us or self._may_count(charge, number, denial.replica)
        return used + 1 > HARD

    def _may_count(self, charge: Charge, number: int, replica: int) -> bool:
        """Return whether a replica that is not `replica` has charged a Pod, and has made no call since."""
        made = self.log.calls[charge.made_in]
        later = (call.client_port == made.client_port for call in self.log.calls[charge.made_in + 1 : number + 1])
        return charge.uid in self.shared or (
            made.client_port not in self.links[replica].client_ports and not any(later)
        )


async def flap(server: RedisServer, links: Sequence[FlappingLink], dice: random.Random, seconds: float) -> None:
    """Stall requests, answers or the server again and again, for all or for some of the replicas."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(dice.uniform(*PAUSE_SECONDS))
        stalled = [link for link in links if dice.random() < 0.7]
        kind = dice.choice(("requests", "answers", "both", "server"))
        if kind == "server":
            server.pause()
        for link in stalled:
            link.hold(requests=kind in {"requests", "both"}, answers=kind in {"answers", "both"})
        await asyncio.sleep(dice.uniform(*STALL_SECONDS))
        if kind == "server":
            server.resume()
        for link in stalled:
            link.let_pass()


@pytest.mark.parametrize(("plan", "replicas"), [(DENY, 1), (DENY, 3), (LOCAL, 1)], ids=("Deny-1", "Deny-3", "Local-1"))
async def test_flapping_redis_oversells_nothing_and_denied_pods_take_no_places(
    tmp_path: Path, plan: CounterPlan, replicas: int
) -> None:
    dice = random.Random(SOAK_SECONDS)  # noqa: S311  not for secrets
    with RedisServer(program(names()[-1]), tmp_path / "redis") as server:
        async with AsyncExitStack() as stack:
            log = await stack.enter_async_context(RecordLog(server.port, "shop/"))
            links = [await stack.enter_async_context(FlappingLink(server.port)) for _ in range(replicas)]
            made = [Replica(number, replicas, plan, link) for number, link in enumerate(links)]
            load = Load(plan, made, dice)
            tasks = [asyncio.create_task(work) for work in (load.run(), *(replica.tick() for replica in made))]
            await asyncio.sleep(1)
            await flap(server, links, dice, FLAPS_SECONDS)
            until = time.monotonic() + HANG_SECONDS
            while not load.has_effect(log) and time.monotonic() < until:
                await flap(server, links, dice, 1)
            tasks[0].cancel()
            await asyncio.wait(tasks[:1])
            async with asyncio.timeout(HANG_SECONDS):
                while any(replica.guard._reconciler.is_active for replica in made):  # noqa: ASYNC110  it happens elsewhere
                    await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for replica in made:
                await replica.close()
            await log.catch_up()
        judge = Judge(log, load, links)
        judge.check_oversold()
        judge.check_denials()
