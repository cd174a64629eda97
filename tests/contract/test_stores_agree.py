"""The script against the pure ledger: whatever happens in whatever order, both answer the same, word for word."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.staging import Stage, staged
from tests.contract.test_counter_store import BREAKER, SECOND_US, HandClock
from tests.core.plans import plan_of, window
from tests.redis_servers import RedisServer, names
from webhook.adapters.memory_store import MemoryStore
from webhook.core.quota import Acquire, Booking, CounterPlan, PoolPlan
from webhook.core.stanzas import Mode
from webhook.ports import CounterStore, Outcome

pytest_plugins = ("tests.redis_servers.fixtures",)

EXAMPLES = int(os.environ.get("PODGATE_TEST_EXAMPLES", "150"))
"""`make soak` tries thousands."""

EAGER = replace(
    BREAKER,
    error_rate=replace(BREAKER.error_rate, minimum=1, consecutive=2),
    latency=replace(BREAKER.latency, consecutive=2),
    open_for_us=3 * SECOND_US,
    probes=2,
    probe_timeout_us=4 * SECOND_US,
)
BLIND = replace(EAGER, has_outcomes=False, error_rate=None, latency=None)
POOL = PoolPlan("shared", (window(1, pods=3), window(64, pods=6, memory=100)))
SMALL = plan_of(window(1, pods=2), window(64, pods=5, cpu=300), breaker=EAGER)
PLANS = (
    SMALL,
    plan_of(window(64, pods=3, cpu=700), window(2, cpu=900, memory=50), breaker=EAGER),
    replace(SMALL, breaker=BLIND),
    replace(
        SMALL, breaker=replace(EAGER, quota=None, probes=1, error_rate=replace(EAGER.error_rate, interval_us=500_000))
    ),
    replace(SMALL, quota_mode=Mode.AUDIT, breaker_mode=Mode.WARN),
    replace(SMALL, per_namespace=True),
    plan_of(breaker=EAGER),
    plan_of(window(64, pods=4), remember_us=5 * SECOND_US),
    plan_of(),
    replace(SMALL, fleet=True),
    *(
        replace(SMALL, service=service, tag="shared", per_namespace=per_namespace, pool=POOL)
        for service, per_namespace in (("payment-api", False), ("web", True))
    ),
    plan_of(service="batch", tag="shared", pool=PoolPlan("shared", (window(1, pods=1),)), breaker=BLIND),
)
START_US = HandClock().us + 123_456
Step = tuple[Any, ...]
UIDS = st.sampled_from("abcdefgh")
COSTS = st.fixed_dictionaries(
    {"pods": st.just(1)},
    optional={"requests.cpu": st.integers(0, 400), "requests.memory": st.integers(0, 60)},
)
PAUSES_US = st.one_of(
    st.integers(0, 20_000), st.integers(0, 3 * SECOND_US), st.sampled_from([15_625, SECOND_US, 70 * SECOND_US])
)
STEPS = st.one_of(
    st.tuples(st.just("acquire"), UIDS, COSTS, st.sampled_from("xyz"), st.booleans()),
    st.tuples(st.just("acquire"), UIDS, COSTS, st.sampled_from("xyz"), st.just(False)),  # noqa: FBT003
    st.tuples(st.just("resize"), UIDS, COSTS, COSTS, st.booleans()),
    st.tuples(st.just("refund"), UIDS),
    st.tuples(st.just("book"), st.lists(st.tuples(UIDS, COSTS, st.sampled_from("xyz"), PAUSES_US), max_size=3)),
    st.tuples(
        st.just("outcome"), st.booleans(), st.integers(0, 3_000_000), st.none() | UIDS, st.none() | st.integers(0, 3)
    ),
    st.tuples(st.just("look"), st.sampled_from(["", "x", "z"])),
    st.tuples(st.just("tick")),
    st.tuples(st.just("plan"), st.sampled_from(range(len(PLANS)))),
    st.tuples(st.just("pause"), PAUSES_US),
    # The store's clock steps back, and stays behind or catches up.
    st.tuples(st.just("pause"), st.sampled_from([-1, -SECOND_US, -3 * SECOND_US, -40 * SECOND_US, 11 * SECOND_US])),
)


async def done(  # noqa: PLR0911  one answer for each kind of step
    store: CounterStore, plan: CounterPlan, step: Step, now_us: int
) -> Any:
    match step:
        case ("book", asked):
            # The same uid twice is the same Pod, and answers may come in any order.
            bookings = {uid: Booking(scope, uid, cost, now_us - ago_us) for uid, cost, scope, ago_us in asked}
            return await store.book(plan, tuple(bookings.values()))
        case ("acquire", uid, cost, namespace, peek):
            return await store.acquire(Acquire(plan, namespace, uid, cost, f"user:{namespace}", peek=peek))
        case ("resize", uid, old, new, peek):
            return await store.acquire(Acquire(plan, "x", uid, new, "user:x", peek=peek, resize_from=old))
        case ("refund", uid):
            return await store.refund(plan, uid)
        case ("outcome", ok, latency_us, uid, generation):
            return tuple(await store.outcome(plan, Outcome(ok, latency_us, uid, generation)))
        case ("look", namespace):
            return await store.look(plan, namespace)
    return tuple(await store.tick([plan]))


def named(plan: CounterPlan, name: str) -> CounterPlan:
    """Return the plan for a service that nobody has counted yet."""
    pool = replace(plan.pool, name=f"{plan.pool.name}-{name}") if plan.pool else None
    return replace(plan, service=f"{plan.service}-{name}", tag=f"{plan.tag}-{name}", pool=pool)


async def agree(redis: CounterStore, clock: HandClock, plans: Sequence[CounterPlan], steps: list[Step]) -> None:
    memory, plan = MemoryStore(clock), plans[0]
    for step in steps:
        if step[0] == "pause":
            clock.us += step[1]
        elif step[0] == "plan":
            plan = plans[step[1]]
        else:
            assert await done(redis, plan, step, clock.us) == await done(memory, plan, step, clock.us), step


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module", params=names())
def stage(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> Iterator[Stage]:
    with staged(request.param, clock, shared_redis) as on:
        yield on


@given(steps=st.lists(STEPS, min_size=10, max_size=60))
@settings(max_examples=EXAMPLES)
def test_both_stores_answer_the_same(stage: Stage, clock: HandClock, steps: list[Step]) -> None:
    name, clock.us = stage.name(), START_US
    stage.told.clear()
    stage.runner.run(agree(stage.store, clock, [named(plan, name) for plan in PLANS], steps))
    assert stage.told == []
