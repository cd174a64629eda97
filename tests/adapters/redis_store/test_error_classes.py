"""Each error of a Redis, made on a real one: decisions of each rule, reports, and recovery.

| trouble | reported as | while it lasts |
|---|---|---|
| refused: no server listens, and the data are lost | `unreachable`, a loss | each service's rule applies |
| blackholed: packets vanish | `timeout` | each service's rule applies |
| slow: answers arrive after the deadline | `timeout` | each service's rule applies |
| paused: the process is stopped | `timeout` | each service's rule applies |
| restarted, with its data and without scripts | `unreachable`, a loss | each service's rule applies |
| failed over: a replica is promoted | `unreachable`, a loss | each service's rule applies |
| full: `maxmemory` is reached | `full` | each service's rule applies |
| read-only: it has become a replica | `readonly` | each service's rule applies |
| wrong password after rotation | `authentication` | each service's rule applies |
| one service's record is broken | `script` | that service's rule applies |
| flushed | a loss | the store answers, within shares |
| scripts flushed | nothing | the store answers |

Afterwards the counters are as without the trouble, but for lost data older than a minute.
Rules: Local admits up to this replica's share, Allow admits all Pods, Deny none (503). Only the first call waits.
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
from webhook.core.policy_fields import WhenStoreUnavailable
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt
from webhook.errors import StoreUnavailableError
from webhook.fallback import ReconcilerTiming, StoreFallback, fallback
from webhook.ports.store_url import StoreFiles
from webhook.settings import Settings

pytest_plugins = ("tests.redis_servers.fixtures",)

BEFORE, HARD, DURING = 2, 6, 8
PLANS = {
    rule: replace(plan_of(window(600, pods=HARD)), service=str(rule), tag=str(rule), when_unavailable=rule)
    for rule in WhenStoreUnavailable
}
LOCAL, ALLOW, DENY = (PLANS[rule] for rule in WhenStoreUnavailable)
NO_FILES = StoreFiles()
_numbers = iter(range(10**9))


def _has_default(setting: Field[Any]) -> bool:
    return setting.metadata["default"] is not None


class WiredStore:
    """The store as a server wires it, and its metrics."""

    def __init__(self, url: str, files: StoreFiles, deadline_seconds: float) -> None:
        values = {
            **{
                item.name: item.metadata["read"](item.metadata["default"])
                for item in fields(Settings)
                if _has_default(item)
            },
            **{f"store_{item.name}": getattr(files, item.name) for item in fields(StoreFiles)},
            "store": url,
            "store_deadline_seconds": deadline_seconds,
            "cluster": "test",
        }
        settings = Settings(**{item.name: values.get(item.name) for item in fields(Settings)})
        self.telemetry = Telemetry(settings, "0")
        self.telemetry.metrics.on_policy_loaded(policy(*(plan.service for plan in PLANS.values())))
        self.store = open_store(settings, self.telemetry, SystemClock())
        self.guard = cast("StoreFallback", self.store.counters)

    async def ask(self, plan: CounterPlan, *, peek: bool = False) -> Receipt | None:
        """Ask for one Pod; return None where the service's rule applies."""
        request = Acquire(plan, "shop", f"uid-{next(_numbers)}", {"pods": 1}, "user:alice", peek=peek)
        try:
            return await self.guard.acquire(request)
        except StoreUnavailableError:
            if plan is ALLOW:
                self.store.book_later(request)
            return None

    async def count_used(self, plan: CounterPlan) -> int:
        return sum(use.used for use in (await self.guard.snapshot(plan)).uses[""])

    async def wait_until_settled(self) -> None:
        """Run a server's ticks until the store answers for every service and no debt is left."""
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

    def list_reported_words(self) -> set[str]:
        """Return the words of the troubles reported so far."""
        return {word for word, times in self.series("podgate_store_failures_total").items() if times}


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fallback, "ReconcilerTiming", lambda: ReconcilerTiming(longest_seconds=0.2, withdraw_after_seconds=0.3)
    )


@asynccontextmanager
async def open_wired_store(
    url: str, files: StoreFiles = NO_FILES, deadline_seconds: float = 2.0
) -> AsyncIterator[WiredStore]:
    wired = WiredStore(url, files, deadline_seconds)
    await wired.wait_until_settled()
    try:
        yield wired
    finally:
        await wired.store.close()


@dataclass(frozen=True)
class Trouble:
    """A trouble of a Redis: how it begins and ends, and the word that is reported."""

    word: str
    begin: Callable[[], Awaitable[object]]
    end: Callable[[], Awaitable[object]]
    loses: bool = False


def thread(call: Callable[..., object], *arguments: object) -> Callable[[], Awaitable[object]]:
    return partial(asyncio.to_thread, call, *arguments)


async def check_fallback_and_recovery(wired: WiredStore, trouble: Trouble) -> None:
    """Admit before, during and after a trouble, and compare with the table."""
    for plan in PLANS.values():
        for _ in range(BEFORE):
            assert await wired.ask(plan) is not None
    await trouble.begin()
    by_the_store = BEFORE
    while await wired.ask(DENY) is not None:
        by_the_store += 1
    local = [await wired.ask(LOCAL) for _ in range(DURING)]
    assert [receipt is not None and receipt.charged for receipt in local] == [True] * 4 + [False] * 4
    assert all(receipt is not None and receipt.local for receipt in local)
    assert local[-1] is not None
    assert local[-1].refused is DeniedBy.QUOTA
    assert [await wired.ask(plan) for plan in (ALLOW, DENY) for _ in range(DURING)] == [None] * 2 * DURING
    assert wired.series("podgate_store_fallback") == dict.fromkeys(("Local", "Allow", "Deny"), 1)
    assert wired.metrics()["podgate_store_up"] == 0
    assert wired.telemetry.store_mode == "Allow: Allow; Deny: Deny; Local: Local"
    await trouble.end()
    await wired.wait_until_settled()
    assert trouble.word in wired.list_reported_words()
    assert [await wired.count_used(plan) for plan in PLANS.values()] == [HARD, BEFORE + DURING, by_the_store]
    assert wired.series("podgate_store_fallback") == dict.fromkeys(("Local", "Allow", "Deny"), 0)
    assert wired.metrics()["podgate_store_up"] == 1
    assert wired.telemetry.store_mode == ""
    assert (wired.metrics()["podgate_store_losses_total"] > 0) is trouble.loses
    after = await wired.ask(LOCAL)
    assert after is not None
    assert (after.refused, after.local) == (DeniedBy.QUOTA, False)


async def test_refused_connections_fall_back_and_recover(own_redis_server: RedisServer) -> None:
    async with open_wired_store(own_redis_server.url) as wired:
        trouble = Trouble("unreachable", thread(own_redis_server.kill), thread(own_redis_server.start), loses=True)
        await check_fallback_and_recovery(wired, trouble)


class LossyProxy:
    """A proxy that holds all packets to a server until they are released."""

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

    async def hold(self) -> None:
        self._open.clear()

    async def release(self) -> None:
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


async def test_lost_packets_fall_back_and_recover(own_redis_server: RedisServer) -> None:
    async with LossyProxy(own_redis_server) as proxy, open_wired_store(proxy.url) as wired:
        await check_fallback_and_recovery(wired, Trouble("timeout", proxy.hold, proxy.release))


async def test_slow_answers_fall_back_and_recover(own_redis_server: RedisServer) -> None:
    async with open_wired_store(own_redis_server.url) as wired:
        begin = thread(own_redis_server.cli, "CLIENT", "PAUSE", "60000", "WRITE")
        await check_fallback_and_recovery(
            wired, Trouble("timeout", begin, thread(own_redis_server.cli, "CLIENT", "UNPAUSE"))
        )


async def test_paused_process_falls_back_and_recovers(own_redis_server: RedisServer) -> None:
    async with open_wired_store(own_redis_server.url) as wired:
        await check_fallback_and_recovery(
            wired, Trouble("timeout", thread(own_redis_server.pause), thread(own_redis_server.resume))
        )


async def test_restart_falls_back_and_recovers(redis_program: RedisProgram, tmp_path: Path) -> None:
    with RedisServer(redis_program, tmp_path / "redis", "--appendonly", "yes") as server:
        async with open_wired_store(server.url) as wired:
            # Another process answers: the last writes may be lost, and are repeated.
            await check_fallback_and_recovery(
                wired, Trouble("unreachable", thread(server.stop), thread(server.start), loses=True)
            )


async def test_failover_falls_back_and_recovers(redis_program: RedisProgram, tmp_path: Path) -> None:
    with SentinelGroup(redis_program, tmp_path / "group") as group:
        async with open_wired_store(group.url) as wired:
            former = group.servers[0]
            trouble = Trouble("unreachable", thread(former.kill), thread(group.wait_for_failover, former), loses=True)
            await check_fallback_and_recovery(wired, trouble)


async def test_full_memory_falls_back_and_recovers(own_redis_server: RedisServer) -> None:
    async with open_wired_store(own_redis_server.url) as wired:
        begin, end = (thread(own_redis_server.cli, "CONFIG", "SET", "maxmemory", most) for most in ("1", "0"))
        await check_fallback_and_recovery(wired, Trouble("full", begin, end))


async def test_read_only_replica_falls_back_and_recovers(own_redis_server: RedisServer) -> None:
    async with open_wired_store(own_redis_server.url) as wired:
        begin = thread(own_redis_server.cli, "REPLICAOF", "127.0.0.1", "1")
        # A server that is promoted again may have taken over the data of another one meanwhile.
        end = thread(own_redis_server.cli, "REPLICAOF", "NO", "ONE")
        await check_fallback_and_recovery(wired, Trouble("readonly", begin, end, loses=True))


async def test_wrong_password_falls_back_and_recovers(redis_program: RedisProgram, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("former")
    with RedisServer(redis_program, tmp_path / "redis", "--requirepass", "former", password="former") as server:

        def rotate() -> None:
            server.cli("CONFIG", "SET", "requirepass", "today")
            server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes", password="today")

        async with open_wired_store(server.url, StoreFiles(password_file=password)) as wired:
            await check_fallback_and_recovery(
                wired, Trouble("authentication", thread(rotate), thread(password.write_text, "today"))
            )


async def test_flushed_data_are_a_loss_and_booked_again(own_redis_server: RedisServer) -> None:
    async with open_wired_store(own_redis_server.url) as wired:
        for _ in range(BEFORE):
            assert await wired.ask(LOCAL) is not None
        own_redis_server.cli("FLUSHALL")
        later = await wired.ask(LOCAL)
        assert later is not None
        assert (later.charged, later.local) == (True, False)
        await wired.wait_until_settled()
        assert await wired.count_used(LOCAL) == BEFORE + 1
        assert wired.metrics()["podgate_store_losses_total"] == 1
        assert wired.metrics()['podgate_booked_total{cause="Loss",service="Local"}'] == BEFORE
        assert wired.list_reported_words() == set()


async def test_flushed_scripts_are_no_trouble(own_redis_server: RedisServer) -> None:
    async with open_wired_store(own_redis_server.url) as wired:
        for _ in range(BEFORE):
            own_redis_server.cli("SCRIPT", "FLUSH")
            receipt = await wired.ask(LOCAL)
            assert receipt is not None
            assert (receipt.charged, receipt.local) == (True, False)
        await wired.wait_until_settled()
        assert await wired.count_used(LOCAL) == BEFORE
        assert wired.list_reported_words() == set()
        assert wired.metrics()["podgate_store_losses_total"] == 0


async def test_broken_record_affects_its_service_only(own_redis_server: RedisServer) -> None:
    async with open_wired_store(own_redis_server.url) as wired:
        await wired.ask(LOCAL)
        own_redis_server.cli("DEL", "podgate:{Local}:v1:test:ring:Local")
        own_redis_server.cli("SET", "podgate:{Local}:v1:test:ring:Local", "not a hash")
        broken = await wired.ask(LOCAL)
        assert broken is not None
        assert broken.local
        fine = await wired.ask(DENY)
        assert fine is not None
        assert fine.charged
        assert wired.list_reported_words() == {"script"}
        assert wired.metrics()["podgate_store_up"] == 1
        assert wired.series("podgate_store_fallback") == {"Local": 1}
        own_redis_server.cli("DEL", "podgate:{Local}:v1:test:ring:Local")
        await wired.wait_until_settled()
        assert not any(wired.series("podgate_store_fallback").values())
        assert await wired.count_used(LOCAL) >= 1


async def test_failed_cluster_node_affects_its_services_only(tmp_path: Path) -> None:
    with RedisCluster(program(names()[0]), tmp_path / "cluster", "--cluster-require-full-coverage", "no") as cluster:
        by_node = {}
        for number in range(100):
            plan = replace(DENY, tag=f"tag-{number}", windows=(window(600, pods=10_000),))
            by_node.setdefault(cluster.owner(plan.tag).port, plan)
        hit, *others = by_node.values()
        assert len(others) == 2
        async with open_wired_store(cluster.url) as wired:
            for plan in (hit, *others):
                assert await wired.ask(plan) is not None
            node = cluster.owner(hit.tag)
            node.kill()
            while await wired.ask(hit) is not None:
                pass
            for _ in range(20):
                assert await wired.ask(hit) is None
                for plan in others:
                    assert await wired.ask(plan) is not None
            node.start()
            async with asyncio.timeout(HANG_SECONDS):
                while await wired.ask(hit) is None:  # noqa: ASYNC110  the test waits for a server
                    await asyncio.sleep(0.01)
            for plan in others:
                assert await wired.ask(plan) is not None


async def test_counters_lost_in_a_failover_admit_no_pod_beyond_the_limit(tmp_path: Path) -> None:
    """The replica is paused during admissions, so that none of them is replicated before its promotion."""
    hard, kept = 20, 5
    plan = replace(DENY, windows=(window(600, pods=hard),))
    with SentinelGroup(program(names()[0]), tmp_path / "group") as group:
        async with open_wired_store(group.url) as wired:
            former, replica = group.servers
            for _ in range(kept):
                assert await wired.ask(plan) is not None
            assert former.cli("WAIT", 1, 10_000) == 1
            replica.pause()
            former.cli("CLIENT", "KILL", "TYPE", "replica")  # else the kernel would buffer these writes for it
            for _ in range(hard - kept):
                assert await wired.ask(plan) is not None
            former.kill()
            replica.resume()
            await asyncio.to_thread(group.wait_for_failover, former)
            again = 0
            async with asyncio.timeout(HANG_SECONDS):
                while (receipt := await wired.ask(plan)) is None:  # noqa: ASYNC110  the test waits for a server
                    await asyncio.sleep(0.01)
                again += receipt.charged
                # Ticks of a server, with more Pods than the limit admits.
                while wired.metrics()["podgate_store_losses_total"] == 0:
                    for _ in range(5):
                        receipt = await wired.ask(plan)
                        again += receipt is not None and receipt.charged
                    await asyncio.gather(wired.guard.tick([plan]), return_exceptions=True)
            await wired.wait_until_settled()
            for _ in range(5):
                receipt = await wired.ask(plan)
                assert receipt is not None
                assert receipt.refused is DeniedBy.QUOTA
            assert again == 0, "the loss is known before the new primary judges a Pod"
            assert await wired.count_used(plan) == hard
