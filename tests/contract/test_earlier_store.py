"""Stores of an earlier commit and of this tree on one Redis: each reads and changes what the other has written.

Both are compared with the ledger in memory, so that they agree with each other. A shallow clone has no earlier commit:
the tests then fail, and name the remedy.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.counter_store import SECOND_US, HandClock
from tests.contract.earlier_store import EarlierStore, earlier_store, plain
from tests.contract.store_plans import BREAKER_PLANS, LIVE_PLANS, PLANS, START_US
from tests.contract.store_session import Stage, count_examples, open_stage
from tests.contract.store_steps import BREAKER_STEPS, LIVE_STEPS, POOL_STEPS, Step, Store, run_step
from tests.contract.stores_agree import plan_of_example
from tests.harness.revisions import check_out
from tests.redis_servers import RedisServer, names
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import BreakerView, UnschedulablePlan
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import CounterPlan, Receipt

pytest_plugins = ("tests.redis_servers.fixtures",)

EARLIER = "6dfb74fe48a9a6ed8ffec46ace4cfaf3345e7897"
"""The last commit that wrote its records without `transport/records.py`. Its tests know the same plans and steps."""
EXAMPLES = 60

Turn = tuple[bool, Step]
"""Whether the earlier store runs a step, and the step."""
GUARDED = frozenset(
    number
    for number, plan in enumerate(PLANS)
    if (plan.breaker and (plan.breaker.open_max == 1 or isinstance(plan.breaker.error_rate, UnschedulablePlan)))
    or plan.has_guarantees
    or plan.pool_standing is not None
)
"""Plans whose breaker opens or not by what a process knows of other breakers, and that the earlier commit lacks."""
NEW_STEPS = POOL_STEPS | {"acquire group"}
"""Operations that the earlier commit lacks."""


async def run(store: Store, plans: Sequence[CounterPlan], number: int, step: Step, now_us: int) -> Any:
    match step:
        case ("tick", numbers):
            return await store.tick([plans[each] for each in numbers])
        case ("propose", view):
            return await store.propose(plans[number], view)
    return await run_step(store, plans[number], step, now_us)


def proposals(seen: Sequence[BreakerView], step: Step) -> Iterator[Step]:
    """Yield what a step proposes: a view that was seen before, as another replica may have changed it."""
    _, back, ahead, alone, passed = step
    for view in seen[-1 - back : len(seen) - back]:
        generation = max(0, view.generation + ahead)
        decided = min(passed, generation)
        alone_since = min(alone, generation - decided)
        yield "propose", replace(view, generation=generation, passed=decided, alone=alone_since)


def forget_moment(step: Step, answer: Any) -> Any:
    """Return an answer as the earlier commit gives it: without the moment of a charge that was made before."""
    if step[0] == "knows":
        return answer is not None
    return replace(answer, charged_us=None) if isinstance(answer, Receipt) else answer


def is_done_alike(plan: CounterPlan, step: Step) -> bool:
    """Return whether the earlier commit does a step alike: it knows nothing of resizes that a node has not done."""
    match step:
        case ("resize", *_):
            return not plan.limits_live_pods
        case ("observe", shown):
            return all(live_cost is None for *_, live_cost in shown)
    return step[0] not in NEW_STEPS


def translate(step: Step) -> Step:
    """Return a step as the earlier commit writes it."""
    return ("observe", [tuple(known) for *known, _ in step[1]]) if step[0] == "observe" else step


async def compare_turns(stage: Stage, earlier: EarlierStore, clock: HandClock, first: int, turns: list[Turn]) -> None:
    name, number, memory = stage.name(), first, MemoryStore(clock)
    plans = [plan_of_example(plan, name) for plan in PLANS]
    policy: dict[tuple[str, str], int] = {}
    seen: list[BreakerView] = []
    await run(stage.store, plans, number, ("tick", ()), clock.us)
    earlier.run(name, number, clock.us, ("tick", ()))
    for is_earlier, step in turns:
        policy[plans[number].tag, plans[number].service] = number
        match step:
            case ("pause", pause_us):
                clock.us += pause_us
                continue
            case ("plan", other):
                # The earlier commit takes live Pods for known, whatever counted apart when they were.
                is_alike = plans[other].counts_apart == plans[number].counts_apart
                number = other if is_alike and other not in GUARDED else number
                continue
            case ("tick",):
                steps = [("tick", tuple(policy.values()))]
            case ("propose", *_):
                steps = [*proposals(seen, step)]
            case _:
                steps = [step]
        for asked in steps:
            if is_earlier and is_done_alike(plans[number], asked):
                answer = earlier.run(name, number, clock.us, translate(asked))
                expected = forget_moment(asked, await run(memory, plans, number, asked, clock.us))
            else:
                answer = await run(stage.store, plans, number, asked, clock.us)
                expected = await run(memory, plans, number, asked, clock.us)
            assert plain(answer) == plain(expected), (is_earlier, asked)
        view = (await memory.snapshot(plans[number])).breaker
        seen += [view] if view is not None else []


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module", params=names())
def pair(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> Iterator[tuple[Stage, EarlierStore]]:
    with open_stage(request.param, clock, shared_redis) as stage:
        url = shared_redis(request.param).url
        with earlier_store(check_out(EARLIER, with_tests=True), url) as earlier:
            yield stage, earlier


def taking_turns(steps: Sequence[Step]) -> list[Turn]:
    return [(number % 2 == 0, step) for number, step in enumerate(steps)]


FAILED = ("record_outcomes", [Outcomes(1, 19, 50_000)])
# The store of this tree trips by failures that the earlier one has counted; both probe and close.
TRIP_AND_RECOVER = taking_turns(
    [
        *(("acquire", uid, {"pods": 1}, "x", False, f"controller:{uid}") for uid in "ab"),
        FAILED,
        ("pause", SECOND_US),
        FAILED,
        ("pause", SECOND_US),
        ("snapshot", ""),
        ("tick",),
        ("tick",),
        ("snapshot", ""),
        ("pause", 4 * SECOND_US),
        *(("acquire", uid, {"pods": 1}, "x", False, f"controller:{uid}") for uid in "cd"),
        *(("record_outcomes", [Outcomes(1, 0, 0, uid)]) for uid in "cd"),
        ("refund", "a"),
        ("refund", "a"),
        ("snapshot", ""),
    ]
)


def test_both_commits_agree_on_charges_and_breakers(pair: tuple[Stage, EarlierStore], clock: HandClock) -> None:
    stage, earlier = pair

    @given(
        first=st.sampled_from(sorted({*BREAKER_PLANS} - GUARDED)),
        turns=st.lists(st.tuples(st.booleans(), BREAKER_STEPS), min_size=20, max_size=60),
    )
    @example(first=0, turns=TRIP_AND_RECOVER)
    @settings(max_examples=count_examples(stage.kind, EXAMPLES))
    def compare(first: int, turns: list[Turn]) -> None:
        _compare(stage, earlier, clock, first, turns)

    compare()


def test_both_commits_agree_on_live_pods(pair: tuple[Stage, EarlierStore], clock: HandClock) -> None:
    stage, earlier = pair

    @given(
        first=st.sampled_from(sorted({*LIVE_PLANS} - GUARDED)),
        turns=st.lists(st.tuples(st.booleans(), LIVE_STEPS), min_size=20, max_size=60),
    )
    @settings(max_examples=count_examples(stage.kind, EXAMPLES))
    def compare(first: int, turns: list[Turn]) -> None:
        _compare(stage, earlier, clock, first, [(True, ("mark_complete",)), *turns])

    compare()


def test_the_earlier_commit_refunds_a_pod_of_a_guarantee_to_the_pool(
    pair: tuple[Stage, EarlierStore], clock: HandClock
) -> None:
    """It leaves the member's own use, which leaves with the window: the limit of the pool holds all the same."""
    stage, earlier = pair
    clock.us = START_US
    name = stage.name()
    guaranteed = next(plan for plan in PLANS if plan.has_guarantees and plan.service == "payment-api")
    without = next(
        number
        for number, plan in enumerate(PLANS)
        if plan.pool is not None and plan.service == "payment-api" and not plan.has_guarantees
    )
    plan = plan_of_example(guaranteed, name)

    async def read_pool() -> list[tuple[int, int]]:
        uses = (await stage.store.snapshot(plan)).pool
        return [(use.used, use.guarantee.used) for use in uses if use.resource == "pods" and use.guarantee is not None]

    def acquire(uid: str) -> Step:
        return "acquire", uid, {"pods": 1}, "x", False, "controller:a"

    async def run_both() -> None:
        assert (await run_step(stage.store, plan, acquire("a"), clock.us)).charged
        assert await read_pool() == [(1, 1), (1, 1)]
        assert earlier.run(name, without, clock.us, ("refund", "a")) is True
        assert await read_pool() == [(0, 1), (0, 1)]
        earlier.run(name, without, clock.us, acquire("b"))
        assert await read_pool() == [(1, 1), (1, 1)]
        assert await stage.store.refund(plan, "b")
        assert await read_pool() == [(0, 1), (0, 1)]

    stage.runner.run(run_both())


def test_the_earlier_commit_leaves_a_live_pod_of_a_pool_to_the_repair(
    pair: tuple[Stage, EarlierStore], clock: HandClock
) -> None:
    """It knows no live Pods of pools: the controller finds the Pod in the store only, and drops it."""
    stage, earlier = pair
    clock.us = START_US
    name = stage.name()
    limited = next(plan for plan in PLANS if plan.pool_standing is not None and plan.service == "payment-api")
    without = next(
        number
        for number, plan in enumerate(PLANS)
        if plan.pool is not None and plan.service == "payment-api" and number not in GUARDED
    )
    plan = plan_of_example(limited, name)

    async def run_both() -> None:
        for uid in "ab":
            assert (await run_step(stage.store, plan, ("acquire", uid, {"pods": 1}, "x", False, "user:a"), 0)).charged
        assert earlier.run(name, without, clock.us, ("refund", "a")) is True
        held = await run_step(stage.store, plan, ("stand of pool",), 0)
        assert (set(held), held["a"].service) == ({"a"}, plan.service), "only b is still waited for"
        await run_step(stage.store, plan, ("drop", [("a", "")]), 0)
        assert await run_step(stage.store, plan, ("stand of pool",), 0) == {}
        uses = [use for use in (await stage.store.snapshot(plan)).pool if use.resource == "pods"]
        assert [(use.window, use.used) for use in uses] == [("1s", 1), ("64s", 1), ("standing", 1)]

    stage.runner.run(run_both())


def _compare(stage: Stage, earlier: EarlierStore, clock: HandClock, first: int, turns: Sequence[Turn]) -> None:
    clock.us = START_US
    stage.reports.clear()
    stage.runner.run(compare_turns(stage, earlier, clock, first, [*turns]))
    assert stage.reports == []
