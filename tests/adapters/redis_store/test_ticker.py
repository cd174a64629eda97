"""Ticks of services at rest: one comparison for many of them, with the same results as ticks."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.adapters.redis_store.ticker import SERVICES, clock, open_store, store
from tests.contract.counter_store import BREAKER, SECOND_US, HandClock
from tests.contract.store_plans import LATE_US, PLANS, START_US
from tests.contract.store_session import count_examples
from tests.contract.store_steps import BREAKER_STEPS, Step, run_step
from tests.contract.stores_agree import plan_of_example
from tests.core.plans import window
from tests.redis_servers import RedisCluster, RedisServer
from webhook.adapters.redis_store import RedisStore, operations
from webhook.adapters.redis_store.plans import PreparedPlan
from webhook.core.breaker import BreakerView, Forcing, State, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import Acquire, CounterPlan, PoolPlan
from webhook.errors import StoreUnavailableError

__all__ = ["clock", "store"]

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = SERVICES[7]
EXAMPLES = 100

Kinds = Counter[str]
"""How many operations of each kind were sent."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    kinds: Kinds = Counter()
    for name in ("tick", "compare"):
        make: Callable[..., Any] = getattr(operations, name)

        def count_and_make(*values: Any, name: str = name, make: Callable[..., Any] = make) -> Any:
            kinds[name] += 1
            return make(*values)

        monkeypatch.setattr(operations, name, count_and_make)
    return kinds


async def test_services_at_rest_are_compared_in_groups_and_not_ticked(redis_server: RedisServer, sent: Kinds) -> None:
    async with open_store(redis_server.url) as store:
        await store.tick(SERVICES)
        assert sent == {"tick": 250}
        sent.clear()
        await store.tick(SERVICES)
        await store.tick(SERVICES)
        assert sent == {"compare": 6}, "250 services are 3 groups"


async def test_services_at_rest_are_compared_by_tag_on_a_cluster(redis_cluster: RedisCluster, sent: Kinds) -> None:
    plans = [*SERVICES[:3], replace(SERVICES[3], tag=SERVICES[0].tag)]
    async with open_store(redis_cluster.url) as store:
        await store.tick(plans)
        sent.clear()
        await store.tick(plans)
        assert sent == {"compare": 3}


async def compare_order(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the order of ticks of resting, changed and new services, some of which share a tag and a pool."""
    ticked: list[CounterPlan] = []
    pool = PoolPlan("shared", (window(60, pods=9),))
    policy = [SERVICES[0], *(replace(service, tag="shared", pool=pool) for service in SERVICES[1:5]), *SERVICES[5:8]]
    policy = [policy[number] for number in (3, 0, 5, 1, 7, 4, 2, 6)]  # neither by name nor by tag

    def record_and_tick(planned: PreparedPlan, tick: Callable[..., Any] = operations.tick) -> Any:
        ticked.append(planned.plan)
        return tick(planned)

    async with open_store(url) as store, open_store(url) as other:
        await store.tick(policy)
        for plan in sorted(policy[1:-1], key=lambda plan: plan.service):
            await other.record_outcomes(plan, [Outcomes(0, 1, 0)])
        monkeypatch.setattr(operations, "tick", record_and_tick)
        await store.tick([*policy, SERVICES[9]])
    assert ticked == [*policy[1:-1], SERVICES[9]]


async def test_changed_services_are_ticked_in_the_order_of_the_policy(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await compare_order(redis_server.url, monkeypatch)


async def test_changed_services_are_ticked_in_the_order_of_the_policy_on_a_cluster(
    redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await compare_order(redis_cluster.url, monkeypatch)


async def test_trips_of_all_calls_of_a_tick_count_for_the_guard(store: RedisStore, clock: HandClock) -> None:
    guarded = replace(BREAKER, open_max=3)
    policy = [replace(service, breaker=guarded) for service in SERVICES[:200]]
    await store.tick(policy)
    await asyncio.gather(*(store.record_outcomes(plan, [Outcomes(0, 50, 0)]) for plan in policy))
    for _ in range(2):
        clock.us += SECOND_US
        await asyncio.gather(*(store.record_outcomes(plan, [Outcomes(0, 50, 0)]) for plan in policy))
    clock.us += 2 * SECOND_US
    moves = await store.tick(policy)
    assert [move.service for move in moves if move.is_change] == ["s0", "s1", "s2"]
    assert sum(move.is_held_back for move in moves) == 197


def acquire(plan: CounterPlan, uid: str = "a") -> Acquire:
    return Acquire(plan, "payments", uid, {"pods": 1}, "controller:a")


async def _charge(other: RedisStore, _: RedisServer) -> None:
    await other.acquire(acquire(PLAN))


async def _fail(other: RedisStore, _: RedisServer) -> None:
    await other.record_outcomes(PLAN, [Outcomes(0, 20, 0)])


async def _flush(_: RedisStore, server: RedisServer) -> None:
    server.cli("FLUSHALL")


async def _break_head(_: RedisStore, server: RedisServer) -> None:
    server.cli("DEL", "podgate:{s7}:v1:test:ring:s7")
    server.cli("SET", "podgate:{s7}:v1:test:ring:s7", "no hash")


@pytest.mark.parametrize("change", [_charge, _fail, _flush, _break_head])
async def test_changed_service_alone_is_ticked(
    redis_server: RedisServer, sent: Kinds, change: Callable[[RedisStore, RedisServer], Awaitable[None]]
) -> None:
    async with open_store(redis_server.url) as store, open_store(redis_server.url) as other:
        await store.acquire(acquire(PLAN, "b"))
        for _ in range(2):
            await store.tick(SERVICES)
        sent.clear()
        await change(other, redis_server)
        missed: list[CounterPlan] = []
        store.on_missed = missed.append
        with suppress(StoreUnavailableError):
            await store.tick(SERVICES)
        assert missed == ([PLAN] if change is _break_head else [])
        assert sent == {"compare": 3, "tick": 1}


@pytest.mark.parametrize("other_rule", ["error_rate", "latency"])
async def test_breaker_trips_by_a_tick_after_the_last_outcome(
    store: RedisStore, clock: HandClock, other_rule: str
) -> None:
    intervals = 3 if other_rule == "latency" else 5
    plan = replace(PLAN, breaker=replace(BREAKER, **{other_rule: None}))
    for _ in range(intervals):
        await store.record_outcomes(plan, [Outcomes(0, 20, 60 * SECOND_US)])
        await store.tick([plan])
        clock.us += SECOND_US
    for _ in range(2):
        assert await store.tick([plan]) == []
    clock.us += LATE_US
    assert [move.new for move in await store.tick([plan])] == [State.OPEN]


async def test_open_breaker_half_opens_by_a_tick(store: RedisStore, clock: HandClock) -> None:
    await store.propose(PLAN, BreakerView(State.OPEN, 1, clock.us, clock.us + SECOND_US, "x", tripped_at_us=clock.us))
    for _ in range(2):
        assert await store.tick([PLAN]) == []
    clock.us += SECOND_US
    assert [move.new for move in await store.tick([PLAN])] == [State.HALF_OPEN]


async def test_end_of_a_forced_state_is_seen_by_a_tick(store: RedisStore, clock: HandClock) -> None:
    forced = replace(PLAN, breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, clock.us + SECOND_US, "x")))
    states = []
    for _ in range(3):
        await store.tick([forced])
        view = store.find_last_breaker(forced)
        states.append(view and view.state)
        clock.us += SECOND_US // 2
    assert states == [State.FORCED_OPEN, State.FORCED_OPEN, State.CLOSED]


async def test_clock_is_observed_when_it_steps_back_and_when_it_catches_up(
    store: RedisStore, clock: HandClock, sent: Kinds
) -> None:
    await store.acquire(acquire(PLAN))
    await store.tick([PLAN])
    for pause_us in (-1, -3 * SECOND_US, 4 * SECOND_US, -1):
        clock.us += pause_us
        for _ in range(2):
            sent.clear()
            await store.tick([PLAN])
            assert sent["tick"] == 1, pause_us


async def test_replica_shows_that_it_owes_nothing_at_a_tick(redis_server: RedisServer) -> None:
    async with open_store(redis_server.url) as store, open_store(redis_server.url) as returned:
        owed = True
        store.settled.owes = lambda _: owed
        plans = [SERVICES[0], PLAN]
        await store.tick(plans)
        assert await returned.count_settled_replicas(PLAN, afresh=True) == 0
        for _ in range(2):
            await store.tick(plans)
        owed = False
        await store.tick(plans)
        assert await returned.count_settled_replicas(PLAN, afresh=False) == 1


async def test_new_plan_of_a_service_is_ticked(redis_server: RedisServer, sent: Kinds) -> None:
    async with open_store(redis_server.url) as store:
        await store.tick([PLAN])
        sent.clear()
        await store.tick([replace(PLAN)])
        assert sent == {"tick": 1}


async def compare_ticks(
    stores: Sequence[tuple[RedisStore, RedisStore]], server: RedisServer, clock: HandClock, name: str, steps: list[Step]
) -> None:
    """Run the steps on each pair; the first store of a pair ticks. That of the second pair ticks every service."""
    # The pairs are two clusters, which would share what a whole fleet counts.
    plans = [replace(plan_of_example(plan, name), fleet=False) for plan in PLANS]
    policy, plan = {}, plans[0]
    for step in [*steps, ("tick",), ("tick",)]:
        policy[plan.tag, plan.service] = plan
        match step:
            case ("pause", pause_us):
                clock.us += pause_us
            case ("plan", number):
                plan = plans[number]
            case ("propose", *_):
                pass
            case ("flush",):
                server.cli("FLUSHALL")
            case ("tick",):
                found: list[Any] = []
                for number, (ticking, _) in enumerate(stores):
                    if number == 1:
                        ticking._ticker._resting.clear()
                    moves: Sequence[Transition] = await ticking.tick(tuple(policy.values()))
                    found.append((list(moves), [ticking.find_last_breaker(plan) for plan in policy.values()]))
                assert found[0] == found[1]
            case _:
                for _, other in stores:
                    await run_step(other, plan, step, clock.us)


# Of few kinds, so that breakers trip while nothing but time passes.
TICK = st.tuples(st.just("tick"))
FAILURE = st.tuples(st.just("record_outcomes"), st.just([Outcomes(0, 20, 3_000_000)]))
PAUSE = st.tuples(st.just("pause"), st.sampled_from([-3 * SECOND_US, LATE_US, SECOND_US, SECOND_US, 4 * SECOND_US]))
STEPS = st.one_of(TICK, TICK, PAUSE, PAUSE, FAILURE, BREAKER_STEPS, st.tuples(st.just("flush")))
# A trip that was due, was written by another replica, and is lost with the data, while the service rests.
LOST_TRIP: list[Step] = [
    *(step for _ in range(3) for step in (("record_outcomes", [Outcomes(0, 20, 0)]), ("pause", SECOND_US))),
    ("tick",),
    ("pause", 20 * SECOND_US),
    ("tick",),
    ("tick",),
    ("flush",),
    ("tick",),
]
# Both clusters probe a service of the whole fleet, which has one probe in flight.
FULL_FLEET: list[Step] = [
    ("plan", 9),
    ("record_outcomes", [Outcomes(0, 1, 0), Outcomes(0, 1, 0, None, None, 123457)]),
    ("pause", 4 * SECOND_US),
    ("acquire group", [("a", {"pods": 1}), ("b", {"pods": 1})], "x", "controller:x"),
]


def test_comparison_and_ticks_have_the_same_results(redis_server: RedisServer) -> None:
    clock, number = HandClock(), iter(range(10**6))
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def pair(cluster: str) -> tuple[RedisStore, RedisStore]:
            first, second = [
                await stack.enter_async_context(open_store(redis_server.url, clock, cluster)) for _ in range(2)
            ]
            return first, second

        stores = [runner.run(pair(cluster)) for cluster in ("compared", "ticked")]

        @given(steps=st.lists(STEPS, min_size=20, max_size=60))
        @example(steps=LOST_TRIP)
        @example(steps=FULL_FLEET)
        @settings(max_examples=count_examples(redis_server.program.name, EXAMPLES))
        def compare(steps: list[Step]) -> None:
            clock.us = START_US
            runner.run(compare_ticks(stores, redis_server, clock, str(next(number)), steps))

        compare()
        runner.run(stack.aclose())
