"""Replicas that are subscribed to the breakers of a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.breaker import State
from webhook.core.quota import CounterPlan
from webhook.ports import Clock, StoreReports
from webhook.ports.store_url import StoreFiles

CHANNEL = "podgate:v1:test:breakers"
NO_FILES = StoreFiles()


class Replica:
    """A subscribed store, and its reports."""

    def __init__(self, url: str, files: StoreFiles = NO_FILES, clock: Clock | None = None) -> None:
        self.troubles: list[str] = []
        self.over: list[str] = []
        self.store = RedisStore(
            open_transport(url, files),
            "test",
            clock or SystemClock(),
            StoreReports(int, str, str),
            deadline_seconds=30,
            announcement_reports=StoreReports(
                int, lambda failure: self.troubles.append(str(failure)), lambda failure: self.over.append(str(failure))
            ),
        )

    def breaker_state(self, plan: CounterPlan) -> State | None:
        view = self.store.find_last_breaker(plan)
        return view.state if view is not None else None


@asynccontextmanager
async def run_subscribed_replica(
    url: str, files: StoreFiles = NO_FILES, clock: Clock | None = None
) -> AsyncIterator[Replica]:
    replica = Replica(url, files, clock)
    following = asyncio.create_task(replica.store.follow())
    try:
        yield replica
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await replica.store.close()


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition of another process, or of a task without an event."""
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  see above
            await asyncio.sleep(0.01)


async def wait_until_subscribed(*servers: RedisServer, count: int = 1) -> None:
    """Wait until these servers together have this many subscribers."""

    def is_complete() -> bool:
        return sum(int(server.cli("PUBSUB", "NUMSUB", CHANNEL)[1]) for server in servers) >= count

    await wait_until(is_complete)
