"""A replica's decisions while the store does not respond, and the store's state afterwards."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.fallback.simulation import AHEAD_US, ALLOW, DENY, LOCAL, NO_QUOTA, SECOND_US, Simulation
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import BreakerPlan, QuotaEventPlan
from webhook.core.policy_fields import Mode, WhenStoreUnavailable
from webhook.core.quota import Acquire, Booking, CounterPlan, DeniedBy, PoolGuarantees, PoolPlan, ServiceSnapshot
from webhook.errors import StoreFault, StoreUnavailableError
from webhook.fallback import BookingCause, backlog, pending_refunds


@pytest.fixture
async def simulation() -> AsyncIterator[Simulation]:
    simulation = Simulation()
    yield simulation
    await simulation.guard.close()


async def test_answering_store_is_passed_through(simulation: Simulation) -> None:
    receipts = [await simulation.ask(uid=uid) for uid in "abcdae"]
    assert [receipt.charged for receipt in receipts] == [True, True, True, True, False, False]
    assert [receipt.repeated for receipt in receipts] == [False, False, False, False, True, False]
    assert receipts[-1].refused is DeniedBy.QUOTA
    assert not any(receipt.local for receipt in receipts)
    assert simulation.fallbacks == simulation.booked == []


async def test_local_rule_admits_by_share_and_counters_converge(simulation: Simulation) -> None:
    await simulation.ask()
    simulation.store.failure = "unreachable: refused"
    receipts = [await simulation.ask() for _ in range(4)]
    assert [receipt.charged for receipt in receipts] == [True, True, True, False]
    assert all(receipt.local for receipt in receipts)
    assert receipts[-1].refused is DeniedBy.QUOTA
    assert receipts[-1].at_us == simulation.clock.us + AHEAD_US, "by the store's clock"
    assert simulation.fallbacks == [("payment-api", "Local", True)]
    assert await simulation.read_usage() == [1]
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [4]
    assert simulation.fallbacks[1:] == [("payment-api", "Local", False)]
    assert sum(count for _, cause, count in simulation.booked if cause is BookingCause.AWAY) == 3
    assert (await simulation.ask()).refused is DeniedBy.QUOTA


async def test_tick_provides_the_clock_of_the_store(simulation: Simulation) -> None:
    await simulation.guard.tick([LOCAL])
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask()).at_us == simulation.clock.us + AHEAD_US


async def test_admission_is_booked_at_its_own_time(simulation: Simulation) -> None:
    await simulation.ask()
    simulation.store.failure = "unreachable: refused"
    await simulation.ask()
    simulation.sleep(60)
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [2]
    simulation.sleep(5)
    assert await simulation.read_usage() == [0]


async def test_each_replica_has_its_share(simulation: Simulation) -> None:
    guards = [simulation.build_guard(replicas=3, ordinal=ordinal) for ordinal in range(3)]
    simulation.store.failure = "unreachable: refused"
    admitted = [[(await simulation.ask(guard=guard)).charged for _ in range(3)].count(True) for guard in guards]
    assert admitted == [2, 1, 1]
    simulation.store.failure = ""
    for simulation.guard in guards:
        await simulation.wait_until_settled()
    assert await simulation.read_usage() == [4]


async def test_new_replicas_shrink_the_share_and_leaving_ones_do_not_grow_it(
    simulation: Simulation,
) -> None:
    simulation.guard.set_replicas(2, 0)
    simulation.store.failure = "unreachable: refused"
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False]
    simulation.guard.set_replicas(1, 0)
    assert not (await simulation.ask()).charged
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    simulation.store.failure = "unreachable: refused"
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False], (
        "the store has answered since, and this replica is alone"
    )


async def test_second_outage_counts_admissions_of_the_first(simulation: Simulation) -> None:
    for _ in range(2):
        simulation.store.failure = "unreachable: refused"
        assert [(await simulation.ask()).charged for _ in range(2)] == [True, True]
        simulation.store.failure = ""
        await simulation.wait_until_settled()
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask()).refused is DeniedBy.QUOTA
    assert await simulation.read_usage() == [4]


async def test_pool_is_shared_and_booked(simulation: Simulation) -> None:
    pool = PoolPlan("prod", (window(64, pods=3),))
    one = plan_of(window(64, pods=4), tag="prod", pool=pool)
    other = plan_of(tag="prod", pool=pool, service="other")
    simulation.store.failure = "unreachable: refused"
    assert [(await simulation.ask(plan)).charged for plan in (one, other, one, other)] == [True, True, True, False]
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    look = await simulation.store.snapshot(one)
    assert [use.used for use in (*look.uses[""], *look.pool)] == [2, 3]


@pytest.mark.parametrize(
    ("plan", "rule"), [(ALLOW, "Allow"), (DENY, "Deny"), (NO_QUOTA, "failureMode")], ids=("Allow", "Deny", "none")
)
@pytest.mark.parametrize("admitted", [True, False])
async def test_admissions_by_allow_deny_and_failure_mode_are_booked(
    simulation: Simulation, plan: CounterPlan, rule: str, *, admitted: bool
) -> None:
    simulation.store.failure = "readonly: You can't write"
    assert await simulation.ask_unavailable(plan, "a", admitted=admitted) == "readonly: You can't write"
    assert simulation.fallbacks == [("payment-api", rule, True)]
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert (await simulation.ask(plan, "a")).repeated is admitted
    assert simulation.fallbacks[-1] == ("payment-api", rule, False)


async def test_warn_mode_admits_past_the_share_and_books(simulation: Simulation) -> None:
    plan = replace(LOCAL, quota_mode=Mode.WARN)
    simulation.store.failure = "unreachable: refused"
    receipts = [await simulation.ask(plan) for _ in range(6)]
    assert [receipt.would_refuse for receipt in receipts][3:] == [(), (DeniedBy.QUOTA,), (DeniedBy.QUOTA,)]
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [6]


async def test_rule_change_during_an_outage_is_reported(simulation: Simulation) -> None:
    simulation.store.failure = "unreachable: refused"
    await simulation.ask(LOCAL)
    await simulation.ask(LOCAL)
    await simulation.ask_unavailable(DENY, admitted=False)
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert [entry[1:] for entry in simulation.fallbacks] == [
        ("Local", True),
        ("Local", False),
        ("Deny", True),
        ("Deny", False),
    ]


async def test_dry_run_is_not_booked(simulation: Simulation) -> None:
    simulation.store.failure = "unreachable: refused"
    for _ in range(9):
        assert (await simulation.ask(peek=True)).refused is None
    await simulation.ask_unavailable(ALLOW, admitted=True, peek=True)
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [0]
    assert simulation.booked == []


async def test_resize_is_judged_by_its_increase_and_booked_past_limits(simulation: Simulation) -> None:
    plan = plan_of(window(64, pods=9, cpu=300))
    await simulation.ask(plan, "a", cost={"pods": 1, "requests.cpu": 100})
    simulation.store.failure = "unreachable: refused"
    grown = {"cost": {"pods": 1, "requests.cpu": 250}, "resize_from": {"pods": 1, "requests.cpu": 100}}
    assert (await simulation.ask(plan, "a", **grown)).charged
    assert (await simulation.ask(plan, "a", **grown)).refused is DeniedBy.QUOTA
    simulation.store.failure = ""
    await simulation.ask(plan, "c", guard=simulation.build_guard(), cost={"pods": 1, "requests.cpu": 200})
    await simulation.wait_until_settled()
    assert await simulation.read_usage(plan) == [2, 450]
    assert simulation.store.withdrawn == []
    assert simulation.booked == [], "no Pod was admitted"


async def test_pod_admitted_and_resized_in_an_outage_is_booked_at_its_size(simulation: Simulation) -> None:
    plan = plan_of(window(64, pods=9, cpu=900))
    simulation.store.failure = "unreachable: refused"
    await simulation.ask(plan, "a", cost={"pods": 1, "requests.cpu": 100})
    for old, new in ((100, 250), (250, 400)):
        cost, before = ({"pods": 1, "requests.cpu": amount} for amount in (new, old))
        assert (await simulation.ask(plan, "a", cost=cost, resize_from=before)).charged
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage(plan) == [1, 400]


async def test_missed_service_keeps_to_its_share_until_others_settle(
    simulation: Simulation,
) -> None:
    simulation.guard = simulation.build_guard(replicas=2)
    simulation.store.settled_others = 0
    simulation.guard.on_missed(LOCAL)
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False]
    simulation.store.settled_others = 1
    await simulation.wait_until_settled()
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False]


async def test_service_missed_again_waits_for_the_others_again(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(replicas=2)
    look, looks = simulation.store.snapshot, []

    async def miss_once(plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        looks.append(plan)
        if len(looks) == 1:
            simulation.guard.on_missed(plan)
        return await look(plan, namespace)

    simulation.store.snapshot = miss_once  # type: ignore[method-assign]
    simulation.guard.on_missed(LOCAL)
    await simulation.wait_until_settled()
    assert (len(looks), simulation.store.others_requests) == (2, [True, True])


async def test_single_replica_does_not_fall_back_after_a_missed_tick(simulation: Simulation) -> None:
    simulation.guard.on_missed(LOCAL)
    assert simulation.fallbacks == []


async def test_repeated_uid_is_answered_as_before(simulation: Simulation) -> None:
    full = plan_of(window(64, pods=1))
    await simulation.ask(full, "a")
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask(full, "a")).repeated, "this replica admitted it through the store"
    assert (await simulation.ask(full, "b")).refused is DeniedBy.QUOTA
    plan = plan_of(window(64, pods=1), service="other", tag="other")
    assert (await simulation.ask(plan, "c")).charged
    assert (await simulation.ask(plan, "c")).repeated
    simulation.store.failure = ""
    assert (await simulation.ask(plan, "c")).repeated, "it is not booked yet"
    await simulation.wait_until_settled()
    assert (await simulation.ask(plan, "c")).repeated
    assert await simulation.read_usage(plan) == [1]


async def test_charge_without_an_answer_is_refunded_for_a_denied_pod(simulation: Simulation) -> None:
    simulation.store.drops_answers = True
    await simulation.ask_unavailable(DENY, "a", admitted=False)
    assert await simulation.read_usage(DENY) == [1]
    simulation.store.drops_answers = False
    await simulation.wait_until_settled()
    assert await simulation.read_usage(DENY) == [0]
    assert simulation.store.withdrawn == ["a"]


async def test_charge_without_an_answer_is_kept_for_an_admitted_pod(simulation: Simulation) -> None:
    simulation.store.drops_answers = True
    await simulation.ask_unavailable(ALLOW, "a", admitted=True)
    assert (await simulation.ask(LOCAL, "b")).charged
    await simulation.ask_unavailable(DENY, "c", admitted=False)
    simulation.store.drops_answers = False
    assert (await simulation.ask(DENY, "c")).repeated
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == []
    assert await simulation.read_usage() == [3], "each is counted once"


async def test_resize_or_dry_run_without_an_answer_is_not_refunded(simulation: Simulation) -> None:
    await simulation.ask(DENY, "a")
    simulation.store.drops_answers = True
    await simulation.ask_unavailable(DENY, "a", admitted=False, resize_from={"pods": 1})
    await simulation.ask_unavailable(DENY, "b", admitted=False, peek=True)
    simulation.store.drops_answers = False
    await simulation.wait_until_settled()
    assert simulation.store.withdrawn == []
    assert await simulation.read_usage(DENY) == [1]


async def test_charge_without_an_answer_is_refunded_after_a_local_denial(simulation: Simulation) -> None:
    await simulation.ask(cost={"pods": 4})
    simulation.sleep(63)
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask(uid="a")).refused is DeniedBy.QUOTA
    simulation.store.failure, simulation.store.drops_answers = "", True
    simulation.store._clock.us += 2 * SECOND_US  # type: ignore[attr-defined]
    assert (await simulation.ask(uid="b")).refused is DeniedBy.QUOTA
    assert await simulation.read_usage() == [1]
    simulation.store.drops_answers = False
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [0]


async def test_refund_before_booking_frees_the_share(simulation: Simulation) -> None:
    simulation.store.failure = "unreachable: refused"
    for uid in "abcd":
        await simulation.ask(uid=uid)
    assert await simulation.guard.refund(LOCAL, "a")
    assert (await simulation.ask(uid="e")).charged
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [4]
    assert (await simulation.ask(uid="a")).refused is DeniedBy.QUOTA


async def test_lost_charges_are_booked_again_once_within_a_minute(simulation: Simulation) -> None:
    await simulation.ask(uid="old")
    simulation.sleep(61)
    await simulation.guard.tick([LOCAL])
    for uid in "abc":
        await simulation.ask(uid=uid)
    await simulation.guard.refund(LOCAL, "c")
    simulation.store.forget_all()
    simulation.guard.on_loss()
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [2], "neither charges older than a minute nor refunded ones"
    assert simulation.booked == [("payment-api", BookingCause.LOSS, 2)]
    simulation.guard.on_loss()
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [2]
    assert simulation.booked == [("payment-api", BookingCause.LOSS, 2)], "the charges were not lost this time"
    assert simulation.lost == 2


async def test_lost_bookings_are_booked_again(simulation: Simulation) -> None:
    simulation.store.failure = "unreachable: refused"
    await simulation.ask()
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    simulation.store.forget_all()
    simulation.guard.on_loss()
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [1]


async def test_refund_of_a_lost_charge_does_not_change_the_local_count(simulation: Simulation) -> None:
    await simulation.ask(uid="a")
    simulation.store.forget_all()
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask()).charged
    simulation.guard.on_loss()
    await simulation.guard.refund(LOCAL, "a")
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False], "three places were left"
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [3]


async def test_returned_store_counts_local_admissions_at_once(simulation: Simulation) -> None:
    await simulation.ask()
    simulation.store.failure = "unreachable: refused"
    assert [(await simulation.ask()).charged for _ in range(2)] == [True, True]
    simulation.store.failure = ""
    receipts = [await simulation.ask() for _ in range(3)]
    assert [receipt.charged for receipt in receipts] == [True, False, False]
    assert receipts[-1].refused is DeniedBy.QUOTA
    await simulation.wait_until_settled()
    assert await simulation.read_usage() == [4]


async def test_booking_ends_under_continuous_admissions(simulation: Simulation) -> None:
    plan = replace(LOCAL, windows=(window(64, pods=1_000_000),))
    simulation.store.failure = "unreachable: refused"
    for _ in range(300):
        await simulation.ask(plan)
    simulation.store.failure = ""
    pods = 300
    while simulation.guard._reconciler._task is not None:
        assert (await simulation.ask(plan)).charged
        pods += 1
        await asyncio.sleep(0)
    assert await simulation.read_usage(plan) == [pods]
    assert sum(count for *_, count in simulation.booked) == 300


async def test_local_admission_of_one_pool_service_counts_for_the_others(simulation: Simulation) -> None:
    pool = PoolPlan("shared", (window(64, pods=4),))
    one, other = (replace(plan_of(), service=name, tag="shared", pool=pool) for name in ("one", "other"))
    simulation.store.failure = "unreachable: refused"
    assert [(await simulation.ask(one)).charged for _ in range(4)] == [True] * 4
    simulation.store.failure = ""
    assert (await simulation.ask(other)).refused is DeniedBy.QUOTA
    await simulation.wait_until_settled()
    assert (await simulation.ask(other)).refused is DeniedBy.QUOTA


async def test_refund_of_a_pod_that_the_share_did_not_count_leaves_the_pools_share(simulation: Simulation) -> None:
    pool = PoolPlan("shared", (window(64, pods=1, memory=9),))
    local, allows = (replace(plan_of(), service=name, tag="shared", pool=pool) for name in ("local", "allows"))
    allows = replace(allows, when_unavailable=WhenStoreUnavailable.ALLOW)
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask(local)).charged
    for uid, cost in (("a", {"pods": 1}), ("b", {"pods": 1, "requests.memory": 1})):
        await simulation.ask_unavailable(allows, uid, admitted=True, cost=cost)
        assert await simulation.guard.refund(allows, uid)
    assert (await simulation.ask(local)).refused is DeniedBy.QUOTA


async def test_pod_must_fit_the_share_until_other_replicas_settle(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(replicas=2)
    simulation.store.settled_others = 0
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask()).charged
    simulation.store.failure = ""
    await simulation.wait_until(lambda: bool(simulation.booked) and len(simulation.store.others_requests) > 1)
    assert simulation.store.others_requests[:2] == [True, False]
    receipts = [await simulation.ask(uid=uid) for uid in "ab"]
    assert [(receipt.charged, receipt.local) for receipt in receipts] == [(True, False), (False, True)]
    assert await simulation.read_usage() == [2], "an admission within the share is counted at once"
    assert simulation.fallbacks == [("payment-api", "Local", True)]
    assert (await simulation.ask(uid="a")).repeated, "an admitted Pod is not denied by the share"
    simulation.store.settled_others = 1
    await simulation.wait_until_settled()
    assert simulation.fallbacks[1:] == [("payment-api", "Local", False)]
    assert [(await simulation.ask()).charged for _ in range(3)] == [True, True, False]


async def test_unanswered_charge_is_refunded_before_other_replicas_settle(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(replicas=2)
    simulation.store.settled_others = 0
    simulation.store.drops_answers = True
    await simulation.ask_unavailable(DENY, "a", admitted=False)
    simulation.store.drops_answers = False
    await simulation.wait_until(lambda: len(simulation.store.others_requests) > 3)
    assert simulation.store.withdrawn == ["a"]
    assert simulation.fallbacks == [("payment-api", "Deny", True)]


async def test_pod_admitted_by_another_replica_is_not_denied_by_the_share(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(replicas=4)
    simulation.store.settled_others = 0
    await simulation.ask(uid="a", guard=simulation.build_guard())
    simulation.store.failure = "unreachable: refused"
    assert (await simulation.ask()).charged
    simulation.store.failure = ""
    await simulation.wait_until(lambda: bool(simulation.store.others_requests))
    assert (await simulation.ask()).local
    assert (await simulation.ask(uid="a")).repeated


async def test_denial_by_the_store_does_not_use_the_share(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(replicas=2)
    simulation.store.settled_others = 0
    simulation.store.failure = "unreachable: refused"
    await simulation.ask()
    simulation.store.failure = ""
    await simulation.wait_until(lambda: bool(simulation.store.others_requests))
    for uid in "abc":
        await simulation.ask(uid=uid, guard=simulation.build_guard())
    assert [(receipt.refused, receipt.local) for receipt in [await simulation.ask() for _ in range(3)]] == [
        (DeniedBy.QUOTA, False)
    ] * 3
    await simulation.guard.refund(LOCAL, "a")
    assert (await simulation.ask()).charged


async def test_wait_for_other_replicas_is_bounded(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(replicas=2, paces={"others_seconds": 0})
    simulation.store.settled_others = 0
    simulation.store.failure = "unreachable: refused"
    await simulation.ask()
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert [(await simulation.ask()).charged for _ in range(4)] == [True] * 3 + [False]


async def test_second_outage_waits_for_the_others_again(simulation: Simulation) -> None:
    simulation.guard = simulation.build_guard(replicas=2)
    simulation.store.settled_others = 0
    for times in (1, 2):
        simulation.store.failure = "unreachable: refused"
        await simulation.ask()
        simulation.store.failure = ""
        await simulation.wait_until(lambda: simulation.store.others_requests[-2:] == [True, False])
        assert simulation.store.others_requests.count(True) == times
        simulation.store.others_requests.append(False)
    simulation.store.settled_others = 1
    await simulation.wait_until_settled()


@pytest.mark.parametrize("plan", [LOCAL, DENY])
async def test_replicas_keep_to_their_share_after_a_loss(simulation: Simulation, plan: CounterPlan) -> None:
    """This replica has admitted no Pod: the lost charges are the other's."""
    simulation.guard = simulation.build_guard(replicas=2)
    simulation.store.settled_others = 0
    other = simulation.build_guard(replicas=2, ordinal=1)
    await simulation.guard.tick([plan])
    for _ in range(2):
        await simulation.ask(plan, guard=other)
    await simulation.guard.snapshot(plan)
    simulation.store.forget_all()
    simulation.guard.on_loss()
    assert [(await simulation.ask(plan)).charged for _ in range(2)] == [True, False]
    other.on_loss()
    simulation.store.settled_others = 1
    await simulation.wait_until_settled()
    simulation.guard, mine = other, simulation.guard
    await simulation.wait_until_settled()
    simulation.guard = mine
    assert [(await simulation.ask(plan)).charged for _ in range(2)] == [True, False]


async def test_answer_that_reveals_a_loss_admits_within_the_share_only(simulation: Simulation) -> None:
    for _ in range(4):
        await simulation.ask()
    simulation.store.forget_all()
    simulation.store.on_acquire = simulation.guard.on_loss
    receipt = await simulation.ask(uid="late")
    assert (receipt.refused, receipt.local) == (DeniedBy.QUOTA, True)
    simulation.store.on_acquire = lambda: None
    await simulation.wait_until_settled()
    assert (await simulation.read_usage(), simulation.store.withdrawn) == ([4], ["late"])


async def test_earlier_admission_survives_the_answer_that_reveals_a_loss(
    simulation: Simulation,
) -> None:
    for uid in "abcd":
        await simulation.ask(uid=uid)
    simulation.store.forget_all()
    simulation.store.on_acquire = simulation.guard.on_loss
    receipt = await simulation.ask(uid="a")
    assert (receipt.refused, receipt.repeated) == (None, True)
    simulation.store.on_acquire = lambda: None
    await simulation.wait_until_settled()
    assert (await simulation.read_usage(), simulation.store.withdrawn) == ([4], []), "one Pod is counted once"


async def test_earlier_admission_survives_a_denial_by_a_refilled_store(simulation: Simulation) -> None:
    await simulation.ask(uid="a")
    simulation.store.forget_all()
    for _ in range(4):
        await simulation.ask(guard=simulation.build_guard())
    simulation.store.on_acquire = simulation.guard.on_loss
    receipt = await simulation.ask(uid="a")
    assert (receipt.refused, receipt.repeated) == (None, True)


async def test_earlier_admission_survives_a_cached_denial_from_before_a_loss(simulation: Simulation) -> None:
    for uid in "abcd":
        await simulation.ask(uid=uid)
    assert (await simulation.ask()).refused is DeniedBy.QUOTA
    simulation.store.forget_all()
    find = simulation.store.find_charged_us

    async def look_up_after_loss(request: Acquire) -> int | None:
        simulation.guard.on_loss()
        return await find(request)

    simulation.store.find_charged_us = look_up_after_loss  # type: ignore[method-assign]
    assert (await simulation.ask(uid="a")).repeated


async def test_service_without_quota_returns_to_the_store_at_once(simulation: Simulation) -> None:
    simulation.store.failure = "unreachable: refused"
    await simulation.ask_unavailable(NO_QUOTA, admitted=True)
    simulation.store.failure = ""
    asked = simulation.store.acquires
    assert not (await simulation.ask(NO_QUOTA)).local
    assert simulation.store.acquires == asked + 1


async def test_pod_of_another_replica_is_not_denied_by_the_cache(simulation: Simulation) -> None:
    other = simulation.build_guard()
    for uid in "abcd":
        await simulation.ask(uid=uid, guard=other)
    assert (await simulation.ask()).refused is DeniedBy.QUOTA
    asked = simulation.store.acquires
    assert (await simulation.ask(uid="a")).repeated
    assert (await simulation.ask()).refused is DeniedBy.QUOTA
    assert (simulation.cached, simulation.store.acquires) == (1, asked), "a repeated denial needs no second call"


async def test_denials_are_not_cached_during_an_outage(simulation: Simulation) -> None:
    for uid in "abcd":
        await simulation.ask(ALLOW, uid)
    assert (await simulation.ask(ALLOW)).refused is DeniedBy.QUOTA
    simulation.store.failure = "unreachable: refused"
    await simulation.ask_unavailable(ALLOW, admitted=True)
    assert simulation.cached == 0


async def test_denial_is_repeated_from_the_cache_until_a_refund(simulation: Simulation) -> None:
    for uid in "abcd":
        await simulation.ask(uid=uid)
    first = await simulation.ask()
    asked = simulation.store.acquires
    again = await simulation.ask()
    assert (again.refused, again.over, again.free_at_us) == (first.refused, first.over, first.free_at_us)
    assert (simulation.store.acquires, simulation.cached) == (asked, 1)
    assert (await simulation.ask(uid="a")).repeated, "an admitted Pod is not denied"
    await simulation.guard.refund(LOCAL, "b")
    assert (await simulation.ask()).charged
    assert simulation.cached == 1


async def test_a_denial_that_arrives_late_is_not_repeated_after_its_moment(simulation: Simulation) -> None:
    for uid in "abcd":
        await simulation.ask(uid=uid)
    simulation.sleep(64)
    simulation.store.on_acquired = lambda: simulation.sleep(0.9)
    assert (await simulation.ask()).free_at_us == simulation.store.now_us() + 100_000
    simulation.store.on_acquired = lambda: None
    simulation.sleep(0.2)
    assert (await simulation.ask()).charged
    assert simulation.cached == 0


async def test_cached_denials_count_each_controller_for_the_breaker(simulation: Simulation) -> None:
    events = QuotaEventPlan(count=3, within_us=60 * SECOND_US, by_controller=True)
    breaker = BreakerPlan(False, None, None, events, SECOND_US, 1, SECOND_US)  # noqa: FBT003
    plan = replace(LOCAL, breaker=breaker, windows=(window(64, pods=0),))
    for source in "aaaaabbbbb":
        assert (await simulation.ask(plan, event_source=f"controller:{source}")).refused is DeniedBy.QUOTA
    assert simulation.cached == 8
    tripped = await simulation.ask(plan, event_source="controller:c")
    assert [move.new for move in tripped.transitions] == ["OPEN"]
    assert (await simulation.ask(plan, event_source="controller:a")).transitions == ()


async def test_broken_record_does_not_delay_other_services(simulation: Simulation) -> None:
    broken = replace(LOCAL, service="broken", tag="broken")
    simulation.store.failure = "unreachable: refused"
    await simulation.ask(broken)
    await simulation.ask()
    book = MemoryStore.book

    async def fail(plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        if plan is broken:
            raise StoreUnavailableError("WRONGTYPE", StoreFault.SCRIPT)
        return await book(simulation.store, plan, bookings)

    simulation.store.book = fail  # type: ignore[method-assign]
    simulation.store.failure = ""
    while await simulation.read_usage() != [1]:  # noqa: ASYNC110  the test waits for a turn of this loop
        await asyncio.sleep(1e-4)
    simulation.store.book = lambda plan, bookings: book(simulation.store, plan, bookings)  # type: ignore[method-assign]
    await simulation.wait_until_settled()
    assert await simulation.read_usage(broken) == [1]


async def test_debts_are_bounded_and_the_oldest_is_dropped_first(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed = backlog.Backlog(most=3)
    plans = [replace(LOCAL, service="even"), replace(LOCAL, service="odd")]
    dropped = []
    for number in range(5):
        request = Acquire(plans[number % 2], "shop", f"u{number}", {"pods": 1}, "user:alice")
        dropped.append(owed.add(backlog.BacklogEntry(request, number, number, BookingCause.AWAY)))
    assert (dropped, len(owed)) == ([0, 0, 0, 1, 1], 3)
    assert [debt.request.uid for key in list(owed.list_keys()) for debt in owed.list_oldest(key)] == ["u2", "u4", "u3"]
    monkeypatch.setattr(pending_refunds, "PENDING_MAX", 2)
    simulation.store.drops_answers = True
    for uid in "abc":
        await simulation.ask_unavailable(DENY, uid, admitted=False)
    simulation.store.drops_answers = False
    await simulation.wait_until_settled()
    assert sorted(simulation.store.withdrawn) == ["a", "b"]


async def test_close_books_remaining_debts(simulation: Simulation) -> None:
    simulation.store.failure = "unreachable: refused"
    for _ in range(3):
        await simulation.ask()
    simulation.store.failure = ""
    await simulation.guard.close()
    assert await simulation.read_usage() == [3]


async def test_loss_during_close_leaves_no_task_running(simulation: Simulation) -> None:
    simulation.store.failure = "unreachable: refused"
    await simulation.ask()
    await asyncio.sleep(0)  # settling has begun
    simulation.store.failure = ""
    simulation.store.on_book = simulation.guard.on_loss
    await simulation.guard.close()
    assert simulation.lost == 1
    assert simulation.guard._reconciler._task is None
    assert await simulation.read_usage() == [1]


LIVE = replace(LOCAL, standing=standing(pods=2))
LIVE_ALONE = plan_of(standing=standing(pods=2))


async def test_live_pods_are_not_judged_in_an_outage_and_counted_after_it(simulation: Simulation) -> None:
    await simulation.store.mark_complete(LIVE, [""])
    await simulation.ask(LIVE, "before")
    simulation.store.failure = "away"
    receipts = [await simulation.ask(LIVE, uid) for uid in "abcd"]
    assert [receipt.refused for receipt in receipts] == [None, None, None, DeniedBy.QUOTA], "three of four were left"
    assert [use.window for use in receipts[3].over] == ["64s"]
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage(LIVE) == [4, 4]
    assert (await simulation.ask(LIVE)).over[-1].window == "standing"
    assert {waiting.uid for waiting in await simulation.store.list_overdue(LIVE, 0, 9)} == {"before", "a", "b", "c"}


async def test_limit_on_live_pods_alone_has_a_rule(simulation: Simulation) -> None:
    simulation.store.failure = "away"
    assert [(await simulation.ask(LIVE_ALONE)).local for _ in range(3)] == [True] * 3
    assert simulation.fallbacks == [("payment-api", "Local", True)]
    denied = replace(LIVE_ALONE, service="denied", tag="denied", when_unavailable=WhenStoreUnavailable.DENY)
    await simulation.ask_unavailable(denied, admitted=False)
    assert simulation.fallbacks[-1] == ("denied", "Deny", True)
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert await simulation.read_usage(LIVE_ALONE) == [3]


async def test_snapshot_sets_the_remainder_of_every_limit(simulation: Simulation) -> None:
    pool = PoolPlan("shared", (window(64, pods=9),))
    plan = replace(LIVE, tag="shared", standing=standing(pods=9, memory=9), pool=pool)
    for _ in range(2):
        await simulation.ask(plan, guard=simulation.build_guard())
    for _ in range(5):
        await simulation.ask(replace(plan, service="other", windows=()), guard=simulation.build_guard())
    await simulation.guard.snapshot(plan)
    simulation.store.failure = "away"
    admitted = [await simulation.ask(plan) for _ in range(3)]
    assert [receipt.refused for receipt in admitted] == [None, None, DeniedBy.QUOTA]
    assert [(use.of, use.used, use.hard) for use in admitted[2].over] == [("service", 2, 2), ("pool", 2, 2)]


async def test_guarantees_hold_in_the_share_by_what_the_last_snapshots_have(simulation: Simulation) -> None:
    guarantees = PoolGuarantees({(64, "pods"): (("gold", 4),)})
    plans = {
        name: replace(
            replace(LIVE, windows=(), standing=None, tag="shared", service=name),
            pool=PoolPlan("shared", (guarantees.bind(window(64, pods=8), name),)),
        )
        for name in ("gold", "guest")
    }
    for _ in range(3):
        await simulation.ask(plans["gold"], guard=simulation.build_guard())
    for plan in plans.values():
        await simulation.guard.snapshot(plan)
    simulation.store.failure = "away"
    admitted = {
        name: [(await simulation.ask(plan)).charged for _ in range(6)].count(True)
        for name, plan in reversed(plans.items())
    }
    assert admitted == {"guest": 4, "gold": 1}, "of 5 that are left 1 is kept"


async def test_snapshot_per_namespace_sets_the_remainder_of_the_pool(
    simulation: Simulation,
) -> None:
    pool = PoolPlan("shared", (window(64, pods=3),))
    plan = replace(LIVE, tag="shared", per_namespace=True, pool=pool)
    await simulation.ask(replace(plan, service="other"), guard=simulation.build_guard())
    await simulation.guard.snapshot(plan)
    simulation.store.failure = "away"
    admitted = [await simulation.ask(plan) for _ in range(3)]
    assert [receipt.refused for receipt in admitted] == [None, None, DeniedBy.QUOTA]
    assert [(use.of, use.used, use.hard) for use in admitted[2].over] == [("pool", 2, 2)]
