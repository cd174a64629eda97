"""Steps that compare stores: Hypothesis strategies, and their execution."""

from typing import Any, Protocol

from hypothesis import strategies as st

from tests.contract.counter_store import SECOND_US
from tests.contract.store_plans import BREAKER_PLANS, GUARDED, LATE_US, LIVE_PLANS, PLANS
from webhook.core.breaker.outcome_types import Outcomes, Start
from webhook.core.quota import Acquire, AcquireGroup, Booking, CounterPlan, GroupMember, PoolPod, Sighting
from webhook.ports import BreakerLedger, CounterStore, GroupCharges, PodLedger

TEN_MINUTES_US = 600 * SECOND_US
"""How long surge stays open, and how long unconfirmed limits are enforced."""


class Store(CounterStore, GroupCharges, PodLedger, BreakerLedger, Protocol):
    """The interface of both stores."""

    async def withdraw(self, request: Acquire, charged_us: int | None) -> bool: ...

    async def find_charged_us(self, request: Acquire) -> int | None: ...


Step = tuple[Any, ...]
UIDS = st.sampled_from("abcdefgh")
SOURCES = st.sampled_from(["controller:x", "controller:y", "controller:z", "user:x", "user:y", ""])
COSTS = st.fixed_dictionaries(
    {"pods": st.just(1)},
    optional={"requests.cpu": st.integers(0, 400), "requests.memory": st.integers(0, 60)},
)
PAUSES_US = st.one_of(
    st.integers(0, 20_000), st.integers(0, 3 * SECOND_US), st.sampled_from([15_625, SECOND_US, 70 * SECOND_US])
)
AGES_US = st.one_of(st.just(0), st.integers(-1000, 2 * SECOND_US), st.sampled_from([LATE_US - 1, LATE_US, LATE_US + 1]))
OUTCOMES = st.builds(
    Outcomes,
    succeeded=st.sampled_from([0, 0, 1, 3]),
    failed=st.sampled_from([0, 0, 1, 2]),
    latency_us=st.integers(0, 3_000_000),
    uid=st.none() | UIDS,
    generation=st.none() | st.integers(0, 3),
    age_us=st.just(0) | AGES_US,
)
STARTS = st.builds(Start, uid=UIDS, ok=st.booleans(), latency_us=st.integers(0, 3_000_000), age_us=AGES_US)
GROUPS = st.lists(st.tuples(UIDS, COSTS), min_size=1, max_size=4, unique_by=lambda member: member[0])
STEPS = st.one_of(
    st.tuples(st.just("acquire group"), GROUPS, st.sampled_from("xyz"), SOURCES),
    st.tuples(st.just("acquire"), UIDS, COSTS, st.sampled_from("xyz"), st.booleans(), SOURCES),
    st.tuples(st.just("acquire"), UIDS, COSTS, st.sampled_from("xyz"), st.just(False), SOURCES),  # noqa: FBT003
    st.tuples(st.just("resize"), UIDS, COSTS, COSTS, st.booleans()),
    st.tuples(st.just("refund"), UIDS),
    st.tuples(st.just("withdraw"), UIDS, st.sampled_from("xyz"), st.none() | PAUSES_US),
    st.tuples(st.just("knows"), UIDS, st.booleans()),
    st.tuples(st.just("withdraw"), UIDS, st.just("x"), st.sampled_from([None, 0])),
    st.tuples(st.just("book"), st.lists(st.tuples(UIDS, COSTS, st.sampled_from("xyz"), PAUSES_US), max_size=3)),
    st.tuples(st.just("record_outcomes"), st.lists(OUTCOMES, max_size=3)),
    st.tuples(
        st.just("observe"),
        st.lists(
            st.tuples(
                *(UIDS, COSTS, st.sampled_from("xyz"), st.booleans(), st.none() | PAUSES_US, st.booleans()),
                st.none() | COSTS,
            ),
            max_size=3,
            unique_by=lambda pod: pod[0],
        ),
    ),
    st.tuples(st.just("overdue"), st.sampled_from([0, 1, SECOND_US, 3 * SECOND_US]), st.sampled_from([1, 3, 100])),
    st.tuples(st.just("stop_waiting"), st.lists(UIDS, max_size=3, unique=True)),
    st.tuples(st.just("mark_complete")),
    st.tuples(st.just("mark_pool_complete")),
    st.tuples(st.just("drop"), st.lists(st.tuples(UIDS, st.sampled_from(["", "web", "payment-api"])), max_size=2)),
    st.tuples(st.just("stand of pool")),
    st.tuples(st.just("reset"), st.sampled_from([-SECOND_US, 0, 1, SECOND_US]), st.sampled_from([None, 1, 2, 64])),
    st.tuples(st.just("stand")),
    st.tuples(st.just("snapshot"), st.sampled_from(["", "x", "z"])),
    st.tuples(st.just("tick")),
    st.tuples(st.just("plan"), st.sampled_from(range(len(PLANS)))),
    st.tuples(st.just("pause"), PAUSES_US),
    st.tuples(st.just("pause"), st.sampled_from([TEN_MINUTES_US - 1, TEN_MINUTES_US, 6 * TEN_MINUTES_US])),
    # The store's clock steps back, and stays behind or catches up.
    st.tuples(st.just("pause"), st.sampled_from([-1, -SECOND_US, -3 * SECOND_US, -40 * SECOND_US, 11 * SECOND_US])),
)


SIGHTINGS = st.tuples(
    st.just("observe"),
    st.lists(
        st.tuples(
            *(UIDS, COSTS, st.sampled_from("xy"), st.booleans(), st.none() | PAUSES_US, st.just(True)),  # noqa: FBT003
            st.none() | COSTS,
        ),
        min_size=1,
        max_size=2,
        unique_by=lambda pod: pod[0],
    ),
)
ASKS = st.tuples(st.just("acquire"), UIDS, COSTS, st.sampled_from("xy"), st.just(False), SOURCES)  # noqa: FBT003
LIVE_STEPS = st.one_of(
    ASKS,
    ASKS,
    SIGHTINGS,
    SIGHTINGS,
    STEPS,
    st.tuples(st.just("mark_complete")),
    st.tuples(st.just("mark_pool_complete")),
    st.tuples(st.just("stand of pool")),
    st.tuples(st.just("plan"), st.sampled_from(LIVE_PLANS)),
    st.tuples(st.just("pause"), st.sampled_from([70 * SECOND_US, TEN_MINUTES_US - 1, TEN_MINUTES_US])),
)
"""Windows have mostly expired between two of these: then limits on live Pods deny."""

FAILURES = st.builds(Outcomes, st.just(0), st.integers(1, 20), st.just(0), st.none() | UIDS, st.none(), AGES_US)
BREAKER_ASKS = st.tuples(st.just("acquire"), UIDS, st.just({"pods": 1}), st.just("x"), st.just(False), SOURCES)  # noqa: FBT003
BREAKER_STEPS = st.one_of(
    STEPS,
    BREAKER_ASKS,
    BREAKER_ASKS,
    st.tuples(st.just("record_outcomes"), st.lists(OUTCOMES, max_size=4)),
    st.tuples(st.just("record_outcomes"), st.lists(FAILURES, min_size=1, max_size=3)),
    st.tuples(st.just("started"), st.lists(STARTS, min_size=1, max_size=4)),
    st.tuples(st.just("started"), st.lists(STARTS, min_size=1, max_size=4)),
    st.tuples(st.just("suppress_quota_events"), st.lists(SOURCES, max_size=3)),
    st.tuples(st.just("by hand"), st.none() | st.sampled_from([0, 1, SECOND_US, 4 * SECOND_US, -5 * SECOND_US])),
    st.tuples(st.just("propose"), st.integers(0, 5), st.integers(-1, 3), st.integers(0, 3), st.integers(0, 1)),
    st.tuples(st.just("propose"), st.integers(0, 5), st.integers(-1, 3), st.just(0), st.just(0)),
    st.tuples(st.just("snapshot"), st.just("")),
    st.tuples(st.just("plan"), st.sampled_from(BREAKER_PLANS)),
    st.tuples(st.just("pause"), st.sampled_from([SECOND_US // 2, SECOND_US, SECOND_US, 3 * SECOND_US, 4 * SECOND_US])),
)
GUARD_STEPS = st.one_of(
    st.tuples(st.just("service"), st.integers(0, len(GUARDED) - 1)),
    BREAKER_ASKS,
    st.tuples(st.just("record_outcomes"), st.lists(FAILURES, min_size=1, max_size=3)),
    st.tuples(st.just("record_outcomes"), st.lists(OUTCOMES, max_size=4)),
    st.tuples(st.just("started"), st.lists(STARTS, min_size=1, max_size=4)),
    st.tuples(st.just("by hand"), st.none() | st.sampled_from([0, SECOND_US])),
    st.tuples(st.just("snapshot"), st.just("")),
    st.tuples(st.just("pause"), st.sampled_from([LATE_US, SECOND_US, SECOND_US, 3 * SECOND_US])),
)


async def run_ledger_step(store: PodLedger, plan: CounterPlan, step: Step, now_us: int) -> Any:
    """Run a step of the watch of Pods."""
    match step:
        case ("observe", shown):
            sightings = [
                Sighting(
                    *(namespace, f"{uid}-pod", uid, cost, lives, 0 if ago_us is None else now_us - ago_us, is_sure),
                    live_cost=live_cost,
                )
                for uid, cost, namespace, lives, ago_us, is_sure, live_cost in shown
            ]
            return list(await store.observe(plan, sightings))
        case ("overdue", age_us, most):
            return list(await store.list_overdue(plan, age_us, most))
        case ("stop_waiting", uids):
            return await store.stop_waiting(plan, uids)
        case ("mark_complete",):
            return await store.mark_complete(plan, await store.list_scopes(plan))
        case ("reset", ahead_us, seconds):
            return await store.reset(plan, now_us + ahead_us, seconds)
    return {scope: await list_live_uids(store, plan, scope) for scope in await store.list_scopes(plan)}


async def list_live_uids(store: PodLedger, plan: CounterPlan, scope: str) -> set[str]:
    """Return the live Pods of all pages; pages have no order, and may repeat a Pod."""
    found, after = await store.list_live(plan, scope)
    uids = set(found)
    while after:
        found, after = await store.list_live(plan, scope, after)
        uids |= set(found)
    return uids


POOL_STEPS = frozenset({"mark_pool_complete", "drop", "stand of pool"})


async def run_pool_step(store: PodLedger, plan: CounterPlan, step: Step) -> Any:
    """Run a step on the live Pods of a pool."""
    match step:
        case ("mark_pool_complete",):
            return await store.mark_pool_complete(plan)
        case ("drop", pods):
            return await store.drop_pool_pods(plan, [PoolPod(uid, name_member(plan, of)) for uid, of in pods])
    return await list_pool_pods(store, plan)


def name_member(plan: CounterPlan, name: str) -> str:
    """Return the service itself, or another one of its example."""
    return f"{name}-{plan.service.rpartition('-')[2]}" if name else plan.service


async def list_pool_pods(store: PodLedger, plan: CounterPlan) -> dict[str, PoolPod]:
    """Return the live Pods of the plan's pool, by uid, of all pages."""
    pods, after = await store.list_pool_live(plan)
    found = {pod.uid: pod for pod in pods}
    while after:
        pods, after = await store.list_pool_live(plan, after)
        found |= {pod.uid: pod for pod in pods}
    return found


async def run_step(store: Store, plan: CounterPlan, step: Step, now_us: int) -> Any:
    if step[0] == "acquire group":
        return await run_group_step(store, plan, step)
    if step[0] in POOL_STEPS:
        return await run_pool_step(store, plan, step)
    return await run_single_step(store, plan, step, now_us)


async def run_single_step(  # noqa: PLR0911  one answer for each kind of step
    store: Store, plan: CounterPlan, step: Step, now_us: int
) -> Any:
    match step:
        case ("book", asked):
            # The same uid twice is the same Pod, and answers may come in any order.
            bookings = {uid: Booking(scope, uid, cost, now_us - ago_us) for uid, cost, scope, ago_us in asked}
            return await store.book(plan, tuple(bookings.values()))
        case ("acquire", uid, cost, namespace, peek, source):
            return await store.acquire(Acquire(plan, namespace, uid, cost, source, peek=peek, name=f"{uid}-pod"))
        case ("resize", uid, old, new, peek):
            return await store.acquire(Acquire(plan, "x", uid, new, "user:x", peek=peek, resize_from=old))
        case ("refund", uid):
            return await store.refund(plan, uid)
        case ("withdraw", uid, namespace, ago_us):
            at_us = None if ago_us is None else now_us - ago_us
            return await store.withdraw(Acquire(plan, namespace, uid, {"pods": 1}, ""), at_us)
        case ("knows", uid, peek):
            return await store.find_charged_us(Acquire(plan, "x", uid, {"pods": 1}, "", peek=peek))
        case ("record_outcomes", outcomes):
            return tuple(await store.record_outcomes(plan, outcomes))
        case ("snapshot", namespace):
            return await store.snapshot(plan, namespace)
        case ("started" | "suppress_quota_events" | "by hand", asked):
            return await run_leader_step(store, plan, step[0], asked, now_us)
    return await run_ledger_step(store, plan, step, now_us)


async def run_group_step(store: GroupCharges, plan: CounterPlan, step: Step) -> Any:
    """Charge Pods together."""
    _, pods, namespace, source = step
    members = tuple(GroupMember(uid, f"{uid}-pod", cost, source) for uid, cost in pods)
    return await store.acquire_group(AcquireGroup(plan, namespace, members))


async def run_leader_step(store: BreakerLedger, plan: CounterPlan, kind: str, asked: Any, now_us: int) -> Any:
    """Run a step of the leader."""
    if kind == "started":
        settlements, moves = await store.record_starts(plan, asked)
        return list(settlements), list(moves)
    if kind == "suppress_quota_events":
        return await store.suppress_quota_events(plan, asked)
    return list(await store.apply_override(plan, 0 if asked is None else now_us - asked))
