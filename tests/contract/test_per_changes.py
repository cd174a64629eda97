"""Contract of live Pods when `per` of a quota changes, run against each implementation.

The stores are those of `counter_store.py`, whose `store` fixture gives each in turn.
"""

import asyncio

from msgspec.structs import replace

from tests.contract.counter_store import HandClock, ask, clock, read_usage, store
from tests.contract.live_pods import Store, list_live_uids, observe
from tests.core.plans import plan_of, standing
from webhook.core.quota import DeniedBy

pytest_plugins = ("tests.redis_servers.fixtures",)

__all__ = ("clock", "store")

HARD = 3
AS_ONE = plan_of(standing=standing(pods=HARD))
APART = replace(AS_ONE, per_namespace=True)
BY_TEAM = replace(APART, team_key="team")
MANY = 1200
"""More than one page."""


async def is_known(store: Store) -> list[bool]:
    return [(await store.snapshot(plan)).is_standing_known for plan in (AS_ONE, APART, BY_TEAM)]


async def test_live_pods_are_known_only_in_the_way_in_which_the_controller_counts(store: Store) -> None:
    for plan, scopes, known in (
        (AS_ONE, [""], [True, False, False]),
        (APART, ["payments"], [False, True, False]),
        (BY_TEAM, [], [False, False, True]),
        (AS_ONE, [""], [True, False, False]),
    ):
        await store.mark_complete(plan, scopes)
        assert await is_known(store) == known
    for number in range(HARD):
        assert (await ask(store, APART, f"of-namespace-{number}")).charged
        assert (await ask(store, AS_ONE, f"as-one-{number}")).charged
    assert (await ask(store, APART, "a")).charged, "not enforced yet"
    assert (await ask(store, AS_ONE, "b")).refused is DeniedBy.QUOTA


async def test_pods_that_ended_while_namespaces_counted_apart_do_not_count(store: Store, clock: HandClock) -> None:
    for number in range(MANY):
        await observe(store, AS_ONE, f"uid-{number}")
    await store.mark_complete(AS_ONE, [""])
    assert await read_usage(store, AS_ONE) == {"": [MANY]}
    await store.mark_complete(APART, [])
    clock.sleep(1)
    await store.mark_complete(AS_ONE, [""])
    assert await read_usage(store, AS_ONE) == {"": [0]}
    assert await store.list_scopes(AS_ONE) == []
    for number in range(HARD):
        assert (await ask(store, AS_ONE, f"new-{number}")).charged
    assert (await ask(store, AS_ONE, "more")).refused is DeniedBy.QUOTA


async def test_a_refund_while_namespaces_begin_to_count_apart_leaves_right_sums(store: Store) -> None:
    for number in range(HARD):
        await ask(store, AS_ONE, f"uid-{number}")
    await asyncio.gather(store.refund(APART, "uid-0"), store.mark_complete(APART, ["payments"]))
    await store.mark_complete(AS_ONE, [""])
    assert (await read_usage(store, AS_ONE), await list_live_uids(store, AS_ONE)) == ({"": [0]}, set())


async def test_pod_of_a_server_with_the_former_per_is_forgotten_at_the_next_mark(store: Store) -> None:
    await observe(store, AS_ONE, "old")
    await store.mark_complete(APART, [])
    assert (await ask(store, AS_ONE, "late")).charged
    assert await read_usage(store, AS_ONE) == {"": [1]}
    await store.mark_complete(APART, [])
    assert await read_usage(store, AS_ONE) == {"": [0]}
