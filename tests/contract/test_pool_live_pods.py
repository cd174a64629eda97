"""Contract of limits on the live Pods of a pool, run against each implementation.

The stores are those of `counter_store.py`, whose `store` fixture gives each in turn.
"""

from msgspec.structs import replace

from tests.contract.counter_store import BREAKER, ONE, SECOND_US, HandClock, ask, clock, read_state, store
from tests.contract.live_pods import Store, mark_complete, observe
from tests.contract.store_plans import live
from tests.contract.store_steps import list_pool_pods
from tests.core.plans import plan_of, standing, window
from webhook.core.breaker import QuotaEventPlan, State
from webhook.core.ledger.live_set import KNOWN_US
from webhook.core.quota import (
    HOUR_US,
    Acquire,
    AcquireGroup,
    CounterPlan,
    DeniedBy,
    GroupMember,
    Holder,
    PoolPlan,
    PoolPod,
    Use,
)

pytest_plugins = ("tests.redis_servers.fixtures",)

__all__ = ("clock", "store")

CPU = {"pods": 1, "requests.cpu": 100}
POOL = PoolPlan("prod", (), live(pods=3, cpu=250))
WEB = plan_of(service="web", tag="prod", pool=POOL)
API = replace(WEB, service="api")


async def list_held(store: Store, plan: CounterPlan = WEB) -> dict[str, tuple[str, dict[str, int]]]:
    return {uid: (pod.service, dict(pod.amounts)) for uid, pod in (await list_pool_pods(store, plan)).items()}


async def test_live_pods_of_a_pool_are_limited_once_those_of_all_members_are_known(
    store: Store, clock: HandClock
) -> None:
    for uid, plan in (("a", WEB), ("b", API), ("c", WEB)):
        assert (await ask(store, plan, uid)).charged
    assert (await ask(store, API, "past")).charged, "not enforced yet"
    await observe(store, API, "past", lives=False)
    await mark_complete(store, WEB)
    assert not (await store.snapshot(WEB)).is_pool_standing_known
    await store.mark_pool_complete(WEB)
    for plan in (WEB, API):
        denied = await ask(store, plan, "d")
        assert denied.refused is DeniedBy.QUOTA
        assert denied.over == (Use("standing", "pods", 3, 3, 1, 0, of=Holder.POOL, name="prod"),)
        assert (denied.used, denied.free_at_us) == ((3, 0), 0)
        snapshot = await store.snapshot(plan)
        assert snapshot.is_pool_standing_known
        assert [(use.used, use.hard, use.of) for use in snapshot.pool] == [(3, 3, "pool"), (0, 250, "pool")]
    await observe(store, API, "b", lives=False)
    assert (await ask(store, API, "d")).charged
    clock.sleep(KNOWN_US / SECOND_US)
    assert (await ask(store, API, "e")).charged, "the controller has been silent for long"


async def test_a_pod_that_asks_for_more_than_the_pool_has_never_fits(store: Store) -> None:
    await store.mark_pool_complete(WEB)
    denied = await ask(store, WEB, "a", {"pods": 1, "requests.cpu": 251})
    assert [(use.resource, use.free_at_us) for use in denied.over] == [("cpu", None)]
    assert denied.free_at_us is None


async def test_own_limits_and_those_of_the_pool_are_both_kept(store: Store) -> None:
    plan = replace(WEB, windows=(window(3600, pods=9),), standing=standing(pods=1), per_namespace=True)
    await mark_complete(store, plan)
    await store.mark_pool_complete(plan)
    assert (await ask(store, plan, "a", CPU, namespace="x")).used == (1, 1, 1, 100)
    denied = await ask(store, plan, "b", CPU, namespace="x")
    assert [(use.of, use.used) for use in denied.over] == [("standing", 1)]
    assert (await ask(store, plan, "b", CPU, namespace="y")).used == (1, 1, 2, 200)
    denied = await ask(store, plan, "c", CPU, namespace="y")
    assert [(use.of, use.name, use.resource) for use in denied.over] == [
        ("standing", "", "pods"),
        ("pool", "prod", "cpu"),
    ]
    assert [use.of for use in (await store.snapshot(plan, "x")).pool] == ["pool", "pool"]


async def test_every_way_out_frees_the_room_of_a_pod(store: Store) -> None:
    await store.mark_pool_complete(WEB)
    for uid in "abc":
        await ask(store, WEB, uid)
    assert await store.withdraw(Acquire(WEB, "payments", "a", ONE, ""), None)
    assert sorted(await list_used(store)) == [2]
    await store.refund(API, "b")  # by whichever plan of the pool
    await store.stop_waiting(API, ["c"])
    assert await list_used(store) == [0]


async def list_used(store: Store) -> list[int]:
    return [use.used for use in (await store.snapshot(WEB)).pool if use.resource == "pods"]


async def test_a_pod_counts_for_the_service_that_has_it_now(store: Store) -> None:
    await observe(store, WEB, "a", CPU)
    await observe(store, API, "a", CPU)
    assert await list_held(store) == {"a": ("api", CPU)}
    await observe(store, WEB, "a", lives=False)
    await store.drop_pool_pods(WEB, [PoolPod("a", "web")])
    assert await list_held(store) == {"a": ("api", CPU)}, "web has it no longer"
    await store.drop_pool_pods(WEB, [PoolPod("a", "api")])
    assert await list_held(store) == {}


async def test_pods_that_are_waited_for_are_not_listed(store: Store, clock: HandClock) -> None:
    await ask(store, WEB, "a", CPU)
    assert await list_held(store) == {}
    await observe(store, WEB, "a", CPU)
    assert await list_held(store) == {"a": ("web", CPU)}
    await ask(store, WEB, "b")
    clock.sleep(HOUR_US / SECOND_US)
    assert set(await list_held(store)) == {"a", "b"}


async def test_a_resize_up_takes_its_amounts_at_once_and_one_down_frees_them_when_seen(store: Store) -> None:
    await store.mark_pool_complete(WEB)
    await ask(store, WEB, "a", CPU)
    more = {"pods": 1, "requests.cpu": 250}
    assert (await ask(store, WEB, "a", more, resize_from=CPU)).used == (1, 250)
    assert (await ask(store, WEB, "a", {"pods": 1, "requests.cpu": 251}, resize_from=more)).refused is DeniedBy.QUOTA
    assert (await ask(store, WEB, "a", CPU, resize_from=more)).used == (1, 250)
    assert (await ask(store, WEB, "a", more, resize_from=CPU)).refused is None, "it holds that still"
    await observe(store, WEB, "a", CPU, live_cost=more)
    assert (await list_held(store)) == {"a": ("web", more)}
    await observe(store, WEB, "a", CPU)
    assert (await list_held(store)) == {"a": ("web", CPU)}


async def test_a_group_fits_as_a_whole(store: Store) -> None:
    await store.mark_pool_complete(WEB)
    await ask(store, API, "other")

    def group(names: str) -> AcquireGroup:
        return AcquireGroup(WEB, "x", tuple(GroupMember(uid, uid, ONE, "controller:a") for uid in names))

    denied = await store.acquire_group(group("abc"))
    assert [(use.asked, use.used, use.of) for use in denied.over] == [(3, 1, "pool")]
    assert (await store.acquire_group(group("ab"))).charged
    assert await list_used(store) == [3]


async def test_clusters_share_the_limit_of_a_fleet(store: Store) -> None:
    fleet = replace(WEB, fleet=True)
    await ask(store, WEB, "here")
    await ask(store, fleet, "there")
    assert await list_used(store) == [1]
    assert [use.used for use in (await store.snapshot(fleet)).pool] == [1, 0]


async def test_a_denial_by_the_pool_alone_is_no_quota_event(store: Store) -> None:
    plan = replace(WEB, breaker=replace(BREAKER, quota=QuotaEventPlan(1, 60 * SECOND_US, by_controller=True)))
    plan = replace(plan, standing=standing(pods=4))
    await mark_complete(store, plan)
    await store.mark_pool_complete(plan)
    for uid in "abc":
        await ask(store, plan, uid)
    assert [use.of for use in (await ask(store, plan, "d")).over] == [Holder.POOL]
    assert await read_state(store, plan) is State.CLOSED
    await observe(store, plan, "e")
    assert {use.of for use in (await ask(store, plan, "d")).over} == {Holder.POOL, Holder.STANDING}
    assert await read_state(store, plan) is State.OPEN


async def test_a_dry_run_counts_nothing(store: Store) -> None:
    await store.mark_pool_complete(WEB)
    await ask(store, WEB, "a", peek=True)
    assert await list_used(store) == [0]
