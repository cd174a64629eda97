"""Breakers that count many quota events: both stores agree, and older servers read what is stored."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.counter_store import BREAKER, SECOND_US, HandClock
from tests.contract.store_plans import START_US
from tests.contract.store_session import Stage, count_examples, open_stage
from tests.contract.store_steps import Step, Store, run_step
from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer, names
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker.plans import QuotaEventPlan
from webhook.core.quota import CounterPlan

pytest_plugins = ("tests.redis_servers.fixtures",)

EXAMPLES = 150
FIELDS = 19
"""Of a breaker's record; a longer form has one more, which older servers ignore."""
EVENTS = 9
"""Position of the quota events."""
RULES = (
    QuotaEventPlan(count=40, within_us=60 * SECOND_US, by_controller=True),
    QuotaEventPlan(count=40, within_us=20 * SECOND_US, by_controller=False),
    QuotaEventPlan(count=1000, within_us=60 * SECOND_US, by_controller=True),
    QuotaEventPlan(count=17, within_us=60 * SECOND_US, by_controller=True),
)
BASE = plan_of(window(3600, pods=1), breaker=BREAKER)


def source(number: int) -> str:
    """Return one of some sources, of several lengths; some contain others as they are packed."""
    short = f"user:{number}"
    return (short, f"controller:{number:036}", f"\u00e6{short}", f"{short}-{'x' * 40}", f"\u8aa6{short}")[number % 5]


STEPS = st.one_of(
    st.tuples(st.just("denied"), st.integers(0, 59), st.integers(1, 20)),
    st.tuples(st.just("denied"), st.integers(0, 59), st.integers(1, 20)),
    st.tuples(st.just("pause"), st.sampled_from([1, SECOND_US, 7 * SECOND_US, 30 * SECOND_US, 70 * SECOND_US])),
    st.tuples(st.just("pause"), st.sampled_from([-1, -SECOND_US, -40 * SECOND_US])),
    st.tuples(st.just("suppress_quota_events"), st.lists(st.integers(0, 59), max_size=3)),
    st.tuples(st.just("plan"), st.sampled_from(range(len(RULES)))),
    st.tuples(st.just("by hand"), st.just(0)),
    st.tuples(st.just("tick")),
    st.tuples(st.just("older server")),
)
# A record of the longer form, written by an older server, and read again.
WRITTEN_BY_AN_OLDER_SERVER: list[Step] = [
    ("denied", 0, 20),
    ("older server",),
    ("denied", 0, 20),
    ("denied", 20, 19),
    ("pause", 30 * SECOND_US),
    ("denied", 10, 20),
    ("pause", 30 * SECOND_US),
    ("denied", 59, 1),
]
# Sources whose first events have expired count again, and those of the others do not.
EXPIRED_AND_COUNTED_AGAIN: list[Step] = [
    ("denied", 0, 20),
    ("pause", 30 * SECOND_US),
    ("denied", 20, 18),
    ("pause", 30 * SECOND_US),
    ("denied", 20, 2),
    ("denied", 0, 3),
    ("denied", 20, 2),
]
# Behind the newest event there may be older ones, which expire before it.
CLOCK_BACK: list[Step] = [
    ("pause", 60 * SECOND_US),
    ("denied", 0, 18),
    ("pause", -40 * SECOND_US),
    ("denied", 18, 18),
    ("pause", 61 * SECOND_US),
    ("denied", 50, 1),
    ("denied", 20, 2),
]


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module", params=names())
def server(request: pytest.FixtureRequest, shared_redis: Callable[[str], RedisServer]) -> RedisServer:
    return shared_redis(request.param)


@pytest.fixture(scope="module")
def stage(server: RedisServer, clock: HandClock, shared_redis: Callable[[str], RedisServer]) -> Iterator[Stage]:
    with open_stage(server.program.name, clock, shared_redis) as on:
        yield on


async def compare(redis: Store, server: RedisServer, clock: HandClock, name: str, steps: list[Step]) -> None:
    plans = [
        replace(BASE, service=f"events-{name}", tag=f"events-{name}", breaker=replace(BREAKER, quota=rule))
        for rule in RULES
    ]
    memory, plan, uids = MemoryStore(clock), plans[0], iter(range(10_000))

    async def run_on_both(step: Step) -> None:
        answer = await run_step(memory, plan, step, clock.us)
        assert await run_step(redis, plan, step, clock.us) == answer, step

    await run_on_both(("acquire", "first", {"pods": 1}, "x", False, "user:x"))
    for step in steps:
        match step:
            case ("denied", first, times):
                for number in range(first, first + times):
                    await run_on_both(("acquire", str(next(uids)), {"pods": 1}, "x", False, source(number % 60)))
            case ("pause", pause_us):
                clock.us += pause_us
            case ("suppress_quota_events", numbers):
                await run_on_both(("suppress_quota_events", [source(number) for number in numbers]))
            case ("plan", number):
                plan = plans[number]
            case ("tick",):
                assert tuple(await redis.tick((plan,))) == tuple(await memory.tick((plan,)))
            case ("older server",):
                rewrite(server, plan)
            case _:
                await run_on_both(step)
        await run_on_both(("snapshot", ""))
        assert read_stored_events(server, plan) == list_counted_events(memory, plan)


def key_of(plan: CounterPlan) -> str:
    return f"podgate:{{{plan.tag}}}:v1:staged:brk:{plan.service}"


def read_record(server: RedisServer, plan: CounterPlan) -> list[Any]:
    """Return a breaker's record as an older server decodes it."""
    with server.client() as client:
        packed = cast("bytes | None", client.get(key_of(plan)))
    return [] if packed is None else msgspec.msgpack.decode(packed)[:FIELDS]


def rewrite(server: RedisServer, plan: CounterPlan) -> None:
    """Write a breaker's record as an older server does."""
    record = read_record(server, plan)
    if record:
        with server.client() as client:
            client.set(key_of(plan), msgspec.msgpack.encode(record), keepttl=True)


def read_stored_events(server: RedisServer, plan: CounterPlan) -> list[tuple[int, str]]:
    return [(at_us, source) for at_us, source in (read_record(server, plan) or [()] * FIELDS)[EVENTS]]


def list_counted_events(memory: MemoryStore, plan: CounterPlan) -> list[tuple[int, str]]:
    record = memory._find_state(plan).find_breaker(plan.service)  # no view has the events
    return [(event.at_us, event.source) for event in record.windows.quota_events]


def test_both_stores_count_the_same_quota_events(stage: Stage, server: RedisServer, clock: HandClock) -> None:
    @given(steps=st.lists(STEPS, min_size=3, max_size=25))
    @example(steps=WRITTEN_BY_AN_OLDER_SERVER)
    @example(steps=EXPIRED_AND_COUNTED_AGAIN)
    @example(steps=[*EXPIRED_AND_COUNTED_AGAIN[:4], ("denied", 0, 3)])
    @example(steps=CLOCK_BACK)
    @settings(max_examples=count_examples(stage.kind, EXAMPLES))
    def run(steps: list[Step]) -> None:
        name, clock.us = stage.name(), START_US
        stage.reports.clear()
        stage.runner.run(compare(cast("Store", stage.store), server, clock, name, steps))
        assert stage.reports == []

    run()


def test_record_with_many_events_has_the_longer_form(stage: Stage, server: RedisServer, clock: HandClock) -> None:
    name, clock.us = stage.name(), START_US
    stage.runner.run(compare(cast("Store", stage.store), server, clock, name, [("denied", 0, 20)]))
    plan = replace(BASE, service=f"events-{name}", tag=f"events-{name}")
    with server.client() as client:
        packed = cast("bytes", client.get(key_of(plan)))
    assert len(msgspec.msgpack.decode(packed)) == FIELDS + 1
