"""Counters compared: Podgate's store, a GCRA script and the library `limits`, under the same limits.

They do not promise the same. Podgate: never more than the limit in any trailing window, a uid charged once, all or
nothing. GCRA: a rate with a burst, up to twice the limit in a window; all or nothing. `limits`: a hit each limit, and
what was hit before a denial stays charged; its two-counter window admits beyond the limit, its moving one is exact and
holds an entry for each unit, so that only Pods can be counted by it: it is asked for one unit of each resource.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from limits import RateLimitItem, RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter, RateLimiter, SlidingWindowCounterRateLimiter
from redis.asyncio import Redis

from tests.core.plans import plan_of, window
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.quota import Acquire, Cost, CounterPlan
from webhook.ports import StoreReports

CALLERS = 16
NAMESPACE = "payments"
COST: Cost = {"pods": 1, "requests.cpu": 250, "requests.memory": 2**28}
WINDOWS_SECONDS = (60, 3_600, 86_400)
PLENTY = 10**7
FULL = 64
"""So many Pods fill a limit; not one of them leaves the longest window while a benchmark runs."""

GCRA = Path(__file__).with_name("gcra.lua").read_text()

_numbers = count()
"""Of uids: no two Pods of a run share one."""

Ask = Callable[[], Awaitable[Sequence[bool]]]


@dataclass(frozen=True)
class Case:
    """The limits, from the shortest window to the longest; where Pods are refused, only the last limit is full."""

    limits: int
    refused: bool

    @property
    def name(self) -> str:
        return f"{self.limits} limit{'s' if self.limits > 1 else ''}, {'refused' if self.refused else 'admitted'}"

    @property
    def hard(self) -> tuple[tuple[int, str, int], ...]:
        """Window in seconds, resource, and how many Pods there is room for."""
        pairs = [(seconds, resource) for seconds in WINDOWS_SECONDS for resource in COST][-self.limits :]
        room = [PLENTY] * (len(pairs) - 1) + [FULL if self.refused else PLENTY]
        return tuple((seconds, resource, pods) for (seconds, resource), pods in zip(pairs, room, strict=True))

    @property
    def plan(self) -> CounterPlan:
        """Return the same limits as a plan of Podgate's stores."""
        windows: dict[int, dict[str, int]] = {seconds: {} for seconds, _, _ in self.hard}
        for seconds, resource, pods in self.hard:
            windows[seconds][resource] = pods * COST[resource]
        shown = (window(seconds, **hard) for seconds, hard in windows.items())
        return plan_of(*shown, service=self.name.replace(" ", "-"))


CASES = tuple(Case(limits, refused) for limits in (1, len(WINDOWS_SECONDS) * len(COST)) for refused in (False, True))


@dataclass(frozen=True)
class Rival:
    """`ask` is called by `callers` at once, each time anew; it returns for each Pod whether it was admitted."""

    name: str
    case: Case
    ask: Ask
    callers: int = CALLERS
    pods_a_call: int = 1


@asynccontextmanager
async def podgate(url: str, case: Case, name: str = "podgate", callers: int = CALLERS) -> AsyncIterator[Rival]:
    """Several callers share a call of the script; one caller pays for all of it."""
    plan = case.plan

    async def ask() -> tuple[bool]:
        uid = f"00000000-0000-4000-8000-{next(_numbers):012}"
        return ((await store.acquire(Acquire(plan, NAMESPACE, uid, COST, "user:x"))).charged,)

    reports = StoreReports(lambda: None, _stop, lambda _: None)
    store = RedisStore(open_transport(url), "bench", SystemClock(), reports, deadline_seconds=10)
    try:
        yield Rival(name, case, ask, callers)
    finally:
        await store.close()


def _stop(trouble: str) -> None:
    raise SystemExit(f"error: podgate's store: {trouble}")


@asynccontextmanager
async def gcra(url: str, case: Case, pods_a_call: int = 1) -> AsyncIterator[Rival]:
    """Ask for one Pod a call, or for several in one pipeline, as who batches would."""
    keys = [f"gcra:{case.name}:{pods_a_call}:{seconds}:{resource}" for seconds, resource, _ in case.hard]
    told = [
        figure
        for seconds, resource, pods in case.hard
        for figure in (pods * COST[resource], seconds * 1_000_000, COST[resource])
    ]

    async def ask_one() -> tuple[bool]:
        return (await client.evalsha(sha, len(keys), *keys, *told) == 0,)

    async def ask_several() -> list[bool]:
        pipeline = client.pipeline(transaction=False)
        for _ in range(pods_a_call):
            pipeline.evalsha(sha, len(keys), *keys, *told)
        return [wait_us == 0 for wait_us in await pipeline.execute()]

    async with Redis.from_url(url) as client:
        sha = await client.script_load(GCRA)
        if pods_a_call == 1:
            yield Rival("gcra", case, ask_one)
        else:
            yield Rival("gcra, in pipelines", case, ask_several, CALLERS // pods_a_call, pods_a_call)


@asynccontextmanager
async def limits_moving(url: str, case: Case) -> AsyncIterator[Rival]:
    hits = [
        (RateLimitItemPerSecond(pods, seconds), f"moving:{case.name}:{resource}", 1)
        for seconds, resource, pods in case.hard
    ]
    async with _storage(url) as storage:
        yield Rival("limits, moving", case, _hits(MovingWindowRateLimiter(storage), hits))


@asynccontextmanager
async def limits_two_counters(url: str, case: Case) -> AsyncIterator[Rival]:
    hits = [
        (RateLimitItemPerSecond(pods * COST[resource], seconds), f"sliding:{case.name}:{resource}", COST[resource])
        for seconds, resource, pods in case.hard
    ]
    async with _storage(url) as storage:
        yield Rival("limits, two counters", case, _hits(SlidingWindowCounterRateLimiter(storage), hits))


def _hits(limiter: RateLimiter, hits: Sequence[tuple[RateLimitItem, str, int]]) -> Ask:
    """Return what hits each limit in turn until one has no room."""

    async def ask() -> tuple[bool]:
        for item, name, cost in hits:
            if not await limiter.hit(item, name, cost=cost):
                return (False,)
        return (True,)

    return ask


@asynccontextmanager
async def _storage(url: str) -> AsyncIterator[RedisStorage]:
    async with Redis.from_url(url) as client:
        ours: dict[str, Any] = {"connection_pool": client.connection_pool}  # so that it is closed
        yield RedisStorage(url, implementation="redispy", **ours)


@asynccontextmanager
async def rivals(url: str, case: Case) -> AsyncIterator[list[Rival]]:
    """Yield all of them on one Redis, Podgate first."""
    async with (
        podgate(url, case) as own,
        podgate(url, case, "podgate, one caller", callers=1) as alone,
        gcra(url, case) as single,
        gcra(url, case, CALLERS) as pipelined,
        limits_two_counters(url, case) as two_counters,
        limits_moving(url, case) as moving,
    ):
        yield [own, alone, single, pipelined, two_counters, moving]
