"""Each error of a Redis, made on a real one: decisions of each rule, reports, and recovery.

| trouble | told as | while it lasts |
|---|---|---|
| refused: nobody listens, and the data are gone | `unreachable`, a loss | each service goes by its rule |
| blackholed: packets vanish | `timeout` | each service goes by its rule |
| slow: answers come after the deadline | `timeout` | each service goes by its rule |
| paused: the process stands still | `timeout` | each service goes by its rule |
| restarted, with its data and without scripts | `unreachable`, a loss | each service goes by its rule |
| failed over: a replica is promoted | `unreachable`, a loss | each service goes by its rule |
| full: `maxmemory` is reached | `full` | each service goes by its rule |
| read-only: it has become a replica | `readonly` | each service goes by its rule |
| wrong password after rotation | `authentication` | each service goes by its rule |
| one service's record is broken | `script` | that service goes by its rule |
| flushed | a loss | the store answers, within shares |
| scripts flushed | nothing | the store answers |

Afterwards the counters are as if nothing had been, but for what is older than a minute and was lost.
By its rule: Local admits up to this replica's share, Allow everybody, Deny nobody (503). None of them waits, but for
the first.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import Field, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.harness.records import policy
from tests.redis_servers import RedisCluster, RedisProgram, RedisServer, SentinelGroup, names, program
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.app.store import open_store
from webhook.app.telemetry import Telemetry
from webhook.core.policy_spec import WhenStoreUnavailable
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt
from webhook.errors import StoreUnavailableError
from webhook.ports.store_url import StoreFiles
from webhook.settings import Settings
from webhook.store import ReconcilerTiming, StoreFallback, fallback

pytest_plugins = ("tests.redis_servers.fixtures",)

BEFORE, HARD, DURING = 2, 6, 8
PLANS = {
    rule: replace(plan_of(window(600, pods=HARD)), service=str(rule), tag=str(rule), when_unavailable=rule)
    for rule in WhenStoreUnavailable
}
LOCAL, ALLOW, DENY = (PLANS[rule] for rule in WhenStoreUnavailable)
NO_FILES = StoreFiles()
_numbers = iter(range(10**9))


def _given(setting: Field[Any]) -> bool:
    return setting.metadata["default"] is not None


class World:
    """The store as a server wires it, and its metrics."""

    def __init__(self, url: str, files: StoreFiles, deadline_seconds: float) -> None:
        told = {
            **{item.name: item.metadata["read"](item.metadata["default"]) for item in fields(Settings) if _given(item)},
            **{f"store_{item.name}": getattr(files, item.name) for item in fields(StoreFiles)},
            "store": url,
            "store_deadline_seconds": deadline_seconds,
            "cluster": "test",
        }
        settings = Settings(**{item.name: told.get(item.name) for item in fields(Settings)})
        self.telemetry = Telemetry(settings, "0")
        self.telemetry.metrics.policy_loaded(policy(*(plan.service for plan in PLANS.values())))
        self.store = open_store(settings, self.telemetry, SystemClock())
        self.guard = cast("StoreFallback", self.store.counters)

    async def ask(self, plan: CounterPlan, *, peek: bool = False) -> Receipt | None:
        """Ask for one Pod; None where nobody judged it, and it is done as the service says."""
        request = Acquire(plan, "shop", f"uid-{next(_numbers)}", {"pods": 1}, "user:alice", peek=peek)
        try:
            return await self.guard.acquire(request)
        except StoreUnavailableError:
            if plan is ALLOW:
                self.store.book_later(request)
            return None

    async def used(self, plan: CounterPlan) -> int:
        return sum(use.used for use in (await self.guard.snapshot(plan)).uses[""])

    async def until_settled(self) -> None:
        """Let a server's seconds pass until the store answers for every service and nothing is owed."""
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                await asyncio.gather(self.guard.tick(list(PLANS.values())), return_exceptions=True)
                receipts = [await self.ask(plan, peek=True) for plan in PLANS.values()]
                answered = all(receipt is not None and not receipt.local for receipt in receipts)
                if answered and self.guard._reconciler._task is None and not self.telemetry.store_trouble:
                    return
                await asyncio.sleep(0.05)

    def metrics(self) -> dict[str, float]:
        lines = [line for line in self.telemetry.metrics.render().decode().splitlines() if line[0] != "#"]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def series(self, name: str) -> dict[str, float]:
        """Return a metric by its first label."""
        return {key.split('"')[1]: value for key, value in self.metrics().items() if key.startswith(f"{name}{{")}

    def told(self) -> set[str]:
        """Return the words of the troubles so far."""
        return {word for word, times in self.series("podgate_store_failures_total").items() if times}


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fallback, "ReconcilerTiming", lambda: ReconcilerTiming(longest_seconds=0.2, refund_after_seconds=0.3)
    )


@asynccontextmanager
async def world_on(url: str, files: StoreFiles = NO_FILES, deadline_seconds: float = 0.5) -> AsyncIterator[World]:
    world = World(url, files, deadline_seconds)
    await world.until_settled()
    try:
        yield world
    finally:
        await world.store.close()


@dataclass(frozen=True)
class Trouble:
    """What is done to a Redis, how it is undone, and the word it is told by."""

    word: str
    begin: Callable[[], Awaitable[object]]
    end: Callable[[], Awaitable[object]]
    loses: bool = False


def thread(call: Callable[..., object], *arguments: object) -> Callable[[], Awaitable[object]]:
    return partial(asyncio.to_thread, call, *arguments)


async def live_through(world: World, trouble: Trouble) -> None:
    """Admit before, during and after a trouble, and see that everything is as the table says."""
    for plan in PLANS.values():
        for _ in range(BEFORE):
            assert await world.ask(plan) is not None
    await trouble.begin()
    by_the_store = BEFORE
    while await world.ask(DENY) is not None:
        by_the_store += 1
    local = [await world.ask(LOCAL) for _ in range(DURING)]
    assert [receipt is not None and receipt.charged for receipt in local] == [True] * 4 + [False] * 4
    assert all(receipt is not None and receipt.local for receipt in local)
    assert local[-1] is not None
    assert local[-1].refused is DeniedBy.QUOTA
    assert [await world.ask(plan) for plan in (ALLOW, DENY) for _ in range(DURING)] == [None] * 2 * DURING
    assert world.series("podgate_store_fallback") == dict.fromkeys(("Local", "Allow", "Deny"), 1)
    assert world.metrics()["podgate_store_up"] == 0
    assert world.telemetry.store_mode == "Allow: Allow; Deny: Deny; Local: Local"
    await trouble.end()
    await world.until_settled()
    assert trouble.word in world.told()
    assert [await world.used(plan) for plan in PLANS.values()] == [HARD, BEFORE + DURING, by_the_store]
    assert world.series("podgate_store_fallback") == dict.fromkeys(("Local", "Allow", "Deny"), 0)
    assert world.metrics()["podgate_store_up"] == 1
    assert world.telemetry.store_mode == ""
    assert (world.metrics()["podgate_store_losses_total"] > 0) is trouble.loses
    after = await world.ask(LOCAL)
    assert after is not None
    assert (after.refused, after.local) == (DeniedBy.QUOTA, False)


async def test_refused(own_redis_server: RedisServer) -> None:
    async with world_on(own_redis_server.url) as world:
        trouble = Trouble("unreachable", thread(own_redis_server.kill), thread(own_redis_server.start), loses=True)
        await live_through(world, trouble)


class Hole:
    """A way to a server that packets vanish on, until they are let through again."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._open = asyncio.Event()
        self._open.set()
        self._passing: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for task in (ending := list(self._passing)):
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def swallow(self) -> None:
        self._open.clear()

    async def let_through(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", self._server.port)
        for one, other in ((reader, onward), (there, writer)):
            task = asyncio.create_task(self._pump(one, other))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(chunk)
        finally:
            writer.transport.abort()


async def test_blackholed(own_redis_server: RedisServer) -> None:
    async with Hole(own_redis_server) as hole, world_on(hole.url) as world:
        await live_through(world, Trouble("timeout", hole.swallow, hole.let_through))


async def test_slow(own_redis_server: RedisServer) -> None:
    async with world_on(own_redis_server.url) as world:
        begin = thread(own_redis_server.cli, "CLIENT", "PAUSE", "60000", "WRITE")
        await live_through(world, Trouble("timeout", begin, thread(own_redis_server.cli, "CLIENT", "UNPAUSE")))


async def test_paused(own_redis_server: RedisServer) -> None:
    async with world_on(own_redis_server.url) as world:
        await live_through(world, Trouble("timeout", thread(own_redis_server.pause), thread(own_redis_server.resume)))


async def test_restarted(redis_program: RedisProgram, tmp_path: Path) -> None:
    with RedisServer(redis_program, tmp_path / "redis", "--appendonly", "yes") as server:
        async with world_on(server.url) as world:
            # Another process answers: whatever it was told last may be lost, so that it is told again.
            await live_through(world, Trouble("unreachable", thread(server.stop), thread(server.start), loses=True))


async def test_failed_over(redis_program: RedisProgram, tmp_path: Path) -> None:
    with SentinelGroup(redis_program, tmp_path / "group") as group:
        async with world_on(group.url) as world:
            former = group.servers[0]
            trouble = Trouble("unreachable", thread(former.kill), thread(group.wait_for_failover, former), loses=True)
            await live_through(world, trouble)


async def test_full(own_redis_server: RedisServer) -> None:
    async with world_on(own_redis_server.url) as world:
        begin, end = (thread(own_redis_server.cli, "CONFIG", "SET", "maxmemory", most) for most in ("1", "0"))
        await live_through(world, Trouble("full", begin, end))


async def test_read_only(own_redis_server: RedisServer) -> None:
    async with world_on(own_redis_server.url) as world:
        begin = thread(own_redis_server.cli, "REPLICAOF", "127.0.0.1", "1")
        await live_through(world, Trouble("readonly", begin, thread(own_redis_server.cli, "REPLICAOF", "NO", "ONE")))


async def test_wrong_password_after_rotation(redis_program: RedisProgram, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("former")
    with RedisServer(redis_program, tmp_path / "redis", "--requirepass", "former", password="former") as server:

        def rotate() -> None:
            server.cli("CONFIG", "SET", "requirepass", "today")
            server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes", password="today")

        async with world_on(server.url, StoreFiles(password_file=password)) as world:
            await live_through(world, Trouble("authentication", thread(rotate), thread(password.write_text, "today")))


async def test_flushed(own_redis_server: RedisServer) -> None:
    async with world_on(own_redis_server.url) as world:
        for _ in range(BEFORE):
            assert await world.ask(LOCAL) is not None
        own_redis_server.cli("FLUSHALL")
        later = await world.ask(LOCAL)
        assert later is not None
        assert (later.charged, later.local) == (True, False)
        await world.until_settled()
        assert await world.used(LOCAL) == BEFORE + 1
        assert world.metrics()["podgate_store_losses_total"] == 1
        assert world.metrics()['podgate_booked_total{cause="Loss",service="Local"}'] == BEFORE
        assert world.told() == set()


async def test_scripts_flushed(own_redis_server: RedisServer) -> None:
    async with world_on(own_redis_server.url) as world:
        for _ in range(BEFORE):
            own_redis_server.cli("SCRIPT", "FLUSH")
            receipt = await world.ask(LOCAL)
            assert receipt is not None
            assert (receipt.charged, receipt.local) == (True, False)
        await world.until_settled()
        assert await world.used(LOCAL) == BEFORE
        assert world.told() == set()
        assert world.metrics()["podgate_store_losses_total"] == 0


async def test_a_service_with_a_broken_record_goes_by_its_rule_alone(own_redis_server: RedisServer) -> None:
    async with world_on(own_redis_server.url) as world:
        await world.ask(LOCAL)
        own_redis_server.cli("DEL", "podgate:{Local}:v1:test:ring:Local")
        own_redis_server.cli("SET", "podgate:{Local}:v1:test:ring:Local", "not a hash")
        broken = await world.ask(LOCAL)
        assert broken is not None
        assert broken.local
        fine = await world.ask(DENY)
        assert fine is not None
        assert fine.charged
        assert world.told() == {"script"}
        assert world.metrics()["podgate_store_up"] == 1
        assert world.series("podgate_store_fallback") == {"Local": 1}
        own_redis_server.cli("DEL", "podgate:{Local}:v1:test:ring:Local")
        await world.until_settled()
        assert not any(world.series("podgate_store_fallback").values())
        assert await world.used(LOCAL) >= 1


async def test_a_node_of_a_cluster_that_is_gone_concerns_its_own_services_alone(tmp_path: Path) -> None:
    with RedisCluster(program(names()[0]), tmp_path / "cluster", "--cluster-require-full-coverage", "no") as cluster:
        by_node = {}
        for number in range(100):
            plan = replace(DENY, tag=f"tag-{number}", windows=(window(600, pods=10_000),))
            by_node.setdefault(cluster.owner(plan.tag).port, plan)
        hit, *others = by_node.values()
        assert len(others) == 2
        async with world_on(cluster.url) as world:
            for plan in (hit, *others):
                assert await world.ask(plan) is not None
            node = cluster.owner(hit.tag)
            node.kill()
            while await world.ask(hit) is not None:
                pass
            for _ in range(20):
                assert await world.ask(hit) is None
                for plan in others:
                    assert await world.ask(plan) is not None
            node.start()
            async with asyncio.timeout(HANG_SECONDS):
                while await world.ask(hit) is None:  # noqa: ASYNC110  what is waited for is a server
                    await asyncio.sleep(0.01)
            for plan in others:
                assert await world.ask(plan) is not None


async def test_counters_lost_in_a_failover_admit_no_pod_beyond_the_limit(tmp_path: Path) -> None:
    """The replica stands still while Pods come in, so that none of them reaches it before it is promoted."""
    hard, kept = 20, 5
    plan = replace(DENY, windows=(window(600, pods=hard),))
    with SentinelGroup(program(names()[0]), tmp_path / "group") as group:
        async with world_on(group.url) as world:
            former, replica = group.servers
            for _ in range(kept):
                assert await world.ask(plan) is not None
            assert former.cli("WAIT", 1, 10_000) == 1
            replica.pause()
            former.cli("CLIENT", "KILL", "TYPE", "replica")  # else the kernel would keep for it what comes now
            for _ in range(hard - kept):
                assert await world.ask(plan) is not None
            former.kill()
            replica.resume()
            await asyncio.to_thread(group.wait_for_failover, former)
            again = 0
            async with asyncio.timeout(HANG_SECONDS):
                while (receipt := await world.ask(plan)) is None:  # noqa: ASYNC110  what is waited for is a server
                    await asyncio.sleep(0.01)
                again += receipt.charged
                # As a server's seconds pass, with more Pods than there is room for.
                while world.metrics()["podgate_store_losses_total"] == 0:
                    for _ in range(5):
                        receipt = await world.ask(plan)
                        again += receipt is not None and receipt.charged
                    await asyncio.gather(world.guard.tick([plan]), return_exceptions=True)
            await world.until_settled()
            for _ in range(5):
                receipt = await world.ask(plan)
                assert receipt is not None
                assert receipt.refused is DeniedBy.QUOTA
            assert again == 0, "the loss is known before the new primary judges anybody"
            assert await world.used(plan) == hard
