"""Attempts to mislead a breaker, on every store: each must have no effect."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.contract.counter_store import BREAKER, ONE, SECOND_US, HandClock, ask, clock, read_state, store, trip
from tests.core.plans import plan_of, standing, window
from tests.redis_servers import RedisServer
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.adapters.redis_store.keys import PlanKeys, channel_of
from webhook.adapters.redis_store.operations import ScriptOperation
from webhook.core.breaker import BreakerView, Forcing, QuotaEventPlan, State, TransitionCause
from webhook.core.breaker.outcome_types import Outcomes, Settlement, Start
from webhook.core.ledger.store_time import PATIENCE_US
from webhook.core.quota import CounterPlan, DeniedBy, PoolPlan
from webhook.ports import CounterStore, StoreReports

__all__ = ["clock", "store"]

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = plan_of(breaker=BREAKER)
STARTS = replace(BREAKER, error_rate=replace(BREAKER.error_rate, consecutive=1, minimum=1), latency=None)
STARTING = plan_of(breaker=STARTS)
EVENTS = QuotaEventPlan(count=5, within_us=60 * SECOND_US, by_controller=True)
SHARED = PoolPlan("shared", (window(60, pods=1000),))
NEIGHBOURS = tuple(
    plan_of(service=f"s-{number}", tag="shared", pool=SHARED, breaker=replace(STARTS, open_max=2))
    for number in range(4)
)


async def open_by_a_failed_start(store: Any, clock: HandClock) -> None:
    """Open the breaker by a failed start of controller `bad`."""
    await ask(store, STARTING, "bad-pod", event_source="controller:bad")
    await store.record_starts(STARTING, [Start("bad-pod", ok=False, latency_us=0)])
    clock.sleep(1)
    (move,) = await store.tick([STARTING])
    assert move.new is State.OPEN


async def read_view(store: CounterStore, plan: CounterPlan) -> BreakerView:
    seen = (await store.snapshot(plan)).breaker
    assert seen is not None
    return seen


# The guard


async def test_due_trip_is_not_held_by_itself(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(breaker=replace(BREAKER, open_max=1))
    await store.tick([plan])
    await trip(store, clock, plan)
    assert await read_state(store, plan) is State.OPEN
    await ask(store, plan, "looks", peek=True)
    (move,) = await store.tick([plan])
    assert (move.old, move.new) == (State.CLOSED, State.OPEN)


async def test_due_trips_open_no_more_breakers_than_the_guard_allows(store: CounterStore, clock: HandClock) -> None:
    await store.tick(NEIGHBOURS)
    for plan in NEIGHBOURS:
        assert (await ask(store, plan, plan.service)).charged
        await store.record_outcomes(plan, [Outcomes(0, 1, 0)])
    clock.sleep(1)
    for plan in NEIGHBOURS:
        assert await read_state(store, plan) is State.OPEN, "the trip is due"
        await ask(store, plan, "looks", peek=True)
        assert (await ask(store, plan, plan.service)).repeated
        await ask(store, plan, "grows", resize_from=ONE)
        assert store.find_known_breaker(plan) is None
    moves = await store.tick(NEIGHBOURS)
    assert [move.is_change for move in moves] == [True, True, False, False]
    for _ in range(2):
        states = [await read_state(store, plan) for plan in NEIGHBOURS]
        assert states == [State.OPEN, State.OPEN, State.CLOSED, State.CLOSED]
        assert await store.tick(NEIGHBOURS) in ((), [])


async def test_trips_in_one_batch_open_no_more_breakers_than_the_guard_allows(
    store: CounterStore, clock: HandClock
) -> None:
    await store.tick(NEIGHBOURS)
    for plan in NEIGHBOURS:
        await store.record_outcomes(plan, [Outcomes(0, 1, 0)])
    clock.sleep(1)
    moves = await store.tick(NEIGHBOURS)
    assert [(move.new, move.is_held_back) for move in moves] == [
        (State.OPEN, False),
        (State.OPEN, False),
        (State.CLOSED, True),
        (State.CLOSED, True),
    ]
    clock.sleep(180)
    await asyncio.gather(*(ask(store, plan, f"{plan.service}-{uid}") for plan in NEIGHBOURS[:2] for uid in "abc"))
    for plan in NEIGHBOURS[:1]:
        await store.record_outcomes(plan, [Outcomes(3, 0, 0)])
    for plan in NEIGHBOURS[2:]:
        await store.record_outcomes(plan, [Outcomes(0, 1, 0)])
    clock.sleep(1)
    moves = await store.tick(NEIGHBOURS)
    assert [move.service for move in moves if move.new is State.OPEN] == ["s-2"]
    assert [move.service for move in moves if not move.is_change] == ["s-3"]


async def test_breaker_removed_from_the_policy_is_not_counted_as_open(store: CounterStore, clock: HandClock) -> None:
    first, second, third, _ = NEIGHBOURS
    await store.tick(NEIGHBOURS)
    for plan in (first, second):
        await store.record_outcomes(plan, [Outcomes(0, 1, 0)])
    clock.sleep(1)
    await store.tick(NEIGHBOURS)
    without = replace(first, breaker=None)
    await store.tick([without, second, third])
    await store.record_outcomes(third, [Outcomes(0, 1, 0)])
    clock.sleep(1)
    moves = await store.tick([without, second, third])
    assert [(move.service, move.new) for move in moves] == [("s-2", State.OPEN)]


# Neighbours in a pool


async def churn(store: Any, plan: CounterPlan, name: str) -> None:
    """Ask for Pods of more controllers than trip the breaker, all denied by quota."""
    for number in range(5):
        assert (await ask(store, plan, f"{name}-{number}")).refused is DeniedBy.QUOTA


async def test_full_pool_trips_no_breaker_of_a_neighbour(store: Any) -> None:
    full = PoolPlan("shared", (window(60, pods=2),))
    greedy, idle = (plan_of(service=name, tag="shared", pool=full, breaker=BREAKER) for name in ("greedy", "idle"))
    limited = replace(idle, windows=(window(60, pods=1), window(64, pods=9)), standing=standing(pods=9))
    for uid in "ab":
        assert (await ask(store, greedy, uid)).charged
    await store.mark_complete(limited, [""])
    for plan in (idle, limited):
        await churn(store, plan, "by-the-pool")
        assert await read_state(store, plan) is State.CLOSED


@pytest.mark.parametrize("own", [{"windows": (window(60, pods=0),)}, {"standing": standing(pods=0)}])
async def test_denial_by_an_own_limit_and_the_pool_trips_the_own_breaker(store: Any, own: dict[str, Any]) -> None:
    full = PoolPlan("shared", (window(60, pods=0),))
    plan = plan_of(service="over", tag="shared", pool=full, breaker=replace(BREAKER, quota=EVENTS), **own)
    await store.mark_complete(plan, [""])
    await churn(store, plan, "by-both")
    assert await read_state(store, plan) is State.OPEN


# Proposals


async def test_remembered_close_does_not_erase_a_due_trip(store: CounterStore, clock: HandClock) -> None:
    await trip(store, clock, PLAN)
    await store.propose(PLAN, BreakerView(State.CLOSED, 1, clock.us))
    (move,) = await store.tick([PLAN])
    assert (move.old, move.new) == (State.CLOSED, State.OPEN)


async def test_close_of_an_old_generation_does_not_erase_a_newer_trip(store: CounterStore, clock: HandClock) -> None:
    closed = await read_view(store, PLAN)
    await trip(store, clock, PLAN)
    await store.tick([PLAN])
    before = await read_view(store, PLAN)
    await store.propose(PLAN, closed)
    await store.propose(PLAN, replace(closed, generation=1))
    assert await read_view(store, PLAN) == before


async def test_close_known_before_a_loss_does_not_erase_a_later_trip(store: CounterStore, clock: HandClock) -> None:
    await trip(store, clock, PLAN)
    await store.tick([PLAN])
    before = await read_view(store, PLAN)
    closed = BreakerView(State.CLOSED, 20, clock.us - 9, tripped_at_us=clock.us - 3600 * SECOND_US, tripped_by="before")
    await store.propose(PLAN, closed)
    after = await read_view(store, PLAN)
    assert after == replace(before, generation=21, passed=after.passed), "its generation is above the proposed one"
    await store.propose(PLAN, closed)
    assert await read_view(store, PLAN) == after


async def test_reset_is_not_undone_by_an_earlier_state(store: Any, clock: HandClock) -> None:
    await trip(store, clock, PLAN)
    await store.tick([PLAN])
    opened = replace(await read_view(store, PLAN), generation=7)
    clock.sleep(1)
    await store.apply_override(PLAN, reset_at_us=clock.us)
    await store.propose(PLAN, opened)
    assert await read_state(store, PLAN) is State.CLOSED
    await store.propose(
        PLAN, replace(opened, generation=30, since_us=clock.us, open_until_us=clock.us + 60 * SECOND_US)
    )
    assert await read_state(store, PLAN) is State.OPEN


async def test_proposed_open_state_of_the_past_ends_at_once(store: CounterStore, clock: HandClock) -> None:
    until_us = clock.us - 5
    await store.propose(PLAN, BreakerView(State.OPEN, 7, clock.us - 9, until_us, "remembered"))
    seen = await read_view(store, PLAN)
    assert (seen.state, seen.generation, seen.since_us) == (State.HALF_OPEN, 8, until_us)


# Pods


async def test_start_is_counted_once_through_resize_and_refund(store: Any) -> None:
    await ask(store, STARTING, "a", {"pods": 1, "requests.cpu": 5})
    start = Start("a", ok=False, latency_us=0)
    assert (await store.record_starts(STARTING, [start, start]))[0] == [Settlement.COUNTED, Settlement.REPEATED]
    await ask(store, STARTING, "a", {"pods": 1, "requests.cpu": 9}, resize_from={"pods": 1, "requests.cpu": 5})
    assert (await store.record_starts(STARTING, [start]))[0] == [Settlement.REPEATED]
    await store.refund(STARTING, "a")
    assert (await store.record_starts(STARTING, [start]))[0] == [Settlement.UNKNOWN]


async def test_start_of_a_neighbours_or_unknown_pod_is_not_counted(store: Any, clock: HandClock) -> None:
    first, second, *_ = NEIGHBOURS
    await ask(store, second, "theirs")
    starts = [Start(uid, ok=False, latency_us=0) for uid in ("theirs", "nobodys")]
    assert (await store.record_starts(first, starts))[0] == [Settlement.UNKNOWN] * 2
    assert (await store.record_starts(second, starts))[0] == [Settlement.COUNTED, Settlement.UNKNOWN]
    clock.sleep(1)
    moves = await store.tick([first, second])
    assert [move.service for move in moves] == ["s-1"]


async def test_refunded_early_probe_frees_its_lease_once(store: Any, clock: HandClock) -> None:
    await open_by_a_failed_start(store, clock)
    new = {"event_source": "controller:new"}
    refused = (await ask(store, STARTING, "x", event_source="controller:bad")).refused
    assert refused is DeniedBy.BREAKER
    for uid in "abc":
        assert (await ask(store, STARTING, uid, **new)).charged
    assert (await ask(store, STARTING, "d", **new)).refused is DeniedBy.BREAKER
    assert [await store.refund(STARTING, "b") for _ in range(2)] == [False, False]
    assert (await read_view(store, STARTING)).early == 1
    assert (await ask(store, STARTING, "d", **new)).charged
    assert (await ask(store, STARTING, "e", **new)).refused is DeniedBy.BREAKER


async def test_refund_of_an_expired_early_probe_frees_no_lease(store: Any, clock: HandClock) -> None:
    await open_by_a_failed_start(store, clock)
    brief = replace(STARTING, breaker=replace(STARTS, probe_timeout_us=SECOND_US))
    assert (await ask(store, brief, "a", event_source="controller:new")).charged
    clock.sleep(1)  # expired, without a tick
    await store.refund(brief, "a")
    assert (await read_view(store, brief)).early == STARTS.probes - 1
    [move] = await store.tick([brief])
    assert (move.cause, move.at_us) == (TransitionCause.PROBE_EXPIRED, clock.us)


async def test_successful_early_probes_close_the_breaker_before_its_time(store: Any, clock: HandClock) -> None:
    await open_by_a_failed_start(store, clock)
    for uid in "abc":
        await ask(store, STARTING, uid, event_source="controller:old-revision")
    settlements, (move,) = await store.record_starts(STARTING, [Start(uid, ok=True, latency_us=0) for uid in "abc"])
    assert settlements == [Settlement.COUNTED] * 3
    assert (move.old, move.new, move.reason) == (State.OPEN, State.CLOSED, "3 early probes succeeded")


async def test_start_of_a_pod_admitted_before_the_trip_is_stale(store: Any, clock: HandClock) -> None:
    await ask(store, STARTING, "old")
    await open_by_a_failed_start(store, clock)
    clock.sleep(180)
    await ask(store, STARTING, "probe")
    before = await read_view(store, STARTING)
    assert await store.record_starts(STARTING, [Start("old", ok=False, latency_us=0)]) == ([Settlement.STALE], [])
    assert await read_view(store, STARTING) == before


# Overrides


async def test_twenty_thousand_sources_can_be_suppressed(store: Any) -> None:
    plan = plan_of(window(60, pods=1), breaker=BREAKER)
    await store.suppress_quota_events(plan, [f"controller:{number}" for number in range(20_000)])
    for uid in "abcdef":
        await ask(store, plan, uid)
    assert await read_state(store, plan) is State.CLOSED


async def test_forced_breaker_leases_no_probe_and_forgets_earlier_leases(store: Any, clock: HandClock) -> None:
    await trip(store, clock, PLAN)
    clock.sleep(180)
    for uid in "ab":
        await ask(store, PLAN, uid)
    forced = plan_of(breaker=replace(BREAKER, forcing=Forcing(State.FORCED_CLOSED, clock.us + SECOND_US, "INC-1")))
    assert (await ask(store, forced, "c")).charged
    assert (await store.record_outcomes(forced, [Outcomes(0, 9, 0)])) in ((), [])
    (move,) = await store.apply_override(forced)
    assert (move.old, move.new) == (State.HALF_OPEN, State.FORCED_CLOSED)
    clock.sleep(1)
    (move,) = await store.tick([PLAN])
    assert (move.old, move.new, move.reason) == (State.FORCED_CLOSED, State.CLOSED, "until has passed")
    assert await store.record_outcomes(PLAN, [Outcomes.from_single(ok=False, latency_us=0, uid="a", generation=2)]) in (
        (),
        [],
    )
    assert (await read_view(store, PLAN)).probes_leased == 0


# Redis alone


async def redis_store(
    server: RedisServer, clock: HandClock, time_us: Callable[[], int] | None, late_us: int = 0
) -> RedisStore:
    reports, link = StoreReports(int, str, str), open_transport(server.url)
    return RedisStore(link, "test", clock, reports, deadline_seconds=30, time_us=time_us, late_us=late_us)


async def test_source_of_an_uncounted_failure_is_not_recorded(redis_server: RedisServer, clock: HandClock) -> None:
    store = await redis_store(redis_server, clock, clock.now_us, 300_000)
    for uid, ok, then in (("long-ago", False, 0.0), ("good", True, 1.1), ("bad", False, 1.3)):
        await ask(store, STARTING, uid)
        await store.record_starts(STARTING, [Start(uid, ok, 0)])
        clock.sleep(then)
    (move,) = await store.tick([STARTING])
    assert (move.new, (await read_view(store, STARTING)).failed) == (State.OPEN, ("controller:bad",))
    await store.close()


async def test_records_of_an_older_version_are_read(redis_server: RedisServer, clock: HandClock) -> None:
    store, keys = (
        await redis_store(redis_server, clock, clock.now_us),
        PlanKeys.from_plan("test", PLAN, "payment-api", fleet=False),
    )
    now_us = clock.us
    half_open = ["HALF_OPEN", 2, now_us - 5, 0, "openFor passed", 1, [["a", now_us + SECOND_US]], False, False, []]
    counting = ["CLOSED", 0, 0, 0, "", 0, [], [SECOND_US, now_us // SECOND_US, 12, 12, 2], False, [[now_us, "user:x"]]]
    pod = [now_us + 60 * SECOND_US, now_us, 2, True, False, "payment-api", "", False, '{"pods":1}', False, "[[],[]]"]
    with redis_server.client() as client:
        client.set(keys.breaker, msgspec.msgpack.encode(half_open))
        client.set(keys.pod("a"), msgspec.msgpack.encode(pod) + b"payments/a")
        seen = await read_view(store, PLAN)
        assert (seen.state, seen.generation, seen.probes_leased, seen.tripped_by) == (State.HALF_OPEN, 2, 1, "")
        assert await store.record_starts(PLAN, [Start("a", ok=True, latency_us=0)]) == ([Settlement.COUNTED], [])
        assert await store.record_starts(PLAN, [Start("a", ok=True, latency_us=0)]) == ([Settlement.REPEATED], [])
        assert (await read_view(store, PLAN)).probes_succeeded == 2
        client.set(keys.breaker, msgspec.msgpack.encode(counting))
        await store.record_outcomes(PLAN, [Outcomes(0, 1, 0)])
        clock.sleep(1)
        (move,) = await store.tick([PLAN])
    assert move.reason == "errorRate: >= 95% in each of 3 intervals of 1s, 13 of 13 in the last"
    await store.close()


async def test_transition_by_a_neighbours_refund_is_announced_for_its_own_service(
    redis_server: RedisServer, clock: HandClock
) -> None:
    first, second, *_ = (replace(plan, breaker=replace(STARTS, probe_timeout_us=SECOND_US)) for plan in NEIGHBOURS)
    store = await redis_store(redis_server, clock, None)
    with redis_server.client() as client:
        keys = PlanKeys.from_plan("test", first, first.service, fleet=False)
        ahead_us = 9_000_000_000 * SECOND_US
        opened = ["OPEN", 1, 5, 6, "tripped", 0, [["a", ahead_us, 1]], False, False, [], ["x"], 1, 5, "tripped", 0, []]
        pod = [ahead_us, 5, 1, True, False, first.service, "", False, '{"pods":1}', False, "[[],[]]", "", False]
        client.set(keys.breaker, msgspec.msgpack.encode(opened))
        client.set(keys.pod("a"), msgspec.msgpack.encode(pod) + b"payments/a")
        listener = client.pubsub(ignore_subscribe_messages=True)
        listener.subscribe(channel_of("test"))
        listener.get_message(timeout=5)
        refund = ScriptOperation(store._plans.prepare(second), "refund", refund_keys(first))
        await asyncio.gather(store._ticker._tick(first), store._lanes.get_lane(second.tag).ask(refund))
        message = None
        while message is None:
            message = listener.get_message(timeout=5)
        listener.close()
    tag, service, _, seen = msgspec.msgpack.decode(message["data"])
    assert (tag, service, seen[0]) == ("shared", first.service, "HALF_OPEN")
    await store.close()


async def test_time_record_lasts_as_long_as_the_breaker_record(redis_server: RedisServer, clock: HandClock) -> None:
    store = await redis_store(redis_server, clock, clock.now_us)
    until_us = clock.us + 7 * 86_400 * SECOND_US
    await store.apply_override(plan_of(breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, until_us, "INC-1"))))
    keys = PlanKeys.from_plan("test", PLAN, "payment-api", fleet=False)
    with redis_server.client() as client:
        home_ms, breaker_ms = client.pttl(keys.home), client.pttl(keys.breaker)
    assert home_ms >= breaker_ms > 7 * 86_400_000
    await store.close()


def refund_keys(plan: CounterPlan) -> tuple[str, ...]:
    """Return the keys of a refund of Pod `a`, as named by a caller that knows its charge."""
    keys = PlanKeys.from_plan("test", plan, plan.service, fleet=False)
    return keys.ring, keys.pod("a"), keys.home, keys.breaker, keys.live


async def test_override_ends_at_its_end_after_the_stores_clock_stepped_back(store: Any, clock: HandClock) -> None:
    plan = plan_of(window(60, pods=1000), breaker=BREAKER)
    await ask(store, plan, "a")
    clock.sleep(-40)
    await ask(store, plan, "b")
    clock.sleep(11)
    await ask(store, plan, "c")  # patience has ended: charges keep their times, and the clock is followed
    until_us = clock.us + 30 * SECOND_US
    forced = replace(plan, breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, until_us, "INC-1")))
    for is_applied in (False, True):
        if is_applied:
            await store.apply_override(forced)
        seen = await read_view(store, forced)
        assert (seen.state, seen.open_until_us) == (State.FORCED_OPEN, until_us)
    clock.us = until_us - 1
    assert (await read_view(store, plan)).state is State.FORCED_OPEN
    clock.us = until_us
    assert (await read_view(store, forced)).state is State.CLOSED


@pytest.mark.parametrize("windows", [(), (window(60, pods=100),)], ids=("no quota", "quota"))
async def test_open_breaker_ends_without_charges_after_the_clock_stepped_back(
    store: Any, clock: HandClock, windows: tuple[Any, ...]
) -> None:
    plan = plan_of(*windows, breaker=BREAKER)
    await ask(store, plan, "a")
    await trip(store, clock, plan)
    (move,) = await store.tick([plan])
    assert move.new is State.OPEN
    clock.sleep(-3600)
    open_seconds, patience_seconds = BREAKER.open_for_us // SECOND_US, PATIENCE_US // SECOND_US
    moves = []
    for _ in range(open_seconds + patience_seconds):
        assert (await read_view(store, plan)).state is State.OPEN
        moves += await store.tick([plan])
        clock.sleep(1)
    assert moves == []
    (move,) = await store.tick([plan])
    assert (move.new, move.at_us) == (State.HALF_OPEN, clock.us)


async def test_time_never_precedes_a_transition(store: Any, clock: HandClock) -> None:
    until_us = clock.us + 3600 * SECOND_US
    forced = plan_of(breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, until_us, "INC-1")))
    offered = plan_of(service="offered", tag="offered", breaker=BREAKER)
    await store.apply_override(forced)
    await store.propose(offered, BreakerView(State.OPEN, 3, clock.us, until_us, "remembered"))
    moved_us = clock.us
    clock.sleep(-3600)
    for plan in (forced, offered):
        assert (await store.snapshot(plan)).at_us == moved_us
    await store.tick([plan_of(), replace(offered, breaker=None)])
    clock.sleep(11)
    await store.tick([plan_of(), replace(offered, breaker=None)])
    for plan in (forced, offered):
        assert (await store.snapshot(plan)).at_us == clock.us, "the clock is followed from there on"


async def test_outcome_from_the_future_counts_now(store: CounterStore, clock: HandClock) -> None:
    await store.record_outcomes(STARTING, [Outcomes(0, 1, 0, age_us=-3600 * SECOND_US)])
    clock.sleep(1)
    (move,) = await store.tick([STARTING])
    assert move.new is State.OPEN


async def test_outcome_before_a_reset_does_not_count(store: Any, clock: HandClock) -> None:
    clock.sleep(0.5)
    await store.apply_override(STARTING, clock.us)
    await store.record_outcomes(STARTING, [Outcomes(0, 1, 0, age_us=1)])
    clock.sleep(1)
    assert list(await store.tick([STARTING])) == []


async def test_reset_by_a_clock_ahead_is_done_once(store: Any, clock: HandClock) -> None:
    await trip(store, clock, PLAN)
    clock.sleep(0.5)
    asked_us = clock.us + 60 * SECOND_US
    (_, move) = await store.apply_override(PLAN, asked_us)
    assert (move.old, move.new) == (State.OPEN, State.CLOSED)
    for _ in range(3):
        await store.record_outcomes(PLAN, [Outcomes(0, 10, 0)])
        assert await store.apply_override(PLAN, asked_us) in ((), [])
        clock.sleep(1)
    (move,) = await store.apply_override(PLAN, asked_us)
    assert (move.old, move.new) == (State.CLOSED, State.OPEN)
    assert await store.apply_override(PLAN, asked_us) in ((), [])


async def test_reset_is_done_once_after_the_stores_clock_stepped_back(store: Any, clock: HandClock) -> None:
    plan = plan_of(window(60, pods=1000), breaker=BREAKER)
    asked_us = clock.us
    await store.apply_override(plan, asked_us)
    await ask(store, plan, "a")
    clock.sleep(-40)
    await ask(store, plan, "b")
    clock.sleep(11)
    await ask(store, plan, "c")  # the clock is followed from here on, 29 s behind the reset
    for _ in range(3):
        await store.record_outcomes(plan, [Outcomes(0, 10, 0)])
        assert await store.apply_override(plan, asked_us) in ((), [])
        clock.sleep(1)
    (move,) = await store.apply_override(plan, asked_us)
    assert (move.old, move.new) == (State.CLOSED, State.OPEN)


async def test_early_probe_continues_in_half_open_and_its_failure_reopens(store: Any, clock: HandClock) -> None:
    await open_by_a_failed_start(store, clock)
    await ask(store, STARTING, "a", event_source="controller:new")
    clock.sleep(180)
    assert (await read_view(store, STARTING)).probes_leased == 1
    settlements, moves = await store.record_starts(STARTING, [Start("a", ok=False, latency_us=0)])
    assert (settlements, [move.new for move in moves]) == ([Settlement.COUNTED], [State.HALF_OPEN, State.OPEN])
    assert (await read_view(store, STARTING)).failed == ("controller:bad", "controller:new")


async def test_of_two_failed_early_probes_only_the_one_after_open_for_reopens(store: Any, clock: HandClock) -> None:
    await open_by_a_failed_start(store, clock)
    for uid in "ab":
        await ask(store, STARTING, uid, event_source="controller:new")
    assert await store.record_starts(STARTING, [Start("a", ok=False, latency_us=0)]) == ([Settlement.COUNTED], [])
    seen = await read_view(store, STARTING)
    assert (seen.state, seen.generation, seen.probes_leased) == (State.OPEN, 1, 1)
    clock.sleep(180)
    _, moves = await store.record_starts(STARTING, [Start("b", ok=False, latency_us=0)])
    assert [(move.new, move.generation) for move in moves] == [(State.HALF_OPEN, 2), (State.OPEN, 3)]


async def test_successes_of_early_probes_count_after_open_for_only_if_they_end_there(
    store: Any, clock: HandClock
) -> None:
    await open_by_a_failed_start(store, clock)
    for uid in "ab":
        await ask(store, STARTING, uid, event_source="controller:new")
    await store.record_starts(STARTING, [Start("a", ok=True, latency_us=0)])
    assert (await read_view(store, STARTING)).probes_succeeded == 1
    clock.sleep(180)
    await store.record_starts(STARTING, [Start("b", ok=True, latency_us=0)])
    seen = await read_view(store, STARTING)
    assert (seen.state, seen.probes_succeeded) == (State.HALF_OPEN, 1)


async def test_expired_early_probe_is_reported_in_its_own_state(store: Any, clock: HandClock) -> None:
    await open_by_a_failed_start(store, clock)
    brief = replace(STARTING, breaker=replace(STARTS, probe_timeout_us=SECOND_US))
    await ask(store, brief, "a", event_source="controller:new")
    clock.sleep(1000)
    moves = await store.tick([brief])
    assert [(move.old, move.new) for move in moves] == [(State.OPEN, State.OPEN), (State.OPEN, State.HALF_OPEN)]
