"""Replicas under load while a real Redis is killed, stopped, flushed and failed over, against an exact log.

Nothing is timed: a Pod was admitted at some time between the call and its answer, and only a window that surely holds
too many is an oversell. `make soak` makes fifty outages of 15 s (`PODGATE_TEST_OUTAGES`).
"""

import asyncio
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer, SentinelGroup, names, program
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.quota import Acquire
from webhook.errors import StoreUnavailableError
from webhook.fallback import FallbackReports, StoreFallback
from webhook.fallback.breaker_ticker import LATE_US
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

OUTAGES = int(os.environ.get("PODGATE_TEST_OUTAGES", "0"))
SECONDS, HARD, AWAY_SECONDS, PODS_A_SECOND = (10, 400, 15.0, 300) if OUTAGES else (2, 40, 3.0, 60)
DEADLINE_SECONDS = 0.5
"""Long enough that a slow machine is no outage."""

PLAN = plan_of(window(SECONDS, pods=HARD))
_numbers = count()


class Answer(NamedTuple):
    """One Pod: its replica, the latest time before its admission, and the earliest after it."""

    replica: int
    sent: float
    answered: float
    admitted: bool
    local: bool


class Outage(NamedTuple):
    """An outage: its earliest and latest beginning, its end, and the time when all replicas had settled."""

    began: float
    down: float
    ended: float
    settled: float


@dataclass
class Replica:
    """The parts of a server between its listener and Redis."""

    number: int
    replicas: int
    url: str
    log: list[Answer]
    lost: list[None] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        clock = SystemClock()
        quiet = StoreReports(int, str, str)
        link = open_transport(self.url)
        self.store = RedisStore(link, "test", clock, quiet, deadline_seconds=DEADLINE_SECONDS, late_us=LATE_US)
        reports = FallbackReports(
            _report_nothing, _report_nothing, _report_nothing, _report_nothing, lambda: self.lost.append(None)
        )
        self.guard = StoreFallback(
            self.store, clock, reports, replicas=self.replicas, ordinal=self.number, late_us=LATE_US
        )
        self.store.on_loss, self.store.on_missed = self.guard.on_loss, self.guard.on_missed
        self.store.settled.owes = self.guard.owes
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._ask_all())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.guard.close()
        await self.store.close()

    async def _tick(self) -> None:
        while True:
            with suppress(StoreUnavailableError):
                await self.guard.tick([PLAN])
            await asyncio.sleep(1)

    async def _ask_all(self) -> None:
        asking: set[asyncio.Task[None]] = set()
        try:
            while True:
                task = asyncio.create_task(self._ask())
                asking.add(task)
                task.add_done_callback(asking.discard)
                await asyncio.sleep(self.replicas / PODS_A_SECOND)
        finally:
            await asyncio.gather(*asking)

    async def _ask(self) -> None:
        sent = time.monotonic()
        receipt = await self.guard.acquire(Acquire(PLAN, "shop", f"uid-{next(_numbers)}", {"pods": 1}, "user:alice"))
        self.log.append(Answer(self.number, sent, time.monotonic(), receipt.charged, receipt.local))

    @property
    def is_settled(self) -> bool:
        return self.guard._reconciler.is_settled(PLAN.tag)


def _report_nothing(*_: object) -> None:
    """Report nothing."""


@dataclass
class LoadRun:
    """Replicas under load, their answers and their outages."""

    replicas: Sequence[Replica]
    log: list[Answer]
    outages: list[Outage] = field(default_factory=list)

    async def wait_until_settled(self, losses: int) -> None:
        """Wait until each replica has noticed this many losses, and has no debts."""
        async with asyncio.timeout(HANG_SECONDS):
            while not all(replica.is_settled and len(replica.lost) >= losses for replica in self.replicas):  # noqa: ASYNC110  it happens elsewhere
                await asyncio.sleep(0.01)

    async def run_outage(self, begin: Callable[[], object], end: Callable[[], object], *, loses: bool) -> None:
        lost = max(len(replica.lost) for replica in self.replicas)
        began = time.monotonic()
        await asyncio.to_thread(begin)
        down = time.monotonic()
        await asyncio.sleep(AWAY_SECONDS)
        await asyncio.to_thread(end)
        ended = time.monotonic()
        await self.wait_until_settled(lost + loses)
        self.outages.append(Outage(began, down, ended, time.monotonic()))
        await asyncio.sleep(SECONDS)

    def check_bound(self, *, outlasts_window: bool) -> None:
        """Compare the log with the bound of docs/redis.md, and check that the load continued.

        A share of a full window is empty: only in an outage longer than the window a replica surely has room.
        """
        most, bound = self.find_worst_window(), HARD + self.bound()
        figures = f"{len(self.outages)} outages, {len(self.replicas)} replicas, {len(self.log)} Pods asked"
        print(f"{figures}: at most {most} in {SECONDS} s, hard {HARD}, bound {bound}")  # noqa: T201  a measurement is for people
        taken = [outage.settled - outage.ended for outage in self.outages]
        print(f"settled after a median of {statistics.median(taken):.2f} s, {max(taken):.2f} s at most")  # noqa: T201  as above
        assert most <= bound
        for outage in self.outages:
            during = [
                request for request in self.log if outage.down <= request.sent and request.answered <= outage.settled
            ]
            assert during, "the load continued"
        assert any(request.local and (request.admitted or not outlasts_window) for request in self.log)
        assert any(
            request.admitted and not request.local and request.sent > self.outages[-1].settled for request in self.log
        )

    def find_worst_window(self) -> int:
        """Return the least number of Pods admitted in the worst trailing window."""
        admitted = sorted((request for request in self.log if request.admitted), key=lambda request: request.sent)
        most = 0
        for index, first in enumerate(admitted):
            inside = 0
            for request in admitted[index:]:
                if request.sent > first.sent + SECONDS:
                    break
                inside += request.answered <= first.sent + SECONDS
            most = max(most, inside)
        return most

    def bound(self) -> int:
        """Return how many Pods may exceed the limit: none with one replica."""
        others = len(self.replicas) - 1
        if not others:
            return 0
        return others + math.ceil(max(map(self._count_unseen, self.outages)) / len(self.replicas)) + self._alone()

    def _count_unseen(self, outage: Outage) -> int:
        """Return the admissions that replicas had not seen of each other when an outage began."""
        unseen = 0
        for replica in self.replicas:
            mine = [request.sent for request in self.log if request.replica == replica.number and not request.local]
            last = max(sent for sent in mine if sent <= outage.began)
            unseen += sum(
                request.admitted and not request.local and request.replica != replica.number
                for request in self.log
                if request.answered >= last and request.sent <= outage.down
            )
        return unseen

    def _alone(self) -> int:
        """Return the admissions without Redis outside of outages: on a stalled machine."""
        inside = [(outage.began, outage.settled) for outage in self.outages]
        alone = [request for request in self.log if request.local and request.admitted]
        return sum(not any(begun <= request.sent <= ended for begun, ended in inside) for request in alone)


class Replicas(AsyncExitStack):
    """Several replicas of one Redis, under load."""

    async def start(self, url: str, replicas: int) -> LoadRun:
        log: list[Answer] = []
        made = [Replica(number, replicas, url, log) for number in range(replicas)]
        for replica in made:
            await self.enter_async_context(replica)
        run = LoadRun(made, log)
        await asyncio.sleep(2)
        return run


@pytest.mark.parametrize(("replicas", "outages"), [(1, OUTAGES // 5 or 2), (2, OUTAGES * 3 // 5 or 3)])
async def test_replicas_admit_within_the_bound_through_redis_outages(
    tmp_path: Path, replicas: int, outages: int
) -> None:
    with RedisServer(program(names()[-1]), tmp_path / "redis") as server:
        operations: dict[str, tuple[Callable[[], object], Callable[[], object], bool]] = {
            "killed, and restarted empty": (server.kill, server.start, True),
            "stopped": (server.pause, server.resume, False),
            "flushed": (lambda: server.cli("FLUSHALL"), int, True),
        }
        async with Replicas() as stack:
            run = await stack.start(server.url, replicas)
            for begin, end, loses in islice(cycle(operations.values()), outages):
                await run.run_outage(begin, end, loses=loses)
        run.check_bound(outlasts_window=True)


async def test_replicas_admit_within_the_bound_through_a_redis_failover(tmp_path: Path) -> None:
    with SentinelGroup(program(names()[0]), tmp_path / "group") as group:
        async with Replicas() as stack:
            run = await stack.start(group.url, 2)
            for _ in range(OUTAGES // 5 or 1):
                former = group.primary
                await run.run_outage(former.kill, partial(group.wait_for_failover, former), loses=True)
                former.start()
                await asyncio.to_thread(group.wait_for_replica, former)
        run.check_bound(outlasts_window=False)  # Sentinel is quicker
