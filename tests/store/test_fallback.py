"""A replica's decisions while the store does not respond, and the store's state afterwards."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import BreakerPlan, BreakerView, QuotaEventPlan, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.policy_spec import Mode, WhenStoreUnavailable
from webhook.core.quota import Acquire, Booking, CounterPlan, DeniedBy, PoolPlan, Receipt, ServiceSnapshot
from webhook.errors import NoStoreAnswerError, StoreUnavailableError
from webhook.store import BookingCause, FallbackReports, ReconcilerTiming, StoreFallback, backlog, pending_refunds

SECOND_US = 1_000_000
AHEAD_US = SECOND_US
"""The store's clock is a second ahead of the replica's."""

LOCAL = plan_of(window(64, pods=4))
ALLOW = replace(LOCAL, when_unavailable=WhenStoreUnavailable.ALLOW)
DENY = replace(LOCAL, when_unavailable=WhenStoreUnavailable.DENY)
NO_QUOTA = plan_of()
_numbers = iter(range(10**9))


class Clock:
    def __init__(self, at_us: int) -> None:
        self.us = at_us

    def now_us(self) -> int:
        return self.us


class Switched(MemoryStore):
    """A store that can be away, that can do what it is asked without an answer, and that can lose what it knew."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.settled_others = 1_000
        """How many other replicas have shown that they owe nothing."""
        self.asked_of_others: list[bool] = []
        self.on_asked: Callable[[], None] = lambda: None
        """What happens while an Acquire is under way."""
        self.on_booked: Callable[[], None] = lambda: None
        """What is noticed with the first booking."""
        self.away = ""
        self.swallows = False
        self.asked = 0
        self.refunded: list[str] = []

    def _check(self) -> None:
        if self.away:
            raise NoStoreAnswerError(self.away, sent=False)

    async def acquire(self, request: Acquire) -> Receipt:
        self.asked += 1
        self.on_asked()
        if self.swallows:
            await super().acquire(request)
            raise NoStoreAnswerError("timeout: no answer within 50 ms", sent=True)
        self._check()
        return await super().acquire(request)

    async def knows(self, plan: CounterPlan, uid: str) -> bool:
        self._check()
        return await super().knows(plan, uid)

    async def others_settled(self, _: CounterPlan, *, afresh: bool) -> int:
        self._check()
        self.asked_of_others.append(afresh)
        return self.settled_others

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        self._check()
        self.refunded.append(uid)
        return await super().refund(plan, uid)

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        self._check()
        noticed, self.on_booked = self.on_booked, lambda: None
        noticed()
        return await super().book(plan, bookings)

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        self._check()
        return await super().snapshot(plan, namespace)

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        self._check()
        return await super().record_outcomes(plan, outcomes)

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        self._check()
        await super().propose(plan, view)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        self._check()
        return await super().tick(plans)

    def forget_all(self) -> None:
        self._states.clear()


class World:
    """A guard before a store, and what it told."""

    def __init__(self) -> None:
        self.clock = Clock(10_000 * SECOND_US)
        self.store = Switched(Clock(self.clock.us + AHEAD_US))
        self.fallbacks: list[tuple[str, str, bool]] = []
        self.booked: list[tuple[str, BookingCause, int]] = []
        self.dropped = self.cached = self.lost = 0
        self.guard = self.another()

    def another(self, **share: Any) -> StoreFallback:
        def count(what: str) -> None:
            setattr(self, what, getattr(self, what) + 1)

        reports = FallbackReports(
            lambda *told: self.fallbacks.append(told),
            lambda *told: self.booked.append(told),
            lambda: count("dropped"),
            lambda _: count("cached"),
            lambda: count("lost"),
        )
        paces: dict[str, float] = {"others_seconds": 3600, "refund_after_seconds": 0, **share.pop("paces", {})}
        timing = ReconcilerTiming(first_seconds=1e-4, longest_seconds=1e-3, between_seconds=1e-4, **paces)
        return StoreFallback(share.pop("inner", self.store), self.clock, reports, timing=timing, **share)

    def sleep(self, seconds: int) -> None:
        self.clock.us += seconds * SECOND_US
        self.store._clock.us += seconds * SECOND_US  # type: ignore[attr-defined]

    async def ask(self, plan: CounterPlan = LOCAL, uid: str = "", **more: Any) -> Receipt:
        guard = more.pop("guard", self.guard)
        return await guard.acquire(self.request(plan, uid, **more))

    def request(self, plan: CounterPlan, uid: str = "", **more: Any) -> Acquire:
        cost = more.pop("cost", {"pods": 1})
        source = more.pop("event_source", "user:alice")
        return Acquire(plan, "shop", uid or f"uid-{next(_numbers)}", cost, source, **more)

    async def uncounted(self, plan: CounterPlan, uid: str = "", *, admitted: bool, **more: Any) -> str:
        guard = more.pop("guard", self.guard)
        request = self.request(plan, uid, **more)
        with pytest.raises(StoreUnavailableError) as failed:
            await guard.acquire(request)
        if admitted:
            guard.book_later(request)
        return str(failed.value)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the guard do what it does on its own account."""
        while not condition():  # noqa: ASYNC110  what is waited for is a turn of this loop
            await asyncio.sleep(1e-4)

    async def settled(self) -> None:
        """Wait until nothing is owed: what the guard does on its own account has no other signal."""
        while self.guard._reconciler._task is not None:  # noqa: ASYNC110  what is waited for is a turn of this loop
            await asyncio.sleep(1e-4)

    async def used(self, plan: CounterPlan = LOCAL) -> list[int]:
        return [use.used for use in (await MemoryStore.snapshot(self.store, plan)).uses[""]]


@pytest.fixture
async def simulation() -> AsyncIterator[World]:
    simulation = World()
    yield simulation
    await simulation.guard.close()


async def test_with_a_store_that_answers_it_is_not_to_be_noticed(simulation: World) -> None:
    receipts = [await simulation.ask(uid=uid) for uid in "abcdae"]
    assert [receipt.charged for receipt in receipts] == [True, True, True, True, False, False]
    assert [receipt.repeated for receipt in receipts] == [False, False, False, False, True, False]
    assert receipts[-1].refused is DeniedBy.QUOTA
    assert not any(receipt.local for receipt in receipts)
    assert simulation.fallbacks == simulation.booked == []


async def test_local_admits_by_the_share_and_the_counters_converge(simulation: World) -> None:
    await simulation.ask()
    simulation.store.away = "unreachable: refused"
    receipts = [await simulation.ask() for _ in range(4)]
    assert [receipt.charged for receipt in receipts] == [True, True, True, False]
    assert all(receipt.local for receipt in receipts)
    assert receipts[-1].refused is DeniedBy.QUOTA
    assert receipts[-1].at_us == simulation.clock.us + AHEAD_US, "by the store's clock"
    assert simulation.fallbacks == [("payment-api", "Local", True)]
    assert await simulation.used() == [1]
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used() == [4]
    assert simulation.fallbacks[1:] == [("payment-api", "Local", False)]
    assert sum(count for _, cause, count in simulation.booked if cause is BookingCause.AWAY) == 3
    assert (await simulation.ask()).refused is DeniedBy.QUOTA


async def test_who_has_only_let_time_pass_goes_by_the_clock_of_the_store(simulation: World) -> None:
    await simulation.guard.tick([LOCAL])
    simulation.store.away = "unreachable: refused"
    assert (await simulation.ask()).at_us == simulation.clock.us + AHEAD_US


async def test_what_was_admitted_is_booked_at_its_own_time(simulation: World) -> None:
    await simulation.ask()
    simulation.store.away = "unreachable: refused"
    await simulation.ask()
    simulation.sleep(60)
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used() == [2]
    simulation.sleep(5)
    assert await simulation.used() == [0]


async def test_each_replica_has_its_share(simulation: World) -> None:
    guards = [simulation.another(replicas=3, ordinal=ordinal) for ordinal in range(3)]
    simulation.store.away = "unreachable: refused"
    admitted = [[(await simulation.ask(guard=guard)).charged for _ in range(3)].count(True) for guard in guards]
    assert admitted == [2, 1, 1]
    simulation.store.away = ""
    for simulation.guard in guards:
        await simulation.settled()
    assert await simulation.used() == [4]


async def test_replicas_that_come_make_smaller_shares_at_once_and_those_that_leave_no_larger_ones(
    simulation: World,
) -> None:
    simulation.guard.set_replicas(2, 0)
    simulation.store.away = "unreachable: refused"
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False]
    simulation.guard.set_replicas(1, 0)
    assert not (await simulation.ask()).charged
    simulation.store.away = ""
    await simulation.settled()
    simulation.store.away = "unreachable: refused"
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False], "heard since, and alone now"


async def test_a_second_absence_begins_with_what_the_store_was_reported_of_the_first(simulation: World) -> None:
    for _ in range(2):
        simulation.store.away = "unreachable: refused"
        assert [(await simulation.ask()).charged for _ in range(2)] == [True, True]
        simulation.store.away = ""
        await simulation.settled()
    simulation.store.away = "unreachable: refused"
    assert (await simulation.ask()).refused is DeniedBy.QUOTA
    assert await simulation.used() == [4]


async def test_a_pool_is_shared_and_booked(simulation: World) -> None:
    pool = PoolPlan("prod", (window(64, pods=3),))
    one = plan_of(window(64, pods=4), tag="prod", pool=pool)
    other = plan_of(tag="prod", pool=pool, service="other")
    simulation.store.away = "unreachable: refused"
    assert [(await simulation.ask(plan)).charged for plan in (one, other, one, other)] == [True, True, True, False]
    simulation.store.away = ""
    await simulation.settled()
    look = await simulation.store.snapshot(one)
    assert [use.used for use in (*look.uses[""], *look.pool)] == [2, 3]


@pytest.mark.parametrize(
    ("plan", "rule"), [(ALLOW, "Allow"), (DENY, "Deny"), (NO_QUOTA, "failureMode")], ids=("Allow", "Deny", "none")
)
@pytest.mark.parametrize("admitted", [True, False])
async def test_where_others_decide_the_pods_that_they_admit_are_booked(
    simulation: World, plan: CounterPlan, rule: str, *, admitted: bool
) -> None:
    simulation.store.away = "readonly: You can't write"
    assert await simulation.uncounted(plan, "a", admitted=admitted) == "readonly: You can't write"
    assert simulation.fallbacks == [("payment-api", rule, True)]
    simulation.store.away = ""
    await simulation.settled()
    assert (await simulation.ask(plan, "a")).repeated is admitted
    assert simulation.fallbacks[-1] == ("payment-api", rule, False)


async def test_a_mode_that_warns_admits_past_the_share_and_books(simulation: World) -> None:
    plan = replace(LOCAL, quota_mode=Mode.WARN)
    simulation.store.away = "unreachable: refused"
    receipts = [await simulation.ask(plan) for _ in range(6)]
    assert [receipt.would_refuse for receipt in receipts][3:] == [(), (DeniedBy.QUOTA,), (DeniedBy.QUOTA,)]
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used() == [6]


async def test_a_rule_that_the_policy_changes_meanwhile_is_reported(simulation: World) -> None:
    simulation.store.away = "unreachable: refused"
    await simulation.ask(LOCAL)
    await simulation.ask(LOCAL)
    await simulation.uncounted(DENY, admitted=False)
    simulation.store.away = ""
    await simulation.settled()
    assert [told[1:] for told in simulation.fallbacks] == [
        ("Local", True),
        ("Local", False),
        ("Deny", True),
        ("Deny", False),
    ]


async def test_a_dry_run_leaves_no_trace(simulation: World) -> None:
    simulation.store.away = "unreachable: refused"
    for _ in range(9):
        assert (await simulation.ask(peek=True)).refused is None
    await simulation.uncounted(ALLOW, admitted=True, peek=True)
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used() == [0]
    assert simulation.booked == []


async def test_a_resize_is_judged_by_its_increase_and_booked_past_every_limit(simulation: World) -> None:
    plan = plan_of(window(64, pods=9, cpu=300))
    await simulation.ask(plan, "a", cost={"pods": 1, "requests.cpu": 100})
    simulation.store.away = "unreachable: refused"
    grown = {"cost": {"pods": 1, "requests.cpu": 250}, "resize_from": {"pods": 1, "requests.cpu": 100}}
    assert (await simulation.ask(plan, "a", **grown)).charged
    assert (await simulation.ask(plan, "a", **grown)).refused is DeniedBy.QUOTA
    simulation.store.away = ""
    await simulation.ask(plan, "c", guard=simulation.another(), cost={"pods": 1, "requests.cpu": 200})
    await simulation.settled()
    assert await simulation.used(plan) == [2, 450]
    assert simulation.store.refunded == []
    assert simulation.booked == [], "no Pod came in"


async def test_a_pod_that_came_in_and_was_resized_without_the_store_is_booked_with_both(simulation: World) -> None:
    plan = plan_of(window(64, pods=9, cpu=900))
    simulation.store.away = "unreachable: refused"
    await simulation.ask(plan, "a", cost={"pods": 1, "requests.cpu": 100})
    for old, new in ((100, 250), (250, 400)):
        cost, before = ({"pods": 1, "requests.cpu": amount} for amount in (new, old))
        assert (await simulation.ask(plan, "a", cost=cost, resize_from=before)).charged
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used(plan) == [1, 400]


async def test_a_service_that_nobody_asked_for_while_the_store_was_away_keeps_to_its_share_too(
    simulation: World,
) -> None:
    simulation.guard = simulation.another(replicas=2)
    simulation.store.settled_others = 0
    simulation.guard.missed(LOCAL)
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False]
    simulation.store.settled_others = 1
    await simulation.settled()
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False]


async def test_a_service_that_falls_again_while_it_is_looked_at_waits_for_the_others_again(simulation: World) -> None:
    simulation.guard = simulation.another(replicas=2)
    look, looks = simulation.store.snapshot, []

    async def falling(plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        looks.append(plan)
        if len(looks) == 1:
            simulation.guard.missed(plan)
        return await look(plan, namespace)

    simulation.store.snapshot = falling  # type: ignore[method-assign]
    simulation.guard.missed(LOCAL)
    await simulation.settled()
    assert (len(looks), simulation.store.asked_of_others) == (2, [True, True])


async def test_one_replica_has_nobody_to_wait_for_where_nothing_was_asked(simulation: World) -> None:
    simulation.guard.missed(LOCAL)
    assert simulation.fallbacks == []


async def test_a_repeated_uid_is_answered_as_before(simulation: World) -> None:
    full = plan_of(window(64, pods=1))
    await simulation.ask(full, "a")
    simulation.store.away = "unreachable: refused"
    assert (await simulation.ask(full, "a")).repeated, "this replica let it in a moment ago, through the store"
    assert (await simulation.ask(full, "b")).refused is DeniedBy.QUOTA
    plan = plan_of(window(64, pods=1), service="other", tag="other")
    assert (await simulation.ask(plan, "c")).charged
    assert (await simulation.ask(plan, "c")).repeated
    simulation.store.away = ""
    assert (await simulation.ask(plan, "c")).repeated, "it is not booked yet"
    await simulation.settled()
    assert (await simulation.ask(plan, "c")).repeated
    assert await simulation.used(plan) == [1]


async def test_what_the_store_did_without_an_answer_is_refunded_where_the_pod_was_denied(simulation: World) -> None:
    simulation.store.swallows = True
    await simulation.uncounted(DENY, "a", admitted=False)
    assert await simulation.used(DENY) == [1]
    simulation.store.swallows = False
    await simulation.settled()
    assert await simulation.used(DENY) == [0]
    assert simulation.store.refunded == ["a"]


async def test_and_not_where_it_was_admitted_now_or_when_it_was_asked_again(simulation: World) -> None:
    simulation.store.swallows = True
    await simulation.uncounted(ALLOW, "a", admitted=True)
    assert (await simulation.ask(LOCAL, "b")).charged
    await simulation.uncounted(DENY, "c", admitted=False)
    simulation.store.swallows = False
    assert (await simulation.ask(DENY, "c")).repeated
    await simulation.settled()
    assert simulation.store.refunded == []
    assert await simulation.used() == [3], "once each"


async def test_a_resize_without_an_answer_gives_nothing_back_for_its_pod_is_there(simulation: World) -> None:
    await simulation.ask(DENY, "a")
    simulation.store.swallows = True
    await simulation.uncounted(DENY, "a", admitted=False, resize_from={"pods": 1})
    await simulation.uncounted(DENY, "b", admitted=False, peek=True)
    simulation.store.swallows = False
    await simulation.settled()
    assert simulation.store.refunded == []
    assert await simulation.used(DENY) == [1]


async def test_what_local_refuses_and_the_store_did_is_refunded(simulation: World) -> None:
    await simulation.ask(cost={"pods": 4})
    simulation.sleep(63)
    simulation.store.away = "unreachable: refused"
    assert (await simulation.ask(uid="a")).refused is DeniedBy.QUOTA
    simulation.store.away, simulation.store.swallows = "", True
    simulation.store._clock.us += 2 * SECOND_US  # type: ignore[attr-defined]
    assert (await simulation.ask(uid="b")).refused is DeniedBy.QUOTA
    assert await simulation.used() == [1]
    simulation.store.swallows = False
    await simulation.settled()
    assert await simulation.used() == [0]


async def test_a_refund_of_what_the_store_was_not_reported_yet_makes_room(simulation: World) -> None:
    simulation.store.away = "unreachable: refused"
    for uid in "abcd":
        await simulation.ask(uid=uid)
    assert await simulation.guard.refund(LOCAL, "a")
    assert (await simulation.ask(uid="e")).charged
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used() == [4]
    assert (await simulation.ask(uid="a")).refused is DeniedBy.QUOTA


async def test_what_the_store_has_lost_is_reported_again_within_a_minute_and_once(simulation: World) -> None:
    await simulation.ask(uid="old")
    simulation.sleep(61)
    await simulation.guard.tick([LOCAL])
    for uid in "abc":
        await simulation.ask(uid=uid)
    await simulation.guard.refund(LOCAL, "c")
    simulation.store.forget_all()
    simulation.guard.lost()
    await simulation.settled()
    assert await simulation.used() == [2], "neither what is older than a minute nor what was given back"
    assert simulation.booked == [("payment-api", BookingCause.LOSS, 2)]
    simulation.guard.lost()
    await simulation.settled()
    assert await simulation.used() == [2]
    assert simulation.booked == [("payment-api", BookingCause.LOSS, 2)], "it was not lost this time"
    assert simulation.lost == 2


async def test_what_was_booked_is_reported_again_too(simulation: World) -> None:
    simulation.store.away = "unreachable: refused"
    await simulation.ask()
    simulation.store.away = ""
    await simulation.settled()
    simulation.store.forget_all()
    simulation.guard.lost()
    await simulation.settled()
    assert await simulation.used() == [1]


async def test_a_refund_of_what_was_lost_takes_nothing_from_this_replicas_own_count(simulation: World) -> None:
    await simulation.ask(uid="a")
    simulation.store.forget_all()
    simulation.store.away = "unreachable: refused"
    assert (await simulation.ask()).charged
    simulation.guard.lost()
    await simulation.guard.refund(LOCAL, "a")
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False], "three were left"
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used() == [3]


async def test_a_store_that_is_back_admits_nobody_before_it_knows_what_came_in_without_it(simulation: World) -> None:
    await simulation.ask()
    simulation.store.away = "unreachable: refused"
    assert [(await simulation.ask()).charged for _ in range(2)] == [True, True]
    simulation.store.away = ""
    receipts = [await simulation.ask() for _ in range(3)]
    assert [receipt.charged for receipt in receipts] == [True, False, False]
    assert receipts[-1].refused is DeniedBy.QUOTA
    await simulation.settled()
    assert await simulation.used() == [4]


async def test_bookings_end_however_many_pods_come_in_the_meantime(simulation: World) -> None:
    plan = replace(LOCAL, windows=(window(64, pods=1_000_000),))
    simulation.store.away = "unreachable: refused"
    for _ in range(300):
        await simulation.ask(plan)
    simulation.store.away = ""
    pods = 300
    while simulation.guard._reconciler._task is not None:
        assert (await simulation.ask(plan)).charged
        pods += 1
        await asyncio.sleep(0)
    assert await simulation.used(plan) == [pods]
    assert sum(count for *_, count in simulation.booked) == 300


async def test_what_was_admitted_by_one_service_of_a_pool_holds_the_others_of_it(simulation: World) -> None:
    pool = PoolPlan("shared", (window(64, pods=4),))
    one, other = (replace(plan_of(), service=name, tag="shared", pool=pool) for name in ("one", "other"))
    simulation.store.away = "unreachable: refused"
    assert [(await simulation.ask(one)).charged for _ in range(4)] == [True] * 4
    simulation.store.away = ""
    assert (await simulation.ask(other)).refused is DeniedBy.QUOTA
    await simulation.settled()
    assert (await simulation.ask(other)).refused is DeniedBy.QUOTA


async def test_until_the_other_replicas_owe_nothing_a_pod_must_fit_the_share_too(simulation: World) -> None:
    simulation.guard = simulation.another(replicas=2)
    simulation.store.settled_others = 0
    simulation.store.away = "unreachable: refused"
    assert (await simulation.ask()).charged
    simulation.store.away = ""
    await simulation.until(lambda: bool(simulation.booked) and len(simulation.store.asked_of_others) > 1)
    assert simulation.store.asked_of_others[:2] == [True, False]
    receipts = [await simulation.ask(uid=uid) for uid in "ab"]
    assert [(receipt.charged, receipt.local) for receipt in receipts] == [(True, False), (False, True)]
    assert await simulation.used() == [2], "who came in within the share is counted at once"
    assert simulation.fallbacks == [("payment-api", "Local", True)]
    assert (await simulation.ask(uid="a")).repeated, "who was admitted is not refused by a share"
    simulation.store.settled_others = 1
    await simulation.settled()
    assert simulation.fallbacks[1:] == [("payment-api", "Local", False)]
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False]


async def test_what_the_store_did_for_nobody_is_refunded_while_others_still_owe(simulation: World) -> None:
    simulation.guard = simulation.another(replicas=2)
    simulation.store.settled_others = 0
    simulation.store.swallows = True
    await simulation.uncounted(DENY, "a", admitted=False)
    simulation.store.swallows = False
    await simulation.until(lambda: len(simulation.store.asked_of_others) > 3)
    assert simulation.store.refunded == ["a"]
    assert simulation.fallbacks == [("payment-api", "Deny", True)]


async def test_a_pod_that_another_replica_admitted_is_not_refused_by_a_share(simulation: World) -> None:
    simulation.guard = simulation.another(replicas=4)
    simulation.store.settled_others = 0
    await simulation.ask(uid="a", guard=simulation.another())
    simulation.store.away = "unreachable: refused"
    assert (await simulation.ask()).charged
    simulation.store.away = ""
    await simulation.until(lambda: bool(simulation.store.asked_of_others))
    assert (await simulation.ask()).local
    assert (await simulation.ask(uid="a")).repeated


async def test_what_the_store_refuses_leaves_room_in_the_share(simulation: World) -> None:
    simulation.guard = simulation.another(replicas=2)
    simulation.store.settled_others = 0
    simulation.store.away = "unreachable: refused"
    await simulation.ask()
    simulation.store.away = ""
    await simulation.until(lambda: bool(simulation.store.asked_of_others))
    for uid in "abc":
        await simulation.ask(uid=uid, guard=simulation.another())
    assert [(receipt.refused, receipt.local) for receipt in [await simulation.ask() for _ in range(3)]] == [
        (DeniedBy.QUOTA, False)
    ] * 3
    await simulation.guard.refund(LOCAL, "a")
    assert (await simulation.ask()).charged


async def test_others_are_waited_for_no_longer_than_they_may_take(simulation: World) -> None:
    simulation.guard = simulation.another(replicas=2, paces={"others_seconds": 0})
    simulation.store.settled_others = 0
    simulation.store.away = "unreachable: refused"
    await simulation.ask()
    simulation.store.away = ""
    await simulation.settled()
    assert [(await simulation.ask()).charged for _ in range(4)] == [True] * 3 + [False]


async def test_who_has_been_away_again_asks_for_the_others_again(simulation: World) -> None:
    simulation.guard = simulation.another(replicas=2)
    simulation.store.settled_others = 0
    for times in (1, 2):
        simulation.store.away = "unreachable: refused"
        await simulation.ask()
        simulation.store.away = ""
        await simulation.until(lambda: simulation.store.asked_of_others[-2:] == [True, False])
        assert simulation.store.asked_of_others.count(True) == times
        simulation.store.asked_of_others.append(False)
    simulation.store.settled_others = 1
    await simulation.settled()


@pytest.mark.parametrize("plan", [LOCAL, DENY])
async def test_after_a_loss_each_replica_keeps_to_its_share_of_what_was_left_before(
    simulation: World, plan: CounterPlan
) -> None:
    """This one has admitted nobody: what is lost was the other's."""
    simulation.guard = simulation.another(replicas=2)
    simulation.store.settled_others = 0
    other = simulation.another(replicas=2, ordinal=1)
    await simulation.guard.tick([plan])
    for _ in range(2):
        await simulation.ask(plan, guard=other)
    await simulation.guard.snapshot(plan)
    simulation.store.forget_all()
    simulation.guard.lost()
    assert [(await simulation.ask(plan)).charged for _ in range(2)] == [True, False]
    other.lost()
    simulation.store.settled_others = 1
    await simulation.settled()
    simulation.guard, mine = other, simulation.guard
    await simulation.settled()
    simulation.guard = mine
    assert [(await simulation.ask(plan)).charged for _ in range(2)] == [True, False]


async def test_an_answer_by_which_a_loss_is_noticed_admits_nobody_beyond_the_share(simulation: World) -> None:
    for _ in range(4):
        await simulation.ask()
    simulation.store.forget_all()
    simulation.store.on_asked = simulation.guard.lost
    receipt = await simulation.ask(uid="late")
    assert (receipt.refused, receipt.local) == (DeniedBy.QUOTA, True)
    simulation.store.on_asked = lambda: None
    await simulation.settled()
    assert (await simulation.used(), simulation.store.refunded) == ([4], ["late"])


async def test_a_pod_that_came_in_before_a_loss_is_not_refused_by_the_answer_that_shows_the_loss(
    simulation: World,
) -> None:
    for uid in "abcd":
        await simulation.ask(uid=uid)
    simulation.store.forget_all()
    simulation.store.on_asked = simulation.guard.lost
    receipt = await simulation.ask(uid="a")
    assert (receipt.refused, receipt.repeated) == (None, True)
    simulation.store.on_asked = lambda: None
    await simulation.settled()
    assert (await simulation.used(), simulation.store.refunded) == ([4], []), "it is one Pod, and counts"


async def test_nor_by_a_refusal_of_a_store_that_others_have_filled_since(simulation: World) -> None:
    await simulation.ask(uid="a")
    simulation.store.forget_all()
    for _ in range(4):
        await simulation.ask(guard=simulation.another())
    simulation.store.on_asked = simulation.guard.lost
    receipt = await simulation.ask(uid="a")
    assert (receipt.refused, receipt.repeated) == (None, True)


async def test_nor_by_a_refusal_that_is_remembered_from_before_the_loss(simulation: World) -> None:
    for uid in "abcd":
        await simulation.ask(uid=uid)
    assert (await simulation.ask()).refused is DeniedBy.QUOTA
    simulation.store.forget_all()
    knows = simulation.store.knows

    async def knows_no_more(plan: CounterPlan, uid: str) -> bool:
        simulation.guard.lost()
        return await knows(plan, uid)

    simulation.store.knows = knows_no_more  # type: ignore[method-assign]
    assert (await simulation.ask(uid="a")).repeated


async def test_a_service_without_quota_is_judged_as_soon_as_the_store_is_back(simulation: World) -> None:
    simulation.store.away = "unreachable: refused"
    await simulation.uncounted(NO_QUOTA, admitted=True)
    simulation.store.away = ""
    asked = simulation.store.asked
    assert not (await simulation.ask(NO_QUOTA)).local
    assert simulation.store.asked == asked + 1


async def test_who_was_admitted_by_another_replica_is_not_refused_by_what_is_remembered(simulation: World) -> None:
    other = simulation.another()
    for uid in "abcd":
        await simulation.ask(uid=uid, guard=other)
    assert (await simulation.ask()).refused is DeniedBy.QUOTA
    asked = simulation.store.asked
    assert (await simulation.ask(uid="a")).repeated
    assert (await simulation.ask()).refused is DeniedBy.QUOTA
    assert (simulation.cached, simulation.store.asked) == (1, asked), (
        "nobody waits for two answers, one after the other"
    )


async def test_refusals_are_not_remembered_while_the_store_is_away(simulation: World) -> None:
    for uid in "abcd":
        await simulation.ask(ALLOW, uid)
    assert (await simulation.ask(ALLOW)).refused is DeniedBy.QUOTA
    simulation.store.away = "unreachable: refused"
    await simulation.uncounted(ALLOW, admitted=True)
    assert simulation.cached == 0


async def test_a_refusal_is_repeated_without_asking_until_something_is_refunded(simulation: World) -> None:
    for uid in "abcd":
        await simulation.ask(uid=uid)
    first = await simulation.ask()
    asked = simulation.store.asked
    again = await simulation.ask()
    assert (again.refused, again.over, again.free_at_us) == (first.refused, first.over, first.free_at_us)
    assert (simulation.store.asked, simulation.cached) == (asked, 1)
    assert (await simulation.ask(uid="a")).repeated, "who came in is not turned away"
    await simulation.guard.refund(LOCAL, "b")
    assert (await simulation.ask()).charged
    assert simulation.cached == 1


async def test_a_breaker_counts_of_every_controller_through_the_cache(simulation: World) -> None:
    events = QuotaEventPlan(count=3, within_us=60 * SECOND_US, by_controller=True)
    breaker = BreakerPlan(False, None, None, events, SECOND_US, 1, SECOND_US)  # noqa: FBT003
    plan = replace(LOCAL, breaker=breaker, windows=(window(64, pods=0),))
    for source in "aaaaabbbbb":
        assert (await simulation.ask(plan, event_source=f"controller:{source}")).refused is DeniedBy.QUOTA
    assert simulation.cached == 8
    tripped = await simulation.ask(plan, event_source="controller:c")
    assert [move.new for move in tripped.transitions] == ["OPEN"]
    assert (await simulation.ask(plan, event_source="controller:a")).transitions == ()


async def test_a_service_whose_record_is_broken_holds_up_no_other(simulation: World) -> None:
    broken = replace(LOCAL, service="broken", tag="broken")
    simulation.store.away = "unreachable: refused"
    await simulation.ask(broken)
    await simulation.ask()
    book = MemoryStore.book

    async def fails(plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        if plan is broken:
            raise StoreUnavailableError("script: WRONGTYPE")
        return await book(simulation.store, plan, bookings)

    simulation.store.book = fails  # type: ignore[method-assign]
    simulation.store.away = ""
    while await simulation.used() != [1]:  # noqa: ASYNC110  what is waited for is a turn of this loop
        await asyncio.sleep(1e-4)
    simulation.store.book = lambda plan, bookings: book(simulation.store, plan, bookings)  # type: ignore[method-assign]
    await simulation.settled()
    assert await simulation.used(broken) == [1]


async def test_what_is_owed_is_bounded_and_the_oldest_goes_first(
    simulation: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed = backlog.Backlog(most=3)
    plans = [replace(LOCAL, service="even"), replace(LOCAL, service="odd")]
    dropped = []
    for number in range(5):
        request = Acquire(plans[number % 2], "shop", f"u{number}", {"pods": 1}, "user:alice")
        dropped.append(owed.add(backlog.BacklogEntry(request, number, number, BookingCause.AWAY)))
    assert (dropped, len(owed)) == ([0, 0, 0, 1, 1], 3)
    assert [debt.request.uid for key in list(owed.keys()) for debt in owed.oldest(key)] == ["u2", "u4", "u3"]
    monkeypatch.setattr(pending_refunds, "REFUNDS_MAX", 2)
    simulation.store.swallows = True
    for uid in "abc":
        await simulation.uncounted(DENY, uid, admitted=False)
    simulation.store.swallows = False
    await simulation.settled()
    assert sorted(simulation.store.refunded) == ["a", "b"]


async def test_at_the_end_the_store_is_reported_what_can_be_reported(simulation: World) -> None:
    simulation.store.away = "unreachable: refused"
    for _ in range(3):
        await simulation.ask()
    simulation.store.away = ""
    await simulation.guard.close()
    assert await simulation.used() == [3]


async def test_a_loss_that_is_noticed_at_the_end_leaves_nothing_running(simulation: World) -> None:
    simulation.store.away = "unreachable: refused"
    await simulation.ask()
    await asyncio.sleep(0)  # it has begun to settle
    simulation.store.away = ""
    simulation.store.on_booked = simulation.guard.lost
    await simulation.guard.close()
    assert simulation.lost == 1
    assert simulation.guard._reconciler._task is None
    assert await simulation.used() == [1]


LIVE = replace(LOCAL, standing=standing(pods=2))
LIVE_ALONE = plan_of(standing=standing(pods=2))


async def test_live_pods_are_not_judged_without_the_store_and_stand_when_it_is_back(simulation: World) -> None:
    await simulation.store.mark_complete(LIVE, [""])
    await simulation.ask(LIVE, "before")
    simulation.store.away = "away"
    receipts = [await simulation.ask(LIVE, uid) for uid in "abcd"]
    assert [receipt.refused for receipt in receipts] == [None, None, None, DeniedBy.QUOTA], "three of four were left"
    assert [use.window for use in receipts[3].over] == ["64s"]
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used(LIVE) == [4, 4]
    assert (await simulation.ask(LIVE)).over[-1].window == "standing"
    assert {waiting.uid for waiting in await simulation.store.overdue(LIVE, 0, 9)} == {"before", "a", "b", "c"}


async def test_a_limit_on_live_pods_alone_is_a_quota_and_has_its_rule(simulation: World) -> None:
    simulation.store.away = "away"
    assert [(await simulation.ask(LIVE_ALONE)).local for _ in range(3)] == [True] * 3
    assert simulation.fallbacks == [("payment-api", "Local", True)]
    denied = replace(LIVE_ALONE, service="denied", tag="denied", when_unavailable=WhenStoreUnavailable.DENY)
    await simulation.uncounted(denied, admitted=False)
    assert simulation.fallbacks[-1] == ("denied", "Deny", True)
    simulation.store.away = ""
    await simulation.settled()
    assert await simulation.used(LIVE_ALONE) == [3]


async def test_a_look_reports_what_is_left_of_each_limit_whatever_stands_between_them(simulation: World) -> None:
    pool = PoolPlan("shared", (window(64, pods=9),))
    plan = replace(LIVE, tag="shared", standing=standing(pods=9, memory=9), pool=pool)
    for _ in range(2):
        await simulation.ask(plan, guard=simulation.another())
    for _ in range(5):
        await simulation.ask(replace(plan, service="other", windows=()), guard=simulation.another())
    await simulation.guard.snapshot(plan)
    simulation.store.away = "away"
    admitted = [await simulation.ask(plan) for _ in range(3)]
    assert [receipt.refused for receipt in admitted] == [None, None, DeniedBy.QUOTA]
    assert [(use.of, use.used, use.hard) for use in admitted[2].over] == [("service", 2, 2), ("pool", 2, 2)]


async def test_a_look_at_namespaces_of_which_none_counts_says_nothing_of_them_and_all_of_the_pool(
    simulation: World,
) -> None:
    pool = PoolPlan("shared", (window(64, pods=3),))
    plan = replace(LIVE, tag="shared", per_namespace=True, pool=pool)
    await simulation.ask(replace(plan, service="other"), guard=simulation.another())
    await simulation.guard.snapshot(plan)
    simulation.store.away = "away"
    admitted = [await simulation.ask(plan) for _ in range(3)]
    assert [receipt.refused for receipt in admitted] == [None, None, DeniedBy.QUOTA]
    assert [(use.of, use.used, use.hard) for use in admitted[2].over] == [("pool", 2, 2)]
