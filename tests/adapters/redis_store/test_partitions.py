"""Two replicas on a real Redis, one of them repeatedly partitioned, against the rule of forks in docs/breaker.md.

Nothing is timed: each step waits for the state that it needs. `make soak` cuts fifty times (`PODGATE_TEST_OUTAGES`).
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count, cycle, islice
from pathlib import Path
from typing import Self

import pytest

from tests.cluster.tcp_relay import relay, reset
from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer, names, program
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.breaker import BreakerPlan, BreakerView, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.plans import ErrorRatePlan
from webhook.core.quota import Acquire
from webhook.errors import StoreUnavailableError
from webhook.fallback import FallbackReports, StoreFallback
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

ROUNDS = int(os.environ.get("PODGATE_TEST_OUTAGES", "6"))
LATE_US = 50_000
PLAN = plan_of(
    window(3600, pods=1_000_000),
    breaker=BreakerPlan(
        has_outcomes=True,
        error_rate=ErrorRatePlan(percent=95, interval_us=100_000, consecutive=1, minimum=1),
        latency=None,
        quota=None,
        open_for_us=300_000,
        probes=1,
        probe_timeout_us=60_000_000,
    ),
)
TRIPPED = (State.OPEN, State.HALF_OPEN)
_numbers = count()


class Network:
    """The network between one replica and Redis; while it is cut, connections are reset."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._open: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            reset(writer)
            return
        self._open.add(writer)
        with suppress(OSError):
            await relay(reader, writer, self._address)
        self._open.discard(writer)

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._open:
            reset(writer)
        self._open.clear()

    def restore(self) -> None:
        self._is_cut = False


class Replica:
    """The parts of a server between its interceptor and Redis, for one service's breaker."""

    def __init__(self, network: Network) -> None:
        self.network = network

    async def __aenter__(self) -> Self:
        clock, quiet = SystemClock(), StoreReports(int, str, str)
        link = open_transport(f"redis://127.0.0.1:{self.network.port}")
        self.store = RedisStore(link, "test", clock, quiet, deadline_seconds=5, late_us=LATE_US)
        reports = FallbackReports(lambda *_: None, lambda *_: None, lambda: None, lambda _: None, lambda: None)
        self.guard = StoreFallback(self.store, clock, reports, replicas=2, late_us=LATE_US)
        self.store.on_loss, self.store.on_missed = self.guard.on_loss, self.guard.on_missed
        self.store.settled.owes = self.guard.owes
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.guard.close()
        await self.store.close()

    async def view(self) -> BreakerView:
        """Tick, and return this replica's view of the breaker."""
        with suppress(StoreUnavailableError):
            await self.guard.tick([PLAN])
        found = self.guard.find_last_breaker(PLAN)
        return found or BreakerView(State.CLOSED)

    async def trip(self) -> BreakerView:
        """Report failures until it opens."""

        async def fail_until_tripped() -> bool:
            with suppress(StoreUnavailableError):
                await self.guard.record_outcomes(PLAN, [Outcomes(0, 1, 0)])
            return (await self.view()).state in TRIPPED

        await wait_until(fail_until_tripped)
        return await self.view()

    async def close(self) -> BreakerView:
        """Let probes succeed until it closes."""

        async def probe_until_closed() -> bool:
            view = await self.view()
            if view.state is State.CLOSED:
                return True
            uid = f"uid-{next(_numbers)}"
            receipt = await self.guard.acquire(Acquire(PLAN, "shop", uid, {"pods": 1}, "user:alice"))
            if receipt.refused is None:
                with suppress(StoreUnavailableError):
                    await self.guard.record_outcomes(PLAN, [Outcomes(1, 0, 0)])
            return False

        await wait_until(probe_until_closed)
        return await self.view()


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not await holds():  # noqa: ASYNC110  it happens elsewhere
            await asyncio.sleep(0.02)


async def wait_for_agreement(one: Replica, other: Replica) -> BreakerView:
    """Wait until both are settled and show one breaker, which is Redis' own; return it."""

    async def are_alike() -> bool:
        mine, theirs = await one.view(), await other.view()
        settled = all(replica.guard._reconciler.is_settled(PLAN.tag) for replica in (one, other))
        return settled and (mine.state, mine.generation) == (theirs.state, theirs.generation)

    await wait_until(are_alike)
    return await one.view()


async def _trip_shared_and_close_isolated(shared: Replica, isolated: Replica) -> tuple[bool, int]:
    """Both begin open; the isolated one closes, trips and closes, so that its generation is ahead."""
    await isolated.close()
    await isolated.trip()
    await isolated.close()
    await shared.close()
    return True, (await shared.trip()).tripped_at_us


async def _trip_isolated(_: Replica, isolated: Replica) -> tuple[bool, int]:
    await isolated.close()
    return True, (await isolated.trip()).tripped_at_us


async def _close_shared_and_trip_isolated(shared: Replica, isolated: Replica) -> tuple[bool, int]:
    await isolated.close()
    await isolated.trip()
    return False, (await shared.close()).tripped_at_us


CASES = [
    _trip_shared_and_close_isolated,
    _trip_isolated,
    _close_shared_and_trip_isolated,
]


@asynccontextmanager
async def two_replicas(folder: Path) -> AsyncIterator[tuple[Replica, Replica]]:
    with RedisServer(program(names()[-1]), folder) as server:
        address = server.url.removeprefix("redis://").partition("/")[0]
        async with (
            Network(address) as network,
            Network(address) as other,
            Replica(network) as shared,
            Replica(other) as isolated,
        ):
            yield shared, isolated


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
async def test_replicas_agree_by_the_fork_rule_after_a_partition(
    tmp_path: Path, case: Callable[[Replica, Replica], Awaitable[tuple[bool, int]]]
) -> None:
    async with two_replicas(tmp_path / "redis") as (one, other):
        for shared, isolated in islice(cycle([(one, other), (other, one)]), -(-ROUNDS // len(CASES))):
            before = await shared.trip()
            assert (await wait_for_agreement(one, other)).tripped_at_us == before.tripped_at_us
            isolated.network.cut()
            is_open, tripped_at_us = await case(shared, isolated)
            isolated.network.restore()
            after = await wait_for_agreement(one, other)
            assert (after.state in TRIPPED, after.tripped_at_us) == (is_open, tripped_at_us)
            await shared.close()
            await wait_for_agreement(one, other)
