"""Guarantees of live Pods in a pool on every store: never above `hard` at any time, never a denial within a guarantee.

The judge here is a table of all live Pods; it knows none of the stores' code. `make soak` takes many more events.
A smaller test takes all short histories.
"""

import os
from itertools import product
from random import Random

import pytest
from msgspec.structs import replace

from tests.contract.exact_operations import HandClock
from tests.contract.live_pods import Store
from tests.contract.stage_fixtures import clock, stage
from tests.contract.store_plans import live
from tests.contract.store_session import Stage
from tests.core.plans import plan_of
from webhook.adapters.memory_store import MemoryStore
from webhook.core.quota import (
    Acquire,
    Cost,
    CounterPlan,
    DeniedBy,
    GuaranteeUse,
    PoolGuarantees,
    PoolPlan,
    Sighting,
)

pytest_plugins = ("tests.redis_servers.fixtures",)
__all__ = ["clock", "stage"]

EVENTS = int(os.environ.get("PODGATE_TEST_OPERATIONS", "1000"))
"""On each store."""
SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))
_EVENTS_PER_RUN = 500
HARD = {"pods": 20, "requests.cpu": 5000}
OWN = {"gold": {"pods": 8, "requests.cpu": 2500}, "silver": {"pods": 6}, "bronze": {"pods": 2, "requests.cpu": 1000}}
MEMBERS = (*OWN, "guest")


def build_plans(name: str, own: dict[str, dict[str, int]], hard: dict[str, int]) -> dict[str, CounterPlan]:
    """Return the plan of each member."""
    shared = live(pods=hard["pods"], cpu=hard["requests.cpu"])
    guarantees = PoolGuarantees(
        {
            (0, resource): tuple((member, most[resource]) for member, most in own.items() if resource in most)
            for resource in hard
        }
    )
    return {
        member: plan_of(service=member, tag=name, pool=PoolPlan(name, (), guarantees.bind(shared, member)))
        for member in MEMBERS
    }


class Judge:
    """All live Pods, with what each of them holds."""

    def __init__(self) -> None:
        self.pods: dict[str, tuple[str, Cost]] = {}

    def admit(self, uid: str, member: str, cost: Cost) -> None:
        """Let a Pod grow to its cost; a smaller one holds as much as before until it is seen."""
        _, held = self.pods.get(uid, (member, {}))
        self.pods[uid] = member, {resource: max(amount, held.get(resource, 0)) for resource, amount in cost.items()}

    def sum_used(self, resource: str, members: tuple[str, ...] = MEMBERS) -> int:
        return sum(cost.get(resource, 0) for member, cost in self.pods.values() if member in members)

    def is_guaranteed(self, member: str, more: Cost) -> bool:
        """Return whether what a Pod adds is within its member's guarantee."""
        most = OWN.get(member, {})
        return all(
            amount <= 0 or self.sum_used(resource, (member,)) + amount <= most.get(resource, 0)
            for resource, amount in more.items()
        )

    def check_sums(self) -> None:
        for resource, hard in HARD.items():
            used = self.sum_used(resource)
            assert used <= hard, f"oversold: {used} live {resource} of {hard}"


class History:
    """Pods of all members come, are seen, grow, shrink, end and are refunded; the controller looks, and drops."""

    def __init__(self, store: Store, clock: HandClock, name: str, chosen: Random) -> None:
        self.store, self.clock, self.name, self.chosen = store, clock, name, chosen
        self.plans, self.judge = build_plans(name, OWN, HARD), Judge()
        self.costs: dict[str, Cost] = {}
        self.charged = self.denied = self.promised = self.number = 0

    async def run(self, events: int) -> tuple[int, int, int]:
        """Return how many were charged, denied and promised."""
        for self.number in range(events):
            if self.number % 20 == 0:
                await self.store.mark_pool_complete(self.plans["guest"])
            self.clock.true_us += self.chosen.choice((0, 0, 1, 500_000, 20_000_000))
            does = self.chosen.choices((self.come, self.end, self.resize, self.see), (12, 6, 2, 2))[0]
            await does()
            self.judge.check_sums()
        return self.charged, self.denied, self.promised

    async def come(self) -> None:
        member, uid = self.chosen.choice(MEMBERS), f"{self.name}-{self.number}"
        await self.ask(member, uid, self.draw_cost(), {})

    def draw_cost(self) -> Cost:
        return {"pods": 1, "requests.cpu": self.chosen.choice((0, 100, 300, 900))}

    async def ask(self, member: str, uid: str, cost: Cost, old: Cost) -> None:
        _, held = self.judge.pods.get(uid, (member, {}))
        more = {resource: amount - held.get(resource, 0) for resource, amount in cost.items()}
        is_promised = self.judge.is_guaranteed(member, more)
        asked = Acquire(self.plans[member], "shop", uid, cost, "user:a", resize_from=old or None)
        receipt = await self.store.acquire(asked)
        self.promised += is_promised
        if receipt.refused is DeniedBy.QUOTA:
            assert not is_promised, f"denied within its guarantee: {member} {cost}: {receipt.over}"
            self.denied += 1
        else:
            self.charged += 1
            self.costs[uid] = cost
            self.judge.admit(uid, member, cost)

    async def resize(self) -> None:
        if self.judge.pods:
            uid = self.chosen.choice(sorted(self.judge.pods))
            member, _ = self.judge.pods[uid]
            await self.ask(member, uid, self.draw_cost(), self.costs[uid])

    async def see(self) -> None:
        for uid, (member, _) in self.judge.pods.items():
            if self.chosen.random() < 0.3:
                cost = self.costs[uid]
                self.judge.pods[uid] = member, cost
                await self.store.observe(self.plans[member], [Sighting("shop", uid, uid, cost, lives=True)])

    async def end(self) -> None:
        if self.judge.pods:
            uid = self.chosen.choice(sorted(self.judge.pods))
            member, cost = self.judge.pods.pop(uid)
            if self.chosen.random() < 0.5:
                await self.store.observe(self.plans[member], [Sighting("shop", uid, uid, cost, lives=False)])
            else:
                await self.store.refund(self.plans[self.chosen.choice(MEMBERS)], uid)


def test_random_histories_are_within_the_limits_and_keep_every_promise(stage: Stage, clock: HandClock) -> None:
    totals = [0, 0, 0]
    for first in range(0, EVENTS, _EVENTS_PER_RUN):
        clock.reset()
        chosen = Random(f"{SEED}:{first}")  # noqa: S311  not for security
        history = History(stage.store, clock, stage.name(), chosen)  # type: ignore[arg-type]  each store is a ledger, too
        found = stage.runner.run(history.run(_EVENTS_PER_RUN))
        totals = [total + each for total, each in zip(totals, found, strict=True)]
    assert min(totals) > EVENTS // 50, "a run needs many charged, denied and promised"


@pytest.mark.parametrize("own", [{"gold": 2, "silver": 1}, {"gold": 1, "silver": 1, "bronze": 1}, {"gold": 3}, {}])
async def test_all_short_histories_are_within_the_limit_and_keep_every_promise(own: dict[str, int]) -> None:
    """Each step: a member asks, or the oldest live Pod of gold or of another member ends."""
    hard, steps = 3, ("gold", "silver", "guest", "end of gold", "end of another")
    guaranteed = {member: {"pods": most} for member, most in own.items()}
    plans = build_plans("p", guaranteed, {"pods": hard, "requests.cpu": 1})
    for history in product(steps, repeat=5):
        store, pods = MemoryStore(HandClock()), list[tuple[str, str]]()
        await store.mark_pool_complete(plans["guest"])
        for number, step in enumerate(history):
            if step not in plans:
                ending = next((pod for pod in pods if (pod[0] == "gold") == (step == "end of gold")), None)
                if ending is not None:
                    pods.remove(ending)
                    await store.observe(plans[ending[0]], [Sighting("x", "", ending[1], {"pods": 1}, lives=False)])
                continue
            counting = [member for member, _ in pods]
            receipt = await store.acquire(Acquire(plans[step], "x", str(number), {"pods": 1}, "user:a"))
            others = sum(max(0, most - counting.count(other)) for other, most in own.items() if other != step)
            fits = len(counting) < hard and (
                counting.count(step) < own.get(step, 0) or len(counting) + 1 + others <= hard
            )
            assert receipt.charged is fits, (history, number)
            pods += [(step, str(number))] if receipt.charged else []


async def test_a_denial_names_the_guarantee_and_what_is_kept() -> None:
    store, plans = MemoryStore(HandClock()), build_plans("p", OWN, HARD)
    await store.mark_pool_complete(plans["guest"])
    for number in range(4):
        assert (await store.acquire(Acquire(plans["guest"], "x", str(number), {"pods": 1}, "user:a"))).charged
    denied = await store.acquire(Acquire(plans["guest"], "x", "g", {"pods": 1}, "user:a"))
    assert [(use.window, use.guarantee, use.left, use.free_at_us) for use in denied.over] == [
        ("standing", GuaranteeUse(0, 0, 16), 0, 0)
    ]
    large = await store.acquire(Acquire(plans["guest"], "x", "l", {"pods": 1, "requests.cpu": 1501}, "user:a"))
    assert [(use.resource, use.free_at_us) for use in large.over] == [("pods", 0), ("cpu", None)]


async def test_a_new_guarantee_counts_what_runs_once_the_controller_has_shown_it() -> None:
    """Until then the Pods count as a use of what all share: nothing is promised twice."""
    store, before = MemoryStore(HandClock()), build_plans("p", {}, HARD)
    for number in range(8):
        await store.acquire(Acquire(before["gold"], "x", str(number), {"pods": 1}, "user:a"))
    plans = build_plans("p", OWN, HARD)
    await store.mark_pool_complete(plans["gold"])

    async def read_own() -> int:
        [pods, _] = (await store.snapshot(plans["gold"])).pool
        assert pods.guarantee is not None
        return pods.guarantee.used

    assert await read_own() == 0
    seen = [Sighting("x", "", str(number), {"pods": 1}, lives=True) for number in range(8)]
    assert all(each.changed for each in await store.observe(plans["gold"], seen))
    assert await read_own() == 8
    assert not any(each.changed for each in await store.observe(plans["gold"], seen))
    fleet = replace(plans["gold"], fleet=True)
    assert [use.used for use in (await store.snapshot(fleet)).pool] == [0, 0]
