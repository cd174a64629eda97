"""The Lua script compared with the pure ledger: equal answers in any order of events."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.counter_store import SECOND_US, HandClock
from tests.contract.store_plans import BREAKER_PLANS, GUARDED, LATE_US, LIVE_PLANS, PLANS, START_US
from tests.contract.store_session import Stage, count_examples, open_stage
from tests.contract.store_steps import (
    BREAKER_STEPS,
    GUARD_STEPS,
    LIVE_STEPS,
    STEPS,
    TEN_MINUTES_US,
    Step,
    Store,
    run_step,
)
from tests.contract.stores_agree import plan_of_example
from tests.redis_servers import RedisServer, names
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import BreakerView
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import CounterPlan

pytest_plugins = ("tests.redis_servers.fixtures",)

EXAMPLES = 150
"""On one generation of Redis; `make soak` tries thousands on each."""


async def compare_stores(
    redis: Store, clock: HandClock, plans: Sequence[CounterPlan], steps: list[Step], late_us: int = 0
) -> None:
    memory, plan = MemoryStore(clock, late_us=late_us), plans[0]
    policy: dict[tuple[str, str], CounterPlan] = {}
    seen: list[BreakerView] = []
    await redis.tick(())  # breakerGuard no longer counts breakers of earlier examples
    for step in steps:
        policy[plan.tag, plan.service] = plan
        match step:
            case ("pause", pause_us):
                clock.us += pause_us
            case ("plan", number):
                plan = plans[number]
            case ("tick",):
                all_plans = tuple(policy.values())  # other plans have left the policy, and are removed in time
                assert tuple(await redis.tick(all_plans)) == tuple(await memory.tick(all_plans))
            case ("propose", back, ahead, alone, passed):
                for view in seen[-1 - back : len(seen) - back]:
                    generation = max(0, view.generation + ahead)
                    passed = min(passed, generation)
                    alone = min(alone, generation - passed)
                    known = replace(view, generation=generation, passed=passed, alone=alone)
                    await redis.propose(plan, known)
                    await memory.propose(plan, known)
            case _:
                answer = await run_step(memory, plan, step, clock.us)
                assert await run_step(redis, plan, step, clock.us) == answer, step
        view = (await memory.snapshot(plan)).breaker
        seen += [view] if view is not None else []


async def compare_held_trips(redis: Store, clock: HandClock, plans: Sequence[CounterPlan], steps: list[Step]) -> None:
    """Whenever time has passed all services tick, as in a server each second."""
    memory, plan = MemoryStore(clock, late_us=LATE_US), plans[0]
    for step in [("pause", 0), *steps]:
        match step:
            case ("pause", pause_us):
                clock.us += pause_us
                assert tuple(await redis.tick(plans)) == tuple(await memory.tick(plans))
            case ("service", number):
                plan = plans[number]
            case _:
                answer = await run_step(memory, plan, step, clock.us)
                assert await run_step(redis, plan, step, clock.us) == answer, step


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module", params=names())
def stage(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> Iterator[Stage]:
    with open_stage(request.param, clock, shared_redis) as on:
        yield on


def test_both_stores_answer_the_same(stage: Stage, clock: HandClock) -> None:
    @given(steps=st.lists(STEPS, min_size=10, max_size=60))
    @settings(max_examples=count_examples(stage.kind, EXAMPLES))
    def compare(steps: list[Step]) -> None:
        name, clock.us = stage.name(), START_US
        stage.reports.clear()
        stage.runner.run(compare_stores(stage.store, clock, [plan_of_example(plan, name) for plan in PLANS], steps))
        assert stage.reports == []

    compare()


# A Pod that ended before its charge was never live, and never exceeded a limit.
DEAD_BEFORE_CHARGED: list[Step] = [
    *(("acquire", uid, {"pods": 1}, "x", False, "controller:x") for uid in "ad"),
    ("pause", TEN_MINUTES_US - 1),
    ("acquire", "c", {"pods": 1}, "x", False, "controller:x"),
    ("observe", [("b", {"pods": 1}, "x", False, 0, True, None)]),
    ("pause", TEN_MINUTES_US - 1),
    ("pause", TEN_MINUTES_US),
    ("plan", LIVE_PLANS[1]),
    ("snapshot", ""),
]


def test_both_stores_agree_on_live_pods(stage: Stage, clock: HandClock) -> None:
    @given(first=st.sampled_from(LIVE_PLANS), steps=st.lists(LIVE_STEPS, min_size=20, max_size=60))
    @example(first=LIVE_PLANS[0], steps=DEAD_BEFORE_CHARGED)
    @settings(max_examples=count_examples(stage.kind, EXAMPLES))
    def compare(first: int, steps: list[Step]) -> None:
        name, clock.us = stage.name(), START_US
        stage.reports.clear()
        known: list[Step] = [("plan", first), ("mark_complete",)]
        stage.runner.run(
            compare_stores(stage.store, clock, [plan_of_example(plan, name) for plan in PLANS], known + steps)
        )
        assert stage.reports == []

    compare()


@pytest.fixture(scope="module", params=names())
def late_stage(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> Iterator[Stage]:
    with open_stage(request.param, clock, shared_redis, late_us=LATE_US) as on:
        yield on


# A charge that had left its window at a reset does not count again when the clock steps back before it.
CLOCK_BACK_AFTER_A_RESET: list[Step] = [
    ("acquire", "a", {"pods": 1}, "x", False, "controller:x"),
    ("pause", 11 * SECOND_US),
    ("reset", -SECOND_US, 64),
    ("pause", -40 * SECOND_US),
    ("acquire", "b", {"pods": 1}, "x", False, "controller:x"),
]
# A refunded bucket is forgotten in a window that was reset since.
RESET_AFTER_A_REFUND: list[Step] = [
    ("book", [("d", {"pods": 1, "requests.cpu": 1}, "x", 0)]),
    ("pause", SECOND_US),
    ("refund", "d"),
    ("acquire", "a", {"pods": 1}, "x", False, "controller:x"),
    ("reset", -SECOND_US, None),
]
# A proposal with more decisions and the same transitions is a new state: the clock does not go back behind it.
CLOCK_BACK_AFTER_A_PROPOSAL: list[Step] = [
    ("record_outcomes", [Outcomes(0, 20, 0)]),
    ("pause", SECOND_US),
    ("record_outcomes", [Outcomes(0, 20, 0)]),
    ("pause", 2 * SECOND_US),
    ("tick",),
    ("pause", 4 * SECOND_US),
    ("tick",),
    ("pause", SECOND_US),
    ("propose", 0, 0, 0, 0),
    ("pause", -1),
    ("snapshot", ""),
]


def test_both_stores_agree_on_breakers(late_stage: Stage, clock: HandClock) -> None:
    @given(first=st.sampled_from(BREAKER_PLANS), steps=st.lists(BREAKER_STEPS, min_size=20, max_size=60))
    @example(first=0, steps=CLOCK_BACK_AFTER_A_RESET)
    @example(first=0, steps=RESET_AFTER_A_REFUND)
    @example(first=0, steps=CLOCK_BACK_AFTER_A_PROPOSAL)
    @settings(max_examples=count_examples(late_stage.kind, EXAMPLES))
    def compare(first: int, steps: list[Step]) -> None:
        name, clock.us = late_stage.name(), START_US
        late_stage.reports.clear()
        plans = [plan_of_example(plan, name) for plan in PLANS]
        late_stage.runner.run(compare_stores(late_stage.store, clock, plans, [("plan", first), *steps], LATE_US))
        assert late_stage.reports == []

    compare()


# Services that are due in the same tick trip in the order of the policy: a later one is held back.
TWO_TRIPS_IN_ONE_TICK: list[Step] = [
    ("service", 1),
    ("record_outcomes", [Outcomes(0, 1, 0), Outcomes(0, 1, 0, age_us=123_457)]),
    ("service", 0),
    ("pause", SECOND_US),
    ("record_outcomes", [Outcomes(0, 1, 0), Outcomes(0, 1, 0, age_us=123_457)]),
    ("pause", 3 * SECOND_US),
]


def test_both_stores_hold_the_same_trips(late_stage: Stage, clock: HandClock) -> None:
    @given(steps=st.lists(GUARD_STEPS, min_size=20, max_size=60))
    @example(steps=TWO_TRIPS_IN_ONE_TICK)
    @settings(max_examples=count_examples(late_stage.kind, EXAMPLES))
    def compare(steps: list[Step]) -> None:
        name, clock.us = late_stage.name(), START_US
        late_stage.reports.clear()
        plans = [plan_of_example(plan, name) for plan in GUARDED]
        late_stage.runner.run(compare_held_trips(late_stage.store, clock, plans, steps))
        assert late_stage.reports == []

    compare()
