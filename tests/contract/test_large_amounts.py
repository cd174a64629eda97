"""Contract of sums beyond the largest exact amount, run against each implementation: what has ended leaves no trace.

The stores are those of `counter_store.py`, whose `store` fixture gives each in turn.
"""

from random import Random

import pytest
from msgspec.structs import replace

from tests.contract.counter_store import SECOND_US, HandClock, ask, clock, read_usage, store
from tests.contract.live_pods import Store, mark_complete, observe
from tests.contract.store_plans import live
from tests.core.plans import plan_of, standing, window
from webhook.adapters.memory_store import MemoryStore
from webhook.core.policy_fields import Mode
from webhook.core.quota import EXACT_AMOUNT_MAX, CounterPlan, DeniedBy, PoolGuarantees, PoolPlan, Use

pytest_plugins = ("tests.redis_servers.fixtures",)

__all__ = ("clock", "store")

MEMORY, HARD = "requests.memory", 50
ONE, ALL = {MEMORY: 1}, {MEMORY: EXACT_AMOUNT_MAX}
MINUTE = 60
WARN = plan_of(window(MINUTE, memory=HARD), standing=standing(memory=HARD), quota_mode=Mode.WARN)
ENFORCE = replace(WARN, quota_mode=Mode.ENFORCE)
GUARANTEES = PoolGuarantees({(seconds, MEMORY): (("web", HARD // 2),) for seconds in (MINUTE, 0)})
POOL = PoolPlan("prod", (window(MINUTE, memory=HARD),), live(memory=HARD))
LARGE = (1, 7, EXACT_AMOUNT_MAX // 3, EXACT_AMOUNT_MAX - 1, EXACT_AMOUNT_MAX)
STEPS = 200
AGAIN, ASKED, ENDED, REFUNDED = 0.5, 0.6, 0.9, 0.97
"""How often the latest Pod is taken again; and the actions, each up to its number, the last of which is a reset."""


def bind_pool(service: str) -> CounterPlan:
    standing_of_pool = GUARANTEES.bind(POOL.standing, service) if POOL.standing is not None else None
    bound = PoolPlan("prod", tuple(GUARANTEES.bind(each, service) for each in POOL.windows), standing_of_pool)
    return replace(WARN, service=service, tag="prod", pool=bound)


def clip_use(use: Use) -> Use:
    """Return a use as a store may tell it that counts in doubles."""
    found = use.guarantee
    own = None if found is None else replace(found, used=min(found.used, EXACT_AMOUNT_MAX))
    return replace(use, used=min(use.used, EXACT_AMOUNT_MAX), guarantee=own)


async def test_sums_are_right_after_the_largest_pods_have_ended(store: Store, clock: HandClock) -> None:
    await mark_complete(store, WARN)
    for number in range(3):
        assert (await ask(store, WARN, f"all-{number}", ALL)).charged
    denied = await ask(store, ENFORCE, "denied", ONE)
    assert {clip_use(use).used for use in denied.over} == {EXACT_AMOUNT_MAX}
    assert denied.refused is DeniedBy.QUOTA
    clock.sleep(MINUTE / 2)
    for number in range(HARD):
        await ask(store, WARN, f"one-{number}", ONE)
    for number in range(3):
        await observe(store, WARN, f"all-{number}", ALL, lives=False)
    clock.sleep(MINUTE / 2 + 1)
    assert await read_usage(store, ENFORCE) == {"": [HARD, HARD]}
    denied = await ask(store, ENFORCE, "denied", ONE)
    assert [(use.used, use.free_at_us) for use in denied.over] == [
        (HARD, clock.us + (MINUTE / 2 - 1 + MINUTE / 64) * SECOND_US // 1),
        (HARD, 0),
    ]


async def test_refunds_of_the_largest_leave_what_others_were_charged(store: Store) -> None:
    for number in range(2):
        await ask(store, WARN, f"one-{number}", ONE)
        await ask(store, WARN, f"all-{number}", ALL)
    for number in range(2):
        assert await store.refund(WARN, f"all-{number}")
    assert await read_usage(store, WARN) == {"": [2, 2]}


async def test_one_member_with_the_largest_pods_gives_no_room_to_others(store: Store, clock: HandClock) -> None:
    web, newcomer = (bind_pool(service) for service in ("web", "newcomer"))
    web = replace(web, quota_mode=Mode.ENFORCE, windows=(), standing=None)
    await store.mark_pool_complete(web)
    for number in range(HARD):
        assert (await ask(store, web, f"web-{number}", ONE)).charged
    for number in range(64):
        assert (await ask(store, newcomer, f"all-{number}", ALL)).charged
    for number in range(64):
        await observe(store, newcomer, f"all-{number}", ALL, lives=False)
    clock.sleep(2 * MINUTE)
    await store.mark_pool_complete(web)
    denied = await ask(store, web, "more", ONE)
    assert denied.refused is DeniedBy.QUOTA
    (use,) = denied.over
    assert (use.used, use.guarantee is not None and use.guarantee.used) == (HARD, HARD)


@pytest.mark.parametrize("seed", range(3))
async def test_sums_of_any_history_are_those_of_whole_numbers(store: Store, clock: HandClock, seed: int) -> None:
    """Python counts in whole numbers of any size, and so does the store in memory."""
    chosen, reference, plan = Random(seed), MemoryStore(clock), bind_pool("web")  # noqa: S311  not for security
    charged: list[tuple[str, dict[str, int]]] = []
    for step in range(STEPS):
        clock.sleep(chosen.choice((0, 0, 0.1, 1, 20)))
        action = chosen.random()
        uid, cost = f"uid-{step}", {MEMORY: chosen.choice(LARGE)}
        if charged and chosen.random() < AGAIN:
            uid, cost = charged[-1]
        found = []
        for each in (store, reference):
            if action < ASKED:
                found.append((await ask(each, plan, uid, cost)).charged)
            elif action < ENDED:
                ended, amounts = charged[step % len(charged)] if charged else (uid, cost)
                found.append((await observe(each, plan, ended, amounts, lives=False)).changed)
            elif action < REFUNDED:
                found.append(await each.refund(plan, uid))
            else:
                found.append(await each.reset(plan, clock.us))
        assert found[0] == found[1]
        if action < ASKED and found[0]:
            charged.append((uid, cost))
        of_store, exact = await store.snapshot(plan), await reference.snapshot(plan)
        for use, wanted in zip((*of_store.uses[""], *of_store.pool), (*exact.uses[""], *exact.pool), strict=True):
            assert clip_use(use) == clip_use(wanted), step
