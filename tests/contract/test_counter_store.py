"""Contract of `ports.CounterStore`, run against each implementation."""

from msgspec.structs import replace

from tests.contract.counter_store import BREAKER, SECOND_US, HandClock, ask, clock, read_state, read_usage, store, trip
from tests.core.plans import plan_of, window
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.redis_store import RedisStore
from webhook.core.breaker import Forcing, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.policy_fields import Mode
from webhook.core.quota import HOUR_US, Booking, DeniedBy
from webhook.ports import CounterStore

__all__ = ["clock", "store"]

pytest_plugins = ("tests.redis_servers.fixtures",)


async def test_window_fills_and_slides(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(64, pods=2))
    assert [(await ask(store, plan, uid)).charged for uid in "abc"] == [True, True, False]
    denied = await ask(store, plan, "d")
    assert (denied.refused, denied.free_at_us) == (DeniedBy.QUOTA, clock.us + 65 * SECOND_US)
    clock.sleep(65 - 1e-6)
    assert (await ask(store, plan, "e")).refused is DeniedBy.QUOTA
    clock.sleep(1e-6)
    assert (await ask(store, plan, "f")).charged
    assert await read_usage(store, plan) == {"": [1]}


async def test_pod_is_charged_to_all_windows_and_resources_or_none(store: CounterStore) -> None:
    plan = plan_of(window(60, pods=9, cpu=500), window(3600, pods=2))
    assert (await ask(store, plan, "a", {"pods": 1, "requests.cpu": 400})).charged
    denied = await ask(store, plan, "b", {"pods": 1, "requests.cpu": 200})
    assert [(use.window, use.resource, use.used, use.hard, use.asked) for use in denied.over] == [
        ("60s", "cpu", 400, 500, 200)
    ]
    assert await read_usage(store, plan) == {"": [1, 400, 1]}


async def test_amounts_are_exact_up_to_the_largest(store: CounterStore) -> None:
    plan = plan_of(window(60, memory=2**53))
    assert (await ask(store, plan, "a", {"requests.memory": 2**53 - 1})).charged
    assert (await ask(store, plan, "b", {"requests.memory": 2})).refused is DeniedBy.QUOTA
    assert (await ask(store, plan, "c", {"requests.memory": 1})).charged
    assert await read_usage(store, plan) == {"": [2**53]}


async def test_amount_beyond_the_exact_ones_is_told_as_asked(store: CounterStore) -> None:
    plan = plan_of(window(60, memory=2**53))
    assert (await ask(store, plan, "b", {"pods": 1, "requests.memory": 1})).charged
    for amount in (10**18, 2**53 + 1):  # the script takes both for 2^53, so that there must be something before
        (over,) = (await ask(store, plan, "a", {"pods": 1, "requests.memory": amount})).over
        assert (over.used, over.hard, over.asked) == (1, 2**53, amount)


async def test_repeated_uid_is_charged_once_and_a_denied_one_judged_again(store: CounterStore) -> None:
    plan = plan_of(window(60, pods=1))
    await ask(store, plan, "a")
    again = await ask(store, plan, "a")
    assert (again.refused, again.charged, again.repeated) == (None, False, True)
    await ask(store, plan, "b")
    await store.refund(plan, "a")
    assert (await ask(store, plan, "b")).charged


async def test_repeated_answers_have_the_moment_of_the_charge(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(60, pods=5))
    first = await ask(store, plan, "a")
    clock.sleep(3)
    booked_us = store.now_us() - 2 * SECOND_US
    await store.book(plan, [Booking("payments", "b", {"pods": 1}, booked_us)])
    clock.sleep(4)
    for peek in (True, False, False):
        again = await ask(store, plan, "a", peek=peek)
        assert (again.repeated, again.charged_us) == (True, first.at_us)
        assert again.at_us == first.at_us + 7 * SECOND_US, "its own moment is that of the answer"
    assert (await ask(store, plan, "b")).charged_us == booked_us
    assert (first.charged_us, (await ask(store, plan, "c", peek=True)).charged_us) == (0, 0)


async def test_uid_is_forgotten_after_its_time(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(60, pods=5))
    await ask(store, plan, "a")
    clock.sleep(HOUR_US / SECOND_US)
    assert (await ask(store, plan, "a")).charged


async def test_peek_answers_the_same_and_charges_nothing(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(60, pods=1), breaker=BREAKER)
    assert (await ask(store, plan, "a", peek=True)).refused is None
    assert await read_usage(store, plan) == {"": [0]}
    await ask(store, plan, "b")
    for uid in "cdefg":
        assert (await ask(store, plan, uid, peek=True)).refused is DeniedBy.QUOTA
    assert await read_state(store, plan) is State.CLOSED
    clock.sleep(1)
    assert (await ask(store, plan, "a", peek=True)).repeated is False


async def test_a_denial_that_is_no_event_trips_no_breaker(store: CounterStore) -> None:
    plan = plan_of(window(60, pods=1), breaker=BREAKER)
    for uid in "abcdefg":
        receipt = await ask(store, plan, uid, counts_as_event=False)
        assert receipt.refused is (None if uid == "a" else DeniedBy.QUOTA)
    assert await read_state(store, plan) is State.CLOSED
    for uid in "bcd":
        await ask(store, plan, uid)
    assert await read_state(store, plan) is State.OPEN


async def test_refund_is_done_once_while_its_bucket_counts(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(60, pods=2))
    for uid in "ab":
        await ask(store, plan, uid)
    assert [await store.refund(plan, uid) for uid in ("a", "a", "stranger")] == [True, False, False]
    assert await read_usage(store, plan) == {"": [1]}
    clock.sleep(62)
    assert await store.refund(plan, "b") is False
    assert await read_usage(store, plan) == {"": [0]}


async def test_resize_charges_only_above_the_high_water_mark(store: CounterStore) -> None:
    plan = plan_of(window(60, pods=1, cpu=300))
    await ask(store, plan, "a", {"pods": 1, "requests.cpu": 100})
    for _ in range(2):
        grown = await ask(store, plan, "a", {"pods": 1, "requests.cpu": 250}, resize_from={"pods": 1})
        assert (grown.refused, grown.repeated) == (None, False)
        assert await read_usage(store, plan) == {"": [1, 250]}
    denied = await ask(store, plan, "a", {"pods": 1, "requests.cpu": 301}, resize_from={"pods": 1})
    assert denied.refused is DeniedBy.QUOTA


async def test_changed_limits_keep_earlier_charges(store: CounterStore) -> None:
    before, after = plan_of(window(60, pods=5)), plan_of(window(60, pods=2, cpu=100), window(120, pods=9))
    for uid in "ab":
        await ask(store, before, uid, {"pods": 1, "requests.cpu": 50})
    assert await read_usage(store, after) == {"": [2, 0, 0]}
    assert (await ask(store, after, "c")).refused is DeniedBy.QUOTA


async def test_namespaces_services_and_pools_count_separately(store: CounterStore) -> None:
    plan = plan_of(window(60, pods=1), per_namespace=True)
    for namespace in ("x", "y"):
        assert (await ask(store, plan, namespace, namespace=namespace)).charged
    assert await read_usage(store, plan) == {"x": [1], "y": [1]}
    for other in (replace(plan, service="other", tag="other"), replace(plan, tag="pool")):
        assert (await ask(store, other, "x", namespace="x")).charged


async def test_unenforced_limit_is_exceeded_and_reported(store: CounterStore) -> None:
    plan = plan_of(window(60, pods=0), quota_mode=Mode.WARN)
    receipt = await ask(store, plan, "a")
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (DeniedBy.QUOTA,), True)
    assert await read_usage(store, plan) == {"": [1]}


async def test_snapshot_shows_when_a_full_limit_has_room(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(64, pods=1, cpu=100))
    await ask(store, plan, "a", {"pods": 1, "requests.cpu": 50})
    snapshot = await store.snapshot(plan)
    assert [use.free_at_us for use in snapshot.uses[""]] == [clock.us + 65 * SECOND_US, 0]


async def test_error_rate_trips_at_the_interval_end_however_late_it_is_read(
    store: CounterStore, clock: HandClock
) -> None:
    plan, begun_us = plan_of(breaker=BREAKER), clock.us
    await trip(store, clock, plan)
    clock.sleep(20)
    snapshot = await store.snapshot(plan)
    assert snapshot.breaker is not None
    assert (snapshot.breaker.state, snapshot.breaker.since_us) == (State.OPEN, begun_us + 3 * SECOND_US)
    assert snapshot.breaker.compute_open_remaining_us(snapshot.at_us) == 160 * SECOND_US
    assert snapshot.breaker.reason.startswith("errorRate")
    moves = await store.tick([plan])
    assert [(move.service, move.old, move.new, move.at_us) for move in moves] == [
        ("payment-api", State.CLOSED, State.OPEN, begun_us + 3 * SECOND_US)
    ]
    assert list(await store.tick([plan])) == []


async def test_open_breaker_counts_down_probes_and_closes(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(60, pods=9), breaker=BREAKER)
    await trip(store, clock, plan)
    assert (await ask(store, plan, "a")).refused is DeniedBy.BREAKER
    clock.sleep(180)
    probes = [await ask(store, plan, uid) for uid in "bcde"]
    assert [probe.refused for probe in probes] == [None, None, None, DeniedBy.BREAKER]
    for uid in "bcd":
        moves = await store.record_outcomes(plan, [Outcomes.from_single(ok=True, latency_us=0, uid=uid, generation=2)])
    assert [(move.old, move.new, move.generation) for move in moves] == [(State.HALF_OPEN, State.CLOSED, 3)]
    assert (await ask(store, plan, "f")).charged


async def test_expired_probe_frees_its_lease(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(breaker=BREAKER)
    await trip(store, clock, plan)
    clock.sleep(180)
    for uid in "abc":
        await ask(store, plan, uid)
    clock.sleep(300)
    assert (await ask(store, plan, "d")).charged


async def test_stale_outcome_changes_nothing(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(breaker=BREAKER)
    for _ in range(3):
        for _ in range(10):
            await store.record_outcomes(plan, [Outcomes.from_single(ok=False, latency_us=0, generation=7)])
        clock.sleep(1)
    assert await read_state(store, plan) is State.CLOSED


async def test_known_breaker_agrees_with_a_snapshot(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(breaker=BREAKER)
    assert store.find_known_breaker(plan_of()) is None
    await trip(store, clock, plan)
    await store.tick([plan])
    known = store.find_known_breaker(plan)
    assert known is not None
    assert known == (await store.snapshot(plan)).breaker
    assert known.state is State.OPEN
    clock.sleep(180)
    known = store.find_known_breaker(plan)
    assert known is None or known == (await store.snapshot(plan)).breaker


async def test_known_breaker_uses_the_stores_clock_after_it_stepped_back(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(3600, pods=100), breaker=BREAKER)
    await ask(store, plan, "a")
    clock.sleep(-600)
    await ask(store, plan, "b")
    clock.sleep(11)
    await ask(store, plan, "c")
    await trip(store, clock, plan)
    await store.tick([plan])
    snapshot = await store.snapshot(plan)
    assert store.find_known_breaker(plan) == snapshot.breaker
    assert store.now_us() == snapshot.at_us == clock.us
    forcing = Forcing(State.FORCED_OPEN, clock.us + SECOND_US, "INC-1")
    forced = replace(plan, breaker=replace(BREAKER, forcing=forcing))
    await store.tick([forced])
    for known in (store.find_known_breaker(forced), store.find_last_breaker(forced)):
        assert known is not None
        assert (known.state, known.open_until_us) == (State.FORCED_OPEN, forcing.until_us)
    clock.sleep(1)
    known = store.find_known_breaker(forced)
    assert known is None or known.state is not State.FORCED_OPEN


async def test_removed_breaker_returns_closed(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(breaker=BREAKER)
    await trip(store, clock, plan)
    await store.tick([plan])
    assert store.find_known_breaker(plan) is not None
    await store.tick([plan_of()])
    assert store.find_known_breaker(plan) is None, "before the first call"
    assert await read_state(store, plan) is State.CLOSED


async def test_removed_service_keeps_its_counters_while_they_count(store: CounterStore, clock: HandClock) -> None:
    plan, others = plan_of(window(3600, pods=2)), [replace(plan_of(), service="other", tag="other")]
    await ask(store, plan, "a")
    clock.sleep(1800)
    await store.tick(others)
    assert await read_usage(store, plan) == {"": [1]}
    clock.sleep(3 * 3600)
    await store.tick(others)
    assert await read_usage(store, plan) == {"": [0]}
    assert (await ask(store, plan, "a")).charged


async def test_namespace_is_shown_again_when_the_clock_steps_back(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(60, pods=2), per_namespace=True)
    await ask(store, plan, "a", namespace="x")
    clock.sleep(70)
    assert await read_usage(store, plan) == {}
    clock.sleep(-40)
    assert await read_usage(store, plan) == {"x": [1]}


async def test_namespace_is_shown_while_any_of_its_windows_counts(store: CounterStore, clock: HandClock) -> None:
    plan = plan_of(window(64, cpu=500), window(640, pods=9), per_namespace=True)
    for uid, cost in (("a", {"pods": 1, "requests.cpu": 1}), ("b", {"requests.cpu": 1}), ("c", {"pods": 1})):
        await ask(store, plan, uid, cost, namespace="x")
        clock.sleep(10 if uid == "a" else 0)
    clock.sleep(645)
    assert await read_usage(store, plan) == {"x": [0, 1]}


async def test_first_count_after_an_unlimited_pod_is_no_loss(store: CounterStore) -> None:
    plan, lost = plan_of(window(60, cpu=500)), []
    if isinstance(store, RedisStore):
        store.on_loss = lambda: lost.append("lost")
    assert (await ask(store, plan, "a")).charged
    assert (await ask(store, plan, "b", {"pods": 1, "requests.cpu": 100})).charged
    assert lost == []


async def test_memory_store_forgets_a_removed_service(clock: HandClock) -> None:
    store, plan = MemoryStore(clock), plan_of(window(60, pods=2), breaker=BREAKER)
    await ask(store, plan, "a")
    clock.sleep(7200)
    await store.tick([plan])
    assert store._states
    clock.sleep(7200)
    await store.tick([])
    assert not store._states


async def test_memory_store_forgets_many_removed_services_in_parts(clock: HandClock) -> None:
    store = MemoryStore(clock)
    plans = [replace(plan_of(window(60, pods=2)), service=f"s{number}", tag=f"s{number}") for number in range(250)]
    for plan in plans:
        await ask(store, plan, f"of {plan.service}")
    clock.sleep(7200)
    held = []
    for _ in range(4):
        await store.tick([])
        held.append(len(store._states))
    assert held == [150, 50, 0, 0]


async def test_plans_of_one_service_with_other_limits_share_counters_and_breaker(
    store: CounterStore, clock: HandClock
) -> None:
    """An exception has other limits and modes for a part of the Pods, which are charged to the same windows."""
    plan = plan_of(window(60, pods=1), breaker=BREAKER, breaker_mode=Mode.ENFORCE)
    wide = replace(plan, windows=(window(60, pods=3),))
    passing = replace(plan, quota_mode=Mode.AUDIT, breaker_mode=Mode.AUDIT)
    assert [(await ask(store, wide, uid)).charged for uid in "abcd"] == [True, True, True, False]
    assert (await ask(store, plan, "e")).refused is DeniedBy.QUOTA
    assert (await ask(store, passing, "f")).would_refuse == (DeniedBy.QUOTA,)
    assert await read_usage(store, plan) == {"": [4]}
    await trip(store, clock, plan)
    assert (await ask(store, plan, "g")).refused is DeniedBy.BREAKER
    passed = await ask(store, passing, "h")
    assert (passed.refused, passed.would_refuse) == (None, (DeniedBy.BREAKER, DeniedBy.QUOTA))
    assert await read_state(store, plan) is State.OPEN
