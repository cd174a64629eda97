"""Contract of `ports.QueueIndex`, run against each implementation."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import DEADLINE_SECONDS, MEMORY, SECOND_US, HandClock, clock
from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer, names, usual_names
from webhook.adapters.memory_queue_index import MemoryQueueIndex
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.policy_fields import WhenExpired
from webhook.core.quota import HOUR_US, CounterPlan, QueuePlan
from webhook.ports import QueueIndex, StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

__all__ = ("clock",)

MAX_WAIT_US = 900 * SECOND_US
QUEUE = QueuePlan(
    for_quota=True,
    for_breaker=False,
    rank=0,
    max_pods=3,
    max_wait_us=MAX_WAIT_US,
    when_expired=WhenExpired.DELETE,
    ageing_us=600 * SECOND_US,
    lifted_percent=10,
)
PLAN = plan_of(window(60, pods=1), queue=QUEUE)
MANY = 2500
"""More than one page, and more than one call."""


def redis_store(server: RedisServer, clock: HandClock, troubles: list[str]) -> RedisStore:
    return RedisStore(
        open_transport(server.url),
        "test",
        clock,
        StoreReports(int, lambda failure: troubles.append(str(failure)), str),
        deadline_seconds=DEADLINE_SECONDS,
        time_us=clock.now_us,
    )


@pytest.fixture(params=(MEMORY, *names()))
async def queue(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> AsyncIterator[QueueIndex]:
    if request.param == MEMORY:
        yield MemoryQueueIndex(clock)
        return
    troubles: list[str] = []
    store = redis_store(shared_redis(request.param), clock, troubles)
    yield store.queue
    await store.close()
    assert troubles == []


async def register(queue: QueueIndex, plan: CounterPlan, *uids: str) -> list[bool]:
    return [await queue.register(plan, uid) for uid in uids]


async def test_pods_are_registered_up_to_max_pods(queue: QueueIndex, clock: HandClock) -> None:
    assert await register(queue, PLAN, *"abcd") == [True, True, True, False]
    assert await queue.list_waiting(PLAN) == dict.fromkeys("abc", clock.us)
    assert await queue.count(PLAN) == 3
    await queue.forget(PLAN, ["b", "stranger"])
    assert await register(queue, PLAN, *"de") == [True, False]
    assert await queue.count(PLAN) == 3


async def test_concurrent_registrations_keep_to_max_pods(queue: QueueIndex) -> None:
    accepted = await asyncio.gather(*(queue.register(PLAN, f"{number}") for number in range(20)))
    assert (sum(accepted), await queue.count(PLAN)) == (3, 3)


async def test_known_pod_keeps_its_time_and_is_accepted_by_a_full_queue(queue: QueueIndex, clock: HandClock) -> None:
    first_us = clock.us
    await register(queue, PLAN, "a")
    clock.sleep(1.000_001)
    assert await register(queue, PLAN, *"bcda") == [True, True, False, True]
    assert await queue.list_waiting(PLAN) == {"a": first_us, "b": clock.us, "c": clock.us}


async def test_lowered_max_pods_keeps_registered_pods(queue: QueueIndex) -> None:
    await register(queue, PLAN, *"ab")
    fewer = replace(PLAN, queue=replace(QUEUE, max_pods=1))
    assert await register(queue, fewer, *"abc") == [True, True, False]
    assert await queue.count(fewer) == 2


async def test_restored_pods_have_the_given_times_and_may_exceed_max_pods(queue: QueueIndex, clock: HandClock) -> None:
    await register(queue, PLAN, "a")
    await queue.restore(PLAN, {uid: number for number, uid in enumerate("abcde", 5)})
    assert await queue.list_waiting(PLAN) == {"a": clock.us, "b": 6, "c": 7, "d": 8, "e": 9}
    assert not await queue.register(PLAN, "f")


async def test_many_pods_are_restored_listed_found_and_forgotten(queue: QueueIndex, clock: HandClock) -> None:
    times_us = {f"uid-{number}": clock.us + number // 2000 for number in range(MANY)}
    await queue.restore(PLAN, times_us)
    assert (await queue.count(PLAN), await queue.list_waiting(PLAN)) == (MANY, times_us)
    assert await queue.find_times_us(PLAN, ["stranger", *times_us]) == times_us
    assert await queue.find_times_us(PLAN, ["uid-2400", "stranger"]) == {"uid-2400": times_us["uid-2400"]}
    await queue.forget(PLAN, [*times_us][1:])
    assert await queue.list_waiting(PLAN) == {"uid-0": clock.us}


async def test_nothing_is_restored_or_forgotten_without_pods(queue: QueueIndex) -> None:
    await queue.restore(PLAN, {})
    await queue.forget(PLAN, [])
    await queue.forget(PLAN, ["a"])
    assert (await queue.find_times_us(PLAN, []), await queue.find_times_us(PLAN, ["a"])) == ({}, {})
    assert (await queue.count(PLAN), await queue.list_waiting(PLAN)) == (0, {})


async def test_services_of_one_pool_have_their_own_queues(queue: QueueIndex) -> None:
    web, batch = (replace(PLAN, service=service, tag="shared") for service in ("web", "batch"))
    await register(queue, web, *"abc")
    assert await register(queue, batch, "a") == [True]
    await queue.forget(batch, ["a"])
    assert [await queue.count(plan) for plan in (web, batch)] == [3, 0]


async def test_service_without_a_queue_registers_nothing_and_keeps_its_waiting_pods(queue: QueueIndex) -> None:
    await register(queue, PLAN, "a")
    drained = replace(PLAN, queue=None)
    assert await register(queue, drained, *"ab") == [True, False]
    assert [*await queue.list_waiting(drained)] == ["a"]
    await queue.forget(drained, ["a"])
    assert await queue.count(drained) == 0


# The time for which an unused index is kept


async def test_memory_drops_an_unused_index_an_hour_after_max_wait(clock: HandClock) -> None:
    queue = MemoryQueueIndex(clock)
    await queue.register(PLAN, "a")
    for _ in range(2):
        clock.sleep((MAX_WAIT_US + HOUR_US - 1) / SECOND_US)
        assert [*await queue.list_waiting(PLAN)] == ["a"], "reading renews it"
    clock.sleep((MAX_WAIT_US + HOUR_US) / SECOND_US)
    assert (await queue.count(PLAN), await queue.list_waiting(PLAN)) == (0, {})


@pytest.mark.parametrize("name", usual_names())
async def test_redis_drops_an_unused_index_an_hour_after_max_wait(
    clock: HandClock, shared_redis: Callable[[str], RedisServer], name: str
) -> None:
    server, troubles = shared_redis(name), list[str]()
    key, lasts_ms = "podgate:{payment-api}:v1:test:q:payment-api", (MAX_WAIT_US + HOUR_US) // 1000
    store = redis_store(server, clock, troubles)
    try:
        for use in (
            lambda: store.queue.register(PLAN, "a"),
            lambda: store.queue.restore(PLAN, {"b": 1}),
            lambda: store.queue.list_waiting(PLAN),
        ):
            await use()
            assert lasts_ms - 60_000 < server.cli("PTTL", key) <= lasts_ms
            server.cli("PERSIST", key)
    finally:
        await store.close()
    assert troubles == []
