"""The script against the pure ledger: whatever happens in whatever order, both answer the same, word for word."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.staging import Stage, staged
from tests.contract.test_counter_store import BREAKER, SECOND_US, HandClock
from tests.core.plans import plan_of, standing, window
from tests.redis_servers import RedisServer, names
from webhook.adapters.memory_store import MemoryStore
from webhook.core.quota import Acquire, Booking, CounterPlan, PoolPlan, Sighting, StandingPlan
from webhook.core.stanzas import Mode
from webhook.ports import CounterStore, Outcome, PodLedger

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
    # What stands, and what of it changes with a policy: limits, surge, who counts apart, modes, whose clusters.
    STANDING := replace(SMALL, standing=standing(pods=3, cpu=500)),
    replace(STANDING, standing=StandingPlan(window(0, cpu=400, pods=2, memory=90).limits, (200, 2, 0))),
    replace(STANDING, per_namespace=True, standing=standing(2, pods=1)),
    replace(STANDING, quota_mode=Mode.WARN, standing=standing(1, pods=1)),
    replace(STANDING, fleet=True, standing=standing(1, pods=2)),
    plan_of(standing=standing(1, pods=2)),
    replace(SMALL, service="web", tag="shared", pool=POOL, standing=standing(1, pods=2, memory=70)),
)
START_US = HandClock().us + 123_456
TEN_MINUTES_US = 600 * SECOND_US
"""For as long surge stays open, and is enforced what nobody confirms."""


class Store(CounterStore, PodLedger, Protocol):
    """What both stores are."""


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
    st.tuples(
        st.just("see"),
        st.lists(
            st.tuples(UIDS, COSTS, st.sampled_from("xyz"), st.booleans(), st.none() | PAUSES_US, st.booleans()),
            max_size=3,
            unique_by=lambda one: one[0],
        ),
    ),
    st.tuples(st.just("overdue"), st.sampled_from([0, 1, SECOND_US, 3 * SECOND_US]), st.sampled_from([1, 3, 100])),
    st.tuples(st.just("let_be"), st.lists(UIDS, max_size=3, unique=True)),
    st.tuples(st.just("counted")),
    st.tuples(st.just("reset"), st.sampled_from([-SECOND_US, 0, 1, SECOND_US]), st.sampled_from([None, 1, 2, 64])),
    st.tuples(st.just("stand")),
    st.tuples(st.just("look"), st.sampled_from(["", "x", "z"])),
    st.tuples(st.just("tick")),
    st.tuples(st.just("plan"), st.sampled_from(range(len(PLANS)))),
    st.tuples(st.just("pause"), PAUSES_US),
    st.tuples(st.just("pause"), st.sampled_from([TEN_MINUTES_US - 1, TEN_MINUTES_US, 6 * TEN_MINUTES_US])),
    # The store's clock steps back, and stays behind or catches up.
    st.tuples(st.just("pause"), st.sampled_from([-1, -SECOND_US, -3 * SECOND_US, -40 * SECOND_US, 11 * SECOND_US])),
)


LIVE_PLANS = tuple(number for number, plan in enumerate(PLANS) if plan.standing)
SIGHTINGS = st.tuples(
    st.just("see"),
    st.lists(
        st.tuples(UIDS, COSTS, st.sampled_from("xy"), st.booleans(), st.none() | PAUSES_US, st.just(True)),  # noqa: FBT003
        min_size=1,
        max_size=2,
        unique_by=lambda one: one[0],
    ),
)
ASKS = st.tuples(st.just("acquire"), UIDS, COSTS, st.sampled_from("xy"), st.just(False))  # noqa: FBT003
LIVE_STEPS = st.one_of(
    ASKS,
    ASKS,
    SIGHTINGS,
    SIGHTINGS,
    STEPS,
    st.tuples(st.just("counted")),
    st.tuples(st.just("plan"), st.sampled_from(LIVE_PLANS)),
    st.tuples(st.just("pause"), st.sampled_from([70 * SECOND_US, TEN_MINUTES_US - 1, TEN_MINUTES_US])),
)
"""Rates have mostly been forgotten between two of these: then it is live Pods that stand in the way."""


async def watched(store: PodLedger, plan: CounterPlan, step: Step, now_us: int) -> Any:
    """Do a step of whoever watches Pods."""
    match step:
        case ("see", shown):
            sightings = [
                Sighting(namespace, f"{uid}-pod", uid, cost, lives, 0 if ago_us is None else now_us - ago_us, is_sure)
                for uid, cost, namespace, lives, ago_us, is_sure in shown
            ]
            return list(await store.see(plan, sightings))
        case ("overdue", age_us, most):
            return list(await store.overdue(plan, age_us, most))
        case ("let_be", uids):
            return await store.let_be(plan, uids)
        case ("counted",):
            return await store.counted(plan, await store.scopes(plan))
        case ("reset", ahead_us, seconds):
            return await store.reset(plan, now_us + ahead_us, seconds)
    return {scope: await everyone(store, plan, scope) for scope in await store.scopes(plan)}


async def everyone(store: PodLedger, plan: CounterPlan, scope: str) -> set[str]:
    """Return who stands, over all pages; in no order, and perhaps more than once on the way."""
    found, after = await store.live(plan, scope)
    uids = set(found)
    while after:
        found, after = await store.live(plan, scope, after)
        uids |= set(found)
    return uids


async def done(  # noqa: PLR0911  one answer for each kind of step
    store: Store, plan: CounterPlan, step: Step, now_us: int
) -> Any:
    match step:
        case ("book", asked):
            # The same uid twice is the same Pod, and answers may come in any order.
            bookings = {uid: Booking(scope, uid, cost, now_us - ago_us) for uid, cost, scope, ago_us in asked}
            return await store.book(plan, tuple(bookings.values()))
        case ("acquire", uid, cost, namespace, peek):
            source = f"user:{namespace}"
            return await store.acquire(Acquire(plan, namespace, uid, cost, source, peek=peek, name=f"{uid}-pod"))
        case ("resize", uid, old, new, peek):
            return await store.acquire(Acquire(plan, "x", uid, new, "user:x", peek=peek, resize_from=old))
        case ("refund", uid):
            return await store.refund(plan, uid)
        case ("outcome", ok, latency_us, uid, generation):
            return tuple(await store.outcome(plan, Outcome(ok, latency_us, uid, generation)))
        case ("look", namespace):
            return await store.look(plan, namespace)
        case ("tick",):
            return tuple(await store.tick([plan]))
    return await watched(store, plan, step, now_us)


def named(plan: CounterPlan, name: str) -> CounterPlan:
    """Return the plan for a service that nobody has counted yet."""
    pool = replace(plan.pool, name=f"{plan.pool.name}-{name}") if plan.pool else None
    return replace(plan, service=f"{plan.service}-{name}", tag=f"{plan.tag}-{name}", pool=pool)


async def agree(redis: Store, clock: HandClock, plans: Sequence[CounterPlan], steps: list[Step]) -> None:
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


@given(first=st.sampled_from(LIVE_PLANS), steps=st.lists(LIVE_STEPS, min_size=20, max_size=60))
@settings(max_examples=EXAMPLES)
def test_both_stores_agree_on_who_lives(stage: Stage, clock: HandClock, first: int, steps: list[Step]) -> None:
    name, clock.us = stage.name(), START_US
    stage.told.clear()
    known: list[Step] = [("plan", first), ("counted",)]
    stage.runner.run(agree(stage.store, clock, [named(plan, name) for plan in PLANS], known + steps))
    assert stage.told == []
