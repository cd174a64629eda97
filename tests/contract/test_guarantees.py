"""Guarantees in a pool on every store: never above `hard` in any trailing window, never a denial within a guarantee.

The judge here is a list of all charges; it knows no buckets, and none of the stores' code. `make soak` takes many more
events. A smaller test takes all short histories.
"""

import os
from itertools import product
from random import Random

import pytest

from tests.contract.exact_operations import HandClock
from tests.contract.stage_fixtures import clock, stage
from tests.contract.store_session import Stage
from tests.core.plans import plan_of, window
from webhook.adapters.memory_store import MemoryStore
from webhook.core.quota import Acquire, Cost, CounterPlan, DeniedBy, Holder, PoolGuarantees, PoolPlan
from webhook.ports import CounterStore

pytest_plugins = ("tests.redis_servers.fixtures",)
__all__ = ["clock", "stage"]

EVENTS = int(os.environ.get("PODGATE_TEST_OPERATIONS", "1000"))
"""On each store."""
SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))
_EVENTS_PER_RUN = 500
SECOND_US = 1_000_000
HARD = {"pods": 20, "requests.cpu": 5000}
OWN = {"gold": {"pods": 8, "requests.cpu": 2500}, "silver": {"pods": 6}, "bronze": {"pods": 2, "requests.cpu": 1000}}
MEMBERS = (*OWN, "guest")
WINDOWS = (64, 600)


def build_plans(name: str, own: dict[str, dict[str, int]], hard: dict[str, int]) -> dict[str, CounterPlan]:
    """Return the plan of each member. All windows have the same limits and guarantees."""
    shared = [window(seconds, pods=hard["pods"], cpu=hard["requests.cpu"]) for seconds in WINDOWS]
    guarantees = PoolGuarantees(
        {
            (seconds, resource): tuple((member, most[resource]) for member, most in own.items() if resource in most)
            for seconds in WINDOWS
            for resource in hard
        }
    )
    return {
        member: plan_of(
            service=member, tag=name, pool=PoolPlan(name, tuple(guarantees.bind(each, member) for each in shared))
        )
        for member in MEMBERS
    }


class Judge:
    """All charges that were acknowledged and not refunded."""

    def __init__(self) -> None:
        self.charges: dict[str, tuple[str, Cost, int]] = {}

    def sum_used(self, resource: str, since_us: int, members: tuple[str, ...] = MEMBERS) -> int:
        return sum(
            cost.get(resource, 0)
            for member, cost, at_us in self.charges.values()
            if member in members and at_us > since_us
        )

    def is_guaranteed(self, member: str, cost: Cost, now_us: int) -> bool:
        """Return whether a Pod is within its member's guarantee, however long its earlier charges may count."""
        most = OWN.get(member, {})
        return all(
            self.sum_used(resource, now_us - seconds * 1_015_625, (member,)) + amount <= most.get(resource, 0)
            for seconds, (resource, amount) in product(WINDOWS, cost.items())
        )


async def live(store: CounterStore, clock: HandClock, name: str, chosen: Random, events: int) -> tuple[int, int, int]:
    """Let Pods of all members come, resize, end and be refunded; return how many were charged, denied and promised."""
    plans, judge = build_plans(name, OWN, HARD), Judge()
    charged = denied = promised = 0
    for number in range(events):
        clock.true_us += chosen.choice((0, 0, 0, 1, 500_000, SECOND_US, 2 * SECOND_US, 30 * SECOND_US))
        if judge.charges and chosen.random() < 0.1:
            uid = chosen.choice(sorted(judge.charges))
            await store.refund(plans[judge.charges.pop(uid)[0]], uid)
            continue
        member, uid = chosen.choice(MEMBERS), f"{name}-{number}"
        cost = {"pods": 1, "requests.cpu": chosen.choice((0, 100, 300, 900))}
        is_promised = judge.is_guaranteed(member, cost, clock.now_us())
        receipt = await store.acquire(Acquire(plans[member], "shop", uid, cost, "user:a"))
        promised += is_promised
        if receipt.refused is DeniedBy.QUOTA:
            assert not is_promised, f"denied within its guarantee: {member} {cost}: {receipt.over}"
            denied += 1
            continue
        charged += 1
        judge.charges[uid] = member, cost, clock.now_us()
        for seconds, (resource, hard) in product(WINDOWS, HARD.items()):
            used = judge.sum_used(resource, clock.now_us() - seconds * SECOND_US)
            assert used <= hard, f"oversold: {used} {resource} of {hard} in {seconds} s"
    return charged, denied, promised


def test_random_histories_are_within_the_limits_and_keep_every_promise(stage: Stage, clock: HandClock) -> None:
    totals = [0, 0, 0]
    for first in range(0, EVENTS, _EVENTS_PER_RUN):
        clock.reset()
        chosen = Random(f"{SEED}:{first}")  # noqa: S311  not for security
        found = stage.runner.run(live(stage.store, clock, stage.name(), chosen, _EVENTS_PER_RUN))
        totals = [total + each for total, each in zip(totals, found, strict=True)]
    charged, denied, promised = totals
    assert min(charged, denied, promised) > EVENTS // 50, "a run needs many of each"


@pytest.mark.parametrize("own", [{"gold": 2, "silver": 1}, {"gold": 1, "silver": 1, "bronze": 1}, {"gold": 3}, {}])
async def test_all_short_histories_are_within_the_limit_and_keep_every_promise(own: dict[str, int]) -> None:
    """Each step: a member asks, or a window of 64 buckets goes on by a third."""
    hard, steps = 3, ("gold", "silver", "guest", "wait")
    guaranteed = {member: {"pods": most} for member, most in own.items()}
    plans = build_plans("p", guaranteed, {"pods": hard, "requests.cpu": 1})
    for history in product(steps, repeat=6):
        clock = HandClock()
        store, charges = MemoryStore(clock), list[tuple[str, int]]()
        for number, step in enumerate(history):
            if step == "wait":
                clock.true_us += 22 * SECOND_US
                continue
            now_us = clock.now_us()
            counting = [member for member, at_us in charges if now_us - at_us < 65 * SECOND_US]
            receipt = await store.acquire(Acquire(plans[step], "x", str(number), {"pods": 1}, "user:a"))
            is_promised = counting.count(step) < own.get(step, 0)
            others = sum(max(0, most - counting.count(other)) for other, most in own.items() if other != step)
            fits = len(counting) < hard and (is_promised or len(counting) + 1 + others <= hard)
            # Of the long window nothing ever leaves here: it may deny what the other would admit.
            everything = [member for member, _ in charges]
            all_others = sum(max(0, most - everything.count(other)) for other, most in own.items() if other != step)
            fits &= len(everything) < hard and (
                everything.count(step) < own.get(step, 0) or len(everything) + 1 + all_others <= hard
            )
            assert receipt.charged is fits, (history, number)
            charges += [(step, now_us)] if receipt.charged else []


async def test_a_denial_names_the_guarantee_and_what_is_kept() -> None:
    clock = HandClock()
    store, plans = MemoryStore(clock), build_plans("p", OWN, HARD)
    for number in range(10):
        asked = Acquire(plans["guest" if number < 4 else "gold"], "x", str(number), {"pods": 1}, "user:a")
        assert (await store.acquire(asked)).charged
    denied = await store.acquire(Acquire(plans["guest"], "x", "g", {"pods": 1}, "user:a"))
    found = {use.window: use.guarantee for use in denied.over}
    assert [(each.hard, each.used, each.kept) for each in found.values() if each] == [(0, 0, 10), (0, 0, 10)]
    assert {use.of for use in denied.over} == {Holder.POOL}
    for number in range(2):
        assert (await store.acquire(Acquire(plans["gold"], "x", f"o{number}", {"pods": 1}, "user:a"))).charged
    denied = await store.acquire(Acquire(plans["gold"], "x", "o", {"pods": 1}, "user:a"))
    assert [(use.used, use.guarantee and use.guarantee.used, use.left) for use in denied.over] == [
        (12, 8, 0),
        (12, 8, 0),
    ]
