"""Contract of `ports.PodLedger`, run against each implementation.

The stores are those of `counter_store.py`, whose `store` fixture gives each in turn.
"""

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import ONE, SECOND_US, HandClock, ask, clock, read_usage, store
from tests.contract.live_pods import Store, list_live_uids, mark_complete, observe
from tests.core.plans import plan_of, standing, window
from webhook.core.ledger.live_set import KNOWN_US, SURGE_US
from webhook.core.quota import HOUR_US, Booking, CounterPlan, DeniedBy, Holder, PoolPlan, Seen, Sighting, UnseenPod, Use

pytest_plugins = ("tests.redis_servers.fixtures",)

__all__ = ("clock", "store")

CPU = {"pods": 1, "requests.cpu": 100}
MORE_CPU = {"pods": 1, "requests.cpu": 300}
PLAN = plan_of(window(3600, pods=9, cpu=900), standing=standing(pods=9, cpu=900))
PODS = plan_of(standing=standing(1, pods=2))
BY_NAMESPACE = replace(PODS, per_namespace=True)
BY_TEAM = replace(PLAN, per_namespace=True, team_key="team")
MANY = 2500
"""More than one page, and more than one call."""


async def list_overdue_uids(store: Store, plan: CounterPlan, age_us: int = 0, most: int = 100) -> list[str]:
    return [waiting.uid for waiting in await store.list_overdue(plan, age_us, most)]


# Limits on live Pods


async def test_live_pods_are_limited_once_all_of_them_are_known(store: Store, clock: HandClock) -> None:
    for uid in "abc":
        assert (await ask(store, PODS, uid)).charged
    await mark_complete(store, PODS)
    assert (await store.snapshot(PODS)).is_standing_known
    denied = await ask(store, PODS, "d")
    assert denied.refused is DeniedBy.QUOTA
    assert denied.over == (Use("standing", "pods", 3, 2, 1, 0, of=Holder.STANDING, name="", surge=1),)
    assert (denied.used, denied.free_at_us) == ((3,), 0)
    await observe(store, PODS, "a", lives=False)
    assert (await ask(store, PODS, "d")).charged
    clock.sleep(KNOWN_US / SECOND_US)
    assert not (await store.snapshot(PODS)).is_standing_known
    assert (await ask(store, PODS, "e")).charged


async def test_surge_is_open_for_ten_minutes_after_the_sum_was_within_hard(store: Store, clock: HandClock) -> None:
    for uid in "ab":
        await ask(store, PODS, uid)
    await mark_complete(store, PODS)
    assert (await ask(store, PODS, "c")).charged
    await observe(store, PODS, "c", lives=False)
    assert (await ask(store, PODS, "d")).charged, "the sum was within hard until now"
    clock.sleep(SURGE_US / SECOND_US)
    await mark_complete(store, PODS)
    (use,) = (await store.snapshot(PODS)).uses[""]
    assert (use.used, use.hard, use.surge) == (3, 2, 0)
    assert (await ask(store, PODS, "e")).refused is DeniedBy.QUOTA
    await observe(store, PODS, "a", lives=False)
    assert (await ask(store, PODS, "e")).charged


async def test_live_pods_of_namespaces_count_separately(store: Store) -> None:
    plan = replace(BY_NAMESPACE, standing=standing(pods=1))
    for namespace in ("x", "y"):
        await ask(store, plan, f"in-{namespace}", namespace=namespace)
        await observe(store, plan, f"in-{namespace}", namespace=namespace)
    assert sorted(await store.list_scopes(plan)) == ["x", "y"]
    await mark_complete(store, plan)
    for namespace in ("x", "y"):
        assert (await ask(store, plan, "late", namespace=namespace)).refused is DeniedBy.QUOTA
    assert (await ask(store, plan, "elsewhere", namespace="z")).charged
    assert (await list_live_uids(store, plan, "x"), await read_usage(store, plan)) == (
        {"in-x"},
        {"x": [1], "y": [1], "z": [1]},
    )
    await observe(store, plan, "in-x", namespace="x", lives=False)
    assert "x" not in await store.list_scopes(plan)


async def test_live_pods_of_pool_services_count_separately_in_limit_order(store: Store) -> None:
    pool = PoolPlan("prod", (window(60, pods=5),))
    pooled = replace(PODS, tag="prod", windows=(window(3600, pods=7),), pool=pool)
    plans = [replace(pooled, service=name) for name in ("web", "api")]
    receipts = [await ask(store, plan, f"{plan.service}-{number}") for plan in plans for number in range(2)]
    assert [receipt.used for receipt in receipts] == [(1, 1, 1), (2, 2, 2), (1, 3, 1), (2, 4, 2)]
    snapshot = await store.snapshot(plans[0])
    assert [(use.of, use.used) for use in (*snapshot.uses[""], *snapshot.pool)] == [
        ("service", 2),
        ("standing", 2),
        ("pool", 4),
    ]


async def test_resize_up_takes_live_amounts_at_once_and_one_down_frees_them_when_seen(store: Store) -> None:
    await ask(store, PLAN, "a", CPU)
    await mark_complete(store, PLAN)
    for old, new in ((CPU, MORE_CPU), (MORE_CPU, CPU), (CPU, MORE_CPU), (MORE_CPU, CPU)):
        receipt = await ask(store, PLAN, "a", new, resize_from=old)
        assert (receipt.refused, receipt.used) == (None, (1, 300, 1, 300))
    denied = await ask(store, PLAN, "a", {"pods": 1, "requests.cpu": 901}, resize_from=MORE_CPU)
    assert [(use.of, use.asked) for use in denied.over] == [("service", 601), ("standing", 601)]
    assert await observe(store, PLAN, "a", CPU, live_cost=MORE_CPU) == Seen(), "its node has not freed anything"
    assert await observe(store, PLAN, "a", CPU) == Seen(changed=True)
    assert await read_usage(store, PLAN) == {"": [1, 300, 1, 100]}


async def test_resize_of_a_pod_that_is_not_live_counts_the_larger_of_old_and_new(store: Store) -> None:
    for uid, old, new in (("grown", CPU, MORE_CPU), ("shrunk", MORE_CPU, CPU)):
        await ask(store, PLAN, uid, new, resize_from=old)
    assert (await read_usage(store, PLAN))[""][2:] == [2, 600]


async def test_live_cost_of_a_sighting_is_charged_to_no_window(store: Store, clock: HandClock) -> None:
    created_at_us = clock.us
    seen = await observe(store, PLAN, "a", CPU, live_cost=MORE_CPU, created_at_us=created_at_us)
    assert seen == Seen(charged=True, changed=True)
    assert await read_usage(store, PLAN) == {"": [1, 100, 1, 300]}
    assert await observe(store, PLAN, "a", CPU, live_cost=MORE_CPU) == Seen()
    assert await observe(store, PLAN, "a", MORE_CPU, live_cost=CPU) == Seen(raised=True, changed=True)
    assert await read_usage(store, PLAN) == {"": [1, 300, 1, 100]}


async def test_peek_takes_no_place(store: Store) -> None:
    assert (await ask(store, PODS, "a", peek=True)).refused is None
    assert (await read_usage(store, PODS), await store.list_scopes(PODS)) == ({"": [0]}, [])
    assert await list_overdue_uids(store, PODS) == []


async def test_sums_are_exact_up_to_the_largest(store: Store) -> None:
    plan = plan_of(standing=standing(memory=2**53))
    await mark_complete(store, plan)
    assert (await ask(store, plan, "a", {"requests.memory": 2**53 - 1})).charged
    assert (await ask(store, plan, "b", {"requests.memory": 2})).refused is DeniedBy.QUOTA
    assert (await ask(store, plan, "c", {"requests.memory": 1})).charged
    assert await read_usage(store, plan) == {"": [2**53]}


# Overdue Pods


async def test_admitted_pod_is_overdue_until_it_is_seen(store: Store, clock: HandClock) -> None:
    for uid in ("b", "a", "c"):
        await ask(store, PLAN, uid, name=f"{uid}-pod")
        clock.sleep(60)
    assert list(await store.list_overdue(PLAN, 120 * SECOND_US, 9)) == [
        UnseenPod("b", "payments", "b-pod", 180 * SECOND_US, "payment-api"),
        UnseenPod("a", "payments", "a-pod", 120 * SECOND_US, "payment-api"),
    ]
    assert await list_overdue_uids(store, PLAN, most=1) == ["b"]
    assert await list_live_uids(store, PLAN) == set()
    assert await observe(store, PLAN, "a") == Seen()
    assert (await list_overdue_uids(store, PLAN), await list_live_uids(store, PLAN)) == (["b", "c"], {"a"})


async def test_live_pods_are_listed_with_the_amounts_by_which_they_count(store: Store) -> None:
    cost = {"pods": 1, "requests.cpu": 200}
    plan = plan_of(standing=standing(pods=9, cpu=900))
    await observe(store, plan, "a", cost, live_cost={"pods": 1, "requests.cpu": 300})
    await observe(store, plan, "b", {"pods": 1, "requests.cpu": 0, "requests.memory": 1})
    await observe(store, plan, "none", {"pods": 0})
    await ask(store, plan, "a", {"pods": 1, "requests.cpu": 400}, resize_from=cost)
    pods, after = await store.list_live(plan, "")
    assert (pods, after) == ({"a": {"pods": 1, "requests.cpu": 400}, "b": {"pods": 1}, "none": {}}, "")


async def test_services_of_one_tag_with_and_without_limits_are_overdue_alike(store: Store) -> None:
    await ask(store, plan_of(), "a")
    await ask(store, replace(PLAN, service="web"), "b")
    assert await list_overdue_uids(store, PLAN) == ["a", "b"]


async def test_pod_is_overdue_for_an_hour_at_most(store: Store, clock: HandClock) -> None:
    plan = replace(PLAN, remember_us=2 * HOUR_US)
    await ask(store, plan, "a")
    clock.sleep(HOUR_US / SECOND_US - 1e-6)
    assert (await list_overdue_uids(store, plan), await list_live_uids(store, plan)) == (["a"], set())
    clock.sleep(1e-6)
    assert (await list_overdue_uids(store, plan), await list_live_uids(store, plan)) == ([], {"a"})


async def test_overdue_pod_without_a_record_shows_its_uid_only(store: Store, clock: HandClock) -> None:
    plan = replace(PLAN, remember_us=SECOND_US)
    await ask(store, plan, "a", name="a-pod")
    clock.sleep(60)
    assert list(await store.list_overdue(plan, 0, 9)) == [UnseenPod("a", "", "", 60 * SECOND_US)]
    await store.stop_waiting(plan, ["a"])
    assert await list_overdue_uids(store, plan) == []


# Sightings


async def test_uncharged_pod_is_charged_once_as_of_its_creation(store: Store, clock: HandClock) -> None:
    created_us = clock.us
    clock.sleep(1800)
    seen = [await observe(store, PLAN, "a", CPU, created_at_us=created_us) for _ in range(3)]
    assert seen == [Seen(charged=True, changed=True), Seen(), Seen()]
    assert await read_usage(store, PLAN) == {"": [1, 100, 1, 100]}
    assert await list_overdue_uids(store, PLAN) == []
    clock.sleep(1860)
    assert await read_usage(store, PLAN) == {"": [0, 0, 1, 100]}
    assert await observe(store, PLAN, "a", CPU, created_at_us=created_us) == Seen()


async def test_many_sightings_in_one_call_equal_single_ones(store: Store) -> None:
    shown = [Sighting("payments", f"{number}", f"{number}", CPU, lives=number % 5 > 0) for number in range(200)]
    assert [observation.changed for observation in await store.observe(PLAN, shown)] == [
        number % 5 > 0 for number in range(200)
    ]
    assert list(await store.observe(PLAN, shown)) == [Seen()] * 200
    assert await read_usage(store, PLAN) == {"": [0, 0, 160, 16_000]}
    assert list(await store.observe(PLAN, [])) == []


async def test_ended_pod_frees_its_place_and_not_its_windows(store: Store) -> None:
    await ask(store, PLAN, "a", CPU)
    seen = [await observe(store, PLAN, "a", CPU, lives=False) for _ in range(2)]
    assert seen == [Seen(changed=True), Seen()]
    assert await read_usage(store, PLAN) == {"": [1, 100, 0, 0]}


async def test_uncounted_resize_is_charged_above_the_maximum(store: Store) -> None:
    await ask(store, PLAN, "a", CPU)
    seen = [await observe(store, PLAN, "a", cost) for cost in (MORE_CPU, MORE_CPU, CPU, MORE_CPU)]
    assert seen == [Seen(raised=True, changed=True), Seen(), Seen(changed=True), Seen(changed=True)]
    assert await read_usage(store, PLAN) == {"": [1, 300, 1, 300]}


async def test_unsure_sighting_is_accepted_for_known_pods_only(store: Store) -> None:
    await ask(store, PLAN, "known")
    assert await observe(store, PLAN, "stranger", is_sure=False) == Seen(ignored=True)
    assert await observe(store, PLAN, "known", is_sure=False, lives=False) == Seen(changed=True)
    assert await read_usage(store, PLAN) == {"": [1, 0, 0, 0]}


async def test_pages_contain_every_live_pod(store: Store) -> None:
    plan = plan_of(standing=standing(pods=9))
    uids = {f"uid-{number}" for number in range(MANY)}
    await store.observe(plan, [Sighting("payments", uid, uid, ONE, lives=True) for uid in uids])
    assert await list_live_uids(store, plan) == uids
    assert await read_usage(store, plan) == {"": [MANY]}


# Refunds


async def test_refund_frees_windows_and_place_once(store: Store) -> None:
    for uid in "ab":
        await ask(store, PLAN, uid, CPU)
    assert [await store.refund(PLAN, "a") for _ in range(3)] == [True, False, False]
    assert await read_usage(store, PLAN) == {"": [1, 100, 1, 100]}
    assert await list_overdue_uids(store, PLAN) == ["b"]


async def test_refund_frees_the_charged_place_after_a_namespace_change(store: Store) -> None:
    await ask(store, PLAN, "a", CPU)
    assert await store.refund(replace(PLAN, per_namespace=True), "a")
    assert await read_usage(store, PLAN) == {"": [0, 0, 0, 0]}


async def test_namespaces_of_a_team_share_its_counters(store: Store) -> None:
    for uid, namespace, team in (("a", "shop", "red"), ("b", "bank", "red"), ("c", "bank", "(none)")):
        await ask(store, BY_TEAM, uid, CPU, namespace=namespace, team=team)
    await mark_complete(store, BY_TEAM)
    assert await read_usage(store, BY_TEAM) == {"(none)": [1, 100, 1, 100], "red": [2, 200, 2, 200]}
    assert await store.list_scopes(BY_TEAM) == ["(none)", "red"]


async def test_a_namespace_given_to_another_team_keeps_its_charges_and_is_refunded_there(store: Store) -> None:
    await ask(store, BY_TEAM, "a", CPU, namespace="shop", team="red")
    await ask(store, BY_TEAM, "b", CPU, namespace="shop", team="red")
    assert await observe(store, BY_TEAM, "a", CPU, "shop", team="blue") == Seen(changed=True)
    assert await observe(store, BY_TEAM, "a", {}, "", lives=False, team="red") == Seen(changed=True)
    assert await read_usage(store, BY_TEAM) == {"blue": [0, 0, 1, 100], "red": [2, 200, 1, 100]}
    assert await store.refund(BY_TEAM, "b")
    assert await read_usage(store, BY_TEAM) == {"blue": [0, 0, 1, 100], "red": [1, 100, 0, 0]}


async def test_stop_waiting_frees_places_and_no_windows(store: Store) -> None:
    for uid in "abc":
        await ask(store, PLAN, uid, CPU)
    await store.stop_waiting(PLAN, ["a", "stranger", "c"])
    assert (await read_usage(store, PLAN), await list_overdue_uids(store, PLAN)) == ({"": [3, 300, 1, 100]}, ["b"])
    assert await observe(store, PLAN, "a", CPU) == Seen(changed=True), "the Pod appears later"
    assert await read_usage(store, PLAN) == {"": [3, 300, 2, 200]}


async def test_pod_refunded_too_soon_is_charged_again_when_seen(store: Store, clock: HandClock) -> None:
    await ask(store, PLAN, "a", CPU)
    await store.refund(PLAN, "a")
    seen = [await observe(store, PLAN, "a", CPU, created_at_us=clock.us) for _ in range(2)]
    assert seen == [Seen(charged=True, changed=True), Seen()]
    assert await read_usage(store, PLAN) == {"": [1, 100, 1, 100]}


async def test_booked_pod_takes_a_place_and_is_overdue_since_its_admission(store: Store, clock: HandClock) -> None:
    booking = Booking("payments", "a", CPU, clock.us - 60 * SECOND_US, "a-pod")
    assert await store.book(PLAN, [booking]) == 1
    assert list(await store.list_overdue(PLAN, 0, 9)) == [
        UnseenPod("a", "payments", "a-pod", 60 * SECOND_US, "payment-api")
    ]
    assert await read_usage(store, PLAN) == {"": [1, 100, 1, 100]}
    await observe(store, PLAN, "a", CPU)
    assert await store.book(PLAN, [booking]) == 0
    assert await list_overdue_uids(store, PLAN) == []


# Resets


@pytest.mark.parametrize(("seconds", "left"), [(None, [0, 0, 2]), (60, [0, 2, 2]), (3600, [2, 0, 2]), (7, [2, 2, 2])])
async def test_reset_clears_windows_and_not_live_pods(
    store: Store, clock: HandClock, seconds: int | None, left: list[int]
) -> None:
    plan = plan_of(window(60, pods=9), window(3600, pods=9), standing=standing(pods=9))
    for uid in "ab":
        await ask(store, plan, uid)
    assert await store.reset(plan, clock.us, seconds) is (seconds != 7)
    assert await read_usage(store, plan) == {"": left}


async def test_reset_is_done_once_and_its_charges_are_not_refunded(store: Store, clock: HandClock) -> None:
    await ask(store, PLAN, "a")
    at_us = clock.us
    assert await store.reset(PLAN, at_us)
    clock.sleep(60)
    await ask(store, PLAN, "b")
    assert not await store.reset(PLAN, at_us)
    assert not await store.refund(PLAN, "a")
    assert await read_usage(store, PLAN) == {"": [1, 0, 1, 0]}
    assert not await store.reset(PLAN, at_us + 1), "later charges are not reset"
    assert await store.reset(PLAN, clock.us)
    assert await read_usage(store, PLAN) == {"": [0, 0, 1, 0]}


async def test_reset_covers_all_namespaces_of_one_service(store: Store, clock: HandClock) -> None:
    plan = replace(PLAN, per_namespace=True)
    other = replace(plan, service="web")
    for namespace in ("x", "y"):
        await ask(store, plan, f"in-{namespace}", namespace=namespace)
    await ask(store, other, "web-x", namespace="x")
    assert await store.reset(plan, clock.us)
    assert await read_usage(store, plan) == {"x": [0, 0, 1, 0], "y": [0, 0, 1, 0]}
    assert await read_usage(store, other) == {"x": [1, 0, 1, 0]}
