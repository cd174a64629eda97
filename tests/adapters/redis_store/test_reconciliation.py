"""Settled marks of replicas in Redis, and detection of a loss."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from tests.redis_servers import RedisCluster, RedisProgram, RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.quota import Acquire, CounterPlan, PoolPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = plan_of(window(60, pods=9))
POOLED = replace(plan_of(), tag="shared", pool=PoolPlan("shared", (window(60, pods=9),)))
BY_NAMESPACE = replace(PLAN, per_namespace=True)
_numbers = iter(range(10**9))


@dataclass
class Replica:
    store: RedisStore
    owing: set[str] = field(default_factory=set)
    """Tags of its debts."""
    losses: list[None] = field(default_factory=list)
    missed: set[str] = field(default_factory=set)
    """Tags without an answer to a tick."""

    async def ask(self, plan: CounterPlan = PLAN, uid: str = "") -> bool:
        receipt = await self.store.acquire(
            Acquire(plan, "payments", uid or f"uid-{next(_numbers)}", {"pods": 1}, "user:alice")
        )
        return receipt.charged

    async def count_settled_replicas(self, plan: CounterPlan = PLAN, *, afresh: bool = False) -> int:
        return await self.store.count_settled_replicas(plan, afresh=afresh)


async def wait_for_settled_count(to: Replica, by: Replica, count: int, plan: CounterPlan = PLAN) -> None:
    """Run calls of one replica until another counts this many; it knows Redis' time as of its last answer."""
    async with asyncio.timeout(HANG_SECONDS):
        while await to.count_settled_replicas(plan) != count:
            await by.ask(plan)
            await by.store.tick([plan])


@asynccontextmanager
async def replica_on(url: str, *, admits: bool = True) -> AsyncIterator[Replica]:
    reports = StoreReports(int, str, str)
    replica = Replica(RedisStore(open_transport(url), "test", SystemClock(), reports, deadline_seconds=30))
    replica.store.on_loss = lambda: replica.losses.append(None)
    replica.store.on_missed = lambda plan: replica.missed.add(plan.tag)
    if admits:
        replica.store.settled.owes = replica.owing.__contains__
    await replica.store.tick([PLAN, POOLED, BY_NAMESPACE])
    try:
        yield replica
    finally:
        await replica.store.close()


@pytest.mark.parametrize("plan", [PLAN, POOLED, BY_NAMESPACE], ids=["alone", "pooled", "by namespace"])
async def test_returned_replica_counts_each_replica_without_debt_once(
    redis_server: RedisServer, plan: CounterPlan
) -> None:
    url = redis_server.url
    async with replica_on(url) as one, replica_on(url) as other, replica_on(url) as third:
        assert await one.count_settled_replicas(plan, afresh=True) == 0
        assert await one.count_settled_replicas(plan) == 0, "a replica does not count itself"
        await wait_for_settled_count(one, other, 1, plan)
        await other.ask(plan)
        assert await one.count_settled_replicas(plan) == 1
        await wait_for_settled_count(one, third, 2, plan)
        assert await one.count_settled_replicas(plan, afresh=True) == 0, "a new return resets the count"


async def test_replica_with_debt_is_not_counted_until_it_is_booked(
    redis_server: RedisServer,
) -> None:
    async with replica_on(redis_server.url) as one, replica_on(redis_server.url) as other:
        other.owing.add(PLAN.tag)
        await one.count_settled_replicas(afresh=True)
        await other.store.tick([PLAN])
        await other.count_settled_replicas(afresh=True)
        assert await one.count_settled_replicas() == 0
        other.owing.clear()
        await wait_for_settled_count(one, other, 1)
        await wait_for_settled_count(other, one, 1)


async def test_replica_without_admissions_is_not_counted(redis_server: RedisServer) -> None:
    async with replica_on(redis_server.url) as server, replica_on(redis_server.url, admits=False) as controller:
        await server.count_settled_replicas(afresh=True)
        await controller.store.tick([PLAN])
        assert await server.count_settled_replicas() == 0


async def test_call_sent_before_a_return_does_not_settle_its_replica(
    redis_server: RedisServer,
) -> None:
    """A slow call may overlap local admissions of its replica: here it was sent a minute ago."""
    async with replica_on(redis_server.url) as one, replica_on(redis_server.url) as other:
        await one.count_settled_replicas(afresh=True)
        assert other.store._clock.ahead_us is not None
        other.store._clock._last_us -= 60_000_000
        await other.ask()
        assert await one.count_settled_replicas() == 0
        await wait_for_settled_count(one, other, 1)


async def test_replica_unaware_of_a_loss_is_not_counted(redis_server: RedisServer) -> None:
    async with replica_on(redis_server.url) as one, replica_on(redis_server.url) as other:
        await other.ask()
        redis_server.cli("FLUSHALL")
        await one.count_settled_replicas(afresh=True)
        await other.store.tick([PLAN])
        assert (len(other.losses), await one.count_settled_replicas()) == (1, 0)
        await wait_for_settled_count(one, other, 1)
        assert len(other.losses) == 1


async def test_settled_marks_expire_with_the_counters(redis_server: RedisServer) -> None:
    async with replica_on(redis_server.url) as replica:
        plan = replace(PLAN, service="idle", tag="idle")
        await replica.count_settled_replicas(plan, afresh=True)
        (key,) = redis_server.cli("KEYS", "podgate:{idle}:*")
        assert redis_server.cli("PTTL", key) > 0


async def test_flush_is_detected_by_a_replica_without_charges(redis_server: RedisServer) -> None:
    async with replica_on(redis_server.url) as one, replica_on(redis_server.url) as other:
        await other.ask()
        await one.store.tick([PLAN])
        redis_server.cli("FLUSHALL")
        assert one.losses == []
        await one.ask()
        assert len(one.losses) == 1, "by the answer itself"
        await one.store.tick([PLAN])
        await one.ask()
        assert len(one.losses) == 1


async def test_flush_is_detected_by_a_tick(redis_server: RedisServer) -> None:
    async with replica_on(redis_server.url) as replica:
        await replica.ask()
        redis_server.cli("FLUSHALL")
        await replica.store.tick([PLAN])
        assert len(replica.losses) == 1


async def test_new_process_is_detected_before_the_first_call(redis_program: RedisProgram, tmp_path: Path) -> None:
    with RedisServer(redis_program, tmp_path / "redis") as server:
        async with replica_on(server.url) as replica:
            await replica.ask()
            server.restart(keep_data=False)
            seen: list[int] = []
            replica.store.on_loss = lambda: seen.append(len(server.cli("KEYS", "*")))
            while not seen:
                try:
                    await replica.ask()
                except StoreUnavailableError:  # the lane is opened by a probe
                    await asyncio.sleep(0.01)
            assert seen == [0]


async def test_reconnect_to_the_same_process_is_no_loss(redis_server: RedisServer) -> None:
    async with replica_on(redis_server.url) as replica:
        await replica.ask()
        redis_server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await asyncio.sleep(0)
        await replica.store.tick([PLAN])
        assert replica.losses == []


async def test_pod_is_known_to_every_replica_until_its_refund(
    redis_server: RedisServer,
) -> None:
    async with replica_on(redis_server.url) as one, replica_on(redis_server.url) as other:
        assert await one.store.find_charged_us(Acquire(PLAN, "shop", "known", {"pods": 1}, "", peek=True)) is None
        assert await other.ask(uid="known")
        assert await one.store.find_charged_us(Acquire(PLAN, "shop", "known", {"pods": 1}, "", peek=True))
        await other.store.refund(PLAN, "known")
        assert await one.store.find_charged_us(Acquire(PLAN, "shop", "known", {"pods": 1}, "", peek=True)) is None


async def test_first_contact_with_cluster_nodes_is_no_loss(redis_cluster: RedisCluster) -> None:
    plans = [replace(PLAN, service=str(number), tag=str(number)) for number in range(30)]
    async with replica_on(redis_cluster.url) as replica:
        await replica.store.tick(plans)
        for plan in plans:
            assert await replica.ask(plan)
            assert await replica.count_settled_replicas(plan, afresh=True) == 0
        assert replica.losses == []


async def test_tick_reports_services_without_an_answer(redis_program: RedisProgram, tmp_path: Path) -> None:
    with RedisCluster(redis_program, tmp_path / "cluster", "--cluster-require-full-coverage", "no") as cluster:
        plans = [replace(PLAN, service=str(number), tag=str(number)) for number in range(30)]
        gone = cluster.owner(plans[0].tag)
        theirs = {plan.tag for plan in plans if cluster.owner(plan.tag).port == gone.port}
        async with replica_on(cluster.url) as replica:
            await replica.store.tick(plans)
            assert replica.missed == set()
            gone.kill()
            with pytest.raises(StoreUnavailableError):
                await replica.store.tick(plans)
            assert replica.missed == theirs != {plan.tag for plan in plans}
