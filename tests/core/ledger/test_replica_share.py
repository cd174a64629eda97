from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.core.strategies import examples
from webhook.core.ledger import replica_share
from webhook.core.ledger.replica_share import ReplicaShareLedger
from webhook.core.policy_spec import Mode
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Holder, PoolPlan, Receipt

SECOND_US = 1_000_000
NOW_US = 65_000 * SECOND_US
"""An edge of a bucket of every window in use."""

PLAN = plan_of(window(64, pods=10))
_numbers = iter(range(10**9))


def asked(plan: CounterPlan = PLAN, namespace: str = "shop", **more: Any) -> Acquire:
    cost = more.pop("cost", {"pods": 1})
    return Acquire(plan, namespace, f"uid-{next(_numbers)}", cost, "user:alice", **more)


def admitted(ledger: ReplicaShareLedger, now_us: int = NOW_US, plan: CounterPlan = PLAN, **more: Any) -> int:
    """Ask until one is refused; return how many came in."""
    for number in range(1000):
        if ledger.acquire(asked(plan, **more), now_us).refused is not None:
            return number
    raise AssertionError("nobody was ever refused")


def test_what_was_left_at_the_last_reply_is_shared_and_the_remainder_goes_by_ordinal() -> None:
    shares = []
    for ordinal in range(3):
        ledger = ReplicaShareLedger(replicas=3, ordinal=ordinal)
        ledger.record_reply(PLAN, "shop", (2,), NOW_US)
        shares.append(admitted(ledger))
    assert shares == [3, 3, 2]


def test_where_nothing_was_ever_counted_nothing_counts_as_used() -> None:
    assert admitted(ReplicaShareLedger(replicas=2, ordinal=0)) == 5


def test_what_was_used_then_counts_until_it_has_surely_left() -> None:
    ledger = ReplicaShareLedger()
    ledger.record_reply(PLAN, "shop", (8,), NOW_US)
    assert admitted(ledger, NOW_US + 65 * SECOND_US - 1) == 2
    assert admitted(ledger, NOW_US + 65 * SECOND_US) == 8, "two of ten are this replica's own"


def test_a_refusal_says_the_share_and_when_it_could_pass() -> None:
    ledger = ReplicaShareLedger(replicas=2)
    ledger.record_reply(PLAN, "shop", (6,), NOW_US)
    assert admitted(ledger, NOW_US + SECOND_US) == 2
    ahead_us = 500 * SECOND_US
    receipt = ledger.acquire(asked(), NOW_US + 2 * SECOND_US, ahead_us)
    assert (receipt.refused, receipt.local, receipt.charged) == (DeniedBy.QUOTA, True, False)
    assert receipt.at_us == NOW_US + 2 * SECOND_US + ahead_us
    (use,) = receipt.over
    assert (use.window, use.resource, use.used, use.hard, use.asked, use.of) == ("64s", "pods", 2, 2, 1, Holder.SERVICE)
    # What the store had used leaves before what was let in here does.
    assert receipt.free_at_us == use.free_at_us == NOW_US + 65 * SECOND_US + ahead_us
    assert ledger.acquire(asked(), NOW_US + 65 * SECOND_US - 1).refused is DeniedBy.QUOTA
    assert ledger.acquire(asked(), NOW_US + 65 * SECOND_US).charged


def test_what_asks_more_than_the_whole_limit_can_never_pass() -> None:
    receipt = ReplicaShareLedger().acquire(asked(cost={"pods": 11}), NOW_US)
    assert (receipt.refused, receipt.free_at_us) == (DeniedBy.QUOTA, None)


def test_a_pod_larger_than_the_share_passes_once_a_window_within_what_was_left() -> None:
    ledger = ReplicaShareLedger(replicas=5)
    ledger.record_reply(PLAN, "shop", (3,), NOW_US)
    assert ledger.acquire(asked(cost={"pods": 8}), NOW_US).refused is DeniedBy.QUOTA, "7 were left"
    assert ledger.acquire(asked(cost={"pods": 7}), NOW_US).charged
    again = ledger.acquire(asked(cost={"pods": 7}), NOW_US)
    assert (again.refused, again.free_at_us) == (DeniedBy.QUOTA, NOW_US + 65 * SECOND_US)
    assert ledger.acquire(asked(cost={"pods": 7}), NOW_US + 65 * SECOND_US).charged


def test_only_one_pod_a_window_is_larger_than_the_share_though_more_was_left() -> None:
    ledger = ReplicaShareLedger(replicas=5)
    ledger.record_reply(PLAN, "shop", (3,), NOW_US)
    assert ledger.acquire(asked(cost={"pods": 3}), NOW_US).charged
    again = ledger.acquire(asked(cost={"pods": 3}), NOW_US + SECOND_US)
    assert (again.refused, again.free_at_us) == (DeniedBy.QUOTA, NOW_US + 65 * SECOND_US)


def test_no_share_at_all_lets_one_pod_in() -> None:
    ledger = ReplicaShareLedger(replicas=3, ordinal=2)
    ledger.record_reply(PLAN, "shop", (9,), NOW_US)
    assert admitted(ledger) == 1
    full = ReplicaShareLedger(replicas=3, ordinal=2)
    full.record_reply(PLAN, "shop", (10,), NOW_US)
    assert admitted(full) == 0


def test_windows_over_an_hour_hold_nobody_up() -> None:
    plan = plan_of(window(3601, pods=1), window(3600, pods=4))
    ledger = ReplicaShareLedger()
    ledger.record_reply(plan, "shop", (1, 2), NOW_US)
    assert admitted(ledger, plan=plan) == 2


def test_all_windows_and_resources_or_none() -> None:
    plan = plan_of(window(64, pods=10, cpu=500), window(128, pods=3))
    ledger = ReplicaShareLedger()
    assert ledger.acquire(asked(plan, cost={"pods": 1, "requests.cpu": 400}), NOW_US).charged
    refused = ledger.acquire(asked(plan, cost={"pods": 1, "requests.cpu": 101}), NOW_US)
    assert [(use.window, use.resource) for use in refused.over] == [("64s", "cpu")]
    assert admitted(ledger, plan=plan) == 2


def test_a_pools_windows_are_shared_by_its_services_and_namespaces_count_apart() -> None:
    pool = PoolPlan("prod", (window(64, pods=6),))
    one = plan_of(window(64, pods=4), tag="prod", pool=pool, per_namespace=True)
    other = plan_of(tag="prod", pool=pool, service="other")
    ledger = ReplicaShareLedger()
    ledger.record_reply(one, "shop", (1, 2), NOW_US)
    assert admitted(ledger, plan=one) == 3
    refused = ledger.acquire(asked(other, cost={"pods": 2}), NOW_US)
    assert [(use.of, use.name, use.used, use.hard) for use in refused.over] == [(Holder.POOL, "prod", 3, 4)]
    assert admitted(ledger, plan=one, namespace="bank") == 1
    assert admitted(ledger, plan=other) == 0


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT])
def test_a_limit_that_is_not_enforced_is_overdrawn_and_named(mode: Mode) -> None:
    plan, ledger = plan_of(window(64, pods=1), quota_mode=mode), ReplicaShareLedger()
    assert ledger.acquire(asked(plan), NOW_US).would_refuse == ()
    receipt = ledger.acquire(asked(plan), NOW_US)
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (DeniedBy.QUOTA,), True)
    assert [use.used for use in ledger.acquire(asked(plan), NOW_US).over] == [2]


def test_a_peek_answers_the_same_and_counts_nothing() -> None:
    ledger = ReplicaShareLedger()
    for _ in range(20):
        receipt = ledger.acquire(asked(peek=True), NOW_US)
        assert (receipt.refused, receipt.charged) == (None, False)
    assert admitted(ledger) == 10
    assert ledger.acquire(asked(peek=True), NOW_US).refused is DeniedBy.QUOTA


def test_a_resize_counts_its_increase() -> None:
    plan, ledger = plan_of(window(64, pods=1, cpu=300)), ReplicaShareLedger()
    grown = asked(plan, cost={"pods": 1, "requests.cpu": 250}, resize_from={"pods": 1, "requests.cpu": 100})
    assert ledger.acquire(grown, NOW_US).charged
    assert ledger.acquire(asked(plan, cost={"pods": 1, "requests.cpu": 150}), NOW_US).charged
    assert ledger.acquire(grown, NOW_US).refused is DeniedBy.QUOTA
    shrunk = replace(grown, cost={"pods": 1}, resize_from=grown.cost)
    assert ledger.acquire(shrunk, NOW_US).refused is None


def test_what_is_refunded_makes_room_and_what_the_store_was_reported_is_forgotten() -> None:
    ledger, one = ReplicaShareLedger(), asked()
    ledger.acquire(one, NOW_US)
    assert admitted(ledger) == 9
    ledger.give_back(one, NOW_US, NOW_US)
    assert admitted(ledger) == 1
    ledger.forget("another")
    assert admitted(ledger) == 0
    ledger.forget(PLAN.tag)
    assert admitted(ledger) == 10


def test_what_was_forgotten_is_not_refunded_from_what_was_counted_since() -> None:
    ledger = ReplicaShareLedger()
    one = asked()
    assert ledger.acquire(one, NOW_US).charged
    ledger.forget(PLAN.tag)
    assert admitted(ledger, NOW_US + 1) == 10
    ledger.give_back(one, NOW_US, NOW_US + 2)
    assert admitted(ledger, NOW_US + 2) == 0


def test_changed_limits_find_what_was_counted_under_the_former_ones() -> None:
    before, after = plan_of(window(64, pods=10, cpu=500)), plan_of(window(32, pods=9), window(64, cpu=900, pods=8))
    ledger = ReplicaShareLedger()
    ledger.record_reply(before, "shop", (5, 100), NOW_US)
    assert admitted(ledger, plan=after) == 3


def test_it_does_not_grow_beyond_its_bound_and_forgets_what_no_longer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_share, "REPLIES_MAX", 10)
    plan, ledger = replace(PLAN, per_namespace=True), ReplicaShareLedger()
    for number in range(100):
        ledger.record_reply(plan, f"ns-{number}", (10,), NOW_US)
        ledger.acquire(asked(plan, f"ns-{number}"), NOW_US)
    assert len(ledger._replies) == 10
    assert admitted(ledger, plan=plan, namespace="ns-99") == 0
    ledger.sweep(NOW_US + 65 * SECOND_US)
    assert not ledger._rings


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 6),
        st.one_of(st.integers(0, 200_000), st.sampled_from([SECOND_US, 30 * SECOND_US, 65 * SECOND_US])),
    ),
    min_size=1,
    max_size=120,
)


@given(
    events=EVENTS,
    used_ages=st.lists(st.integers(0, 64 * SECOND_US - 1), max_size=10),
    replicas=st.integers(1, 4),
)
@examples(300)
def test_replicas_apart_oversell_by_less_than_one_largest_pod_each(
    events: list[tuple[int, int, int]], used_ages: list[int], replicas: int
) -> None:
    """In any trailing window: no more than hard, and one largest Pod for each replica but one."""
    ledgers = [ReplicaShareLedger(replicas, ordinal) for ordinal in range(replicas)]
    for ledger in ledgers:
        ledger.record_reply(PLAN, "shop", (len(used_ages),), NOW_US)
    log = [(NOW_US - age_us, 1) for age_us in used_ages]
    largest, smallest_share, now_us = 0, 10 // replicas, NOW_US
    for who, cost, pause_us in events:
        now_us += pause_us
        receipt: Receipt = ledgers[who % replicas].acquire(asked(cost={"pods": cost}), now_us)
        if receipt.charged:
            log.append((now_us, cost))
            largest = max(largest, cost)
            total = sum(amount for at_us, amount in log if at_us > now_us - 64 * SECOND_US)
            assert total <= 10 + (replicas - 1) * largest
            if largest <= min(smallest_share, (10 - len(used_ages)) // replicas):
                assert total <= 10
        else:
            free_at_us = receipt.free_at_us
            assert free_at_us is not None
            assert now_us < free_at_us <= now_us + 65 * SECOND_US
            trial = ledgers[who % replicas].acquire(asked(cost={"pods": cost}, peek=True), free_at_us)
            assert trial.refused is None, "from then on it could pass"


# Replicas that come and go


def test_more_replicas_make_smaller_shares_at_once() -> None:
    ledger = ReplicaShareLedger()
    ledger.record_reply(PLAN, "shop", (0,), NOW_US)
    ledger.set_replicas(2, 1, NOW_US)
    assert admitted(ledger) == 5
    ledger.set_replicas(3, 2, NOW_US + 1)
    assert admitted(ledger, NOW_US + 1) == 0


def test_a_share_grows_only_when_what_those_spent_who_left_has_left_the_window() -> None:
    ledger = ReplicaShareLedger(replicas=2)
    ledger.record_reply(PLAN, "shop", (0,), NOW_US)
    assert admitted(ledger) == 5
    ledger.set_replicas(1, 0, NOW_US + SECOND_US)
    assert admitted(ledger, NOW_US + SECOND_US) == 0, "the other may have let in five"
    assert admitted(ledger, NOW_US + 66 * SECOND_US - 1) == 5, "its own have left, the other's not yet"
    assert admitted(ledger, NOW_US + 66 * SECOND_US) == 5


def test_what_is_counted_afterwards_says_what_those_spent_who_left() -> None:
    ledger = ReplicaShareLedger(replicas=2)
    ledger.set_replicas(1, 0, NOW_US)
    ledger.record_reply(PLAN, "shop", (4,), NOW_US)
    assert admitted(ledger) == 6


def test_the_largest_number_since_the_last_reply_counts() -> None:
    ledger = ReplicaShareLedger(replicas=2)
    ledger.record_reply(PLAN, "shop", (0,), NOW_US)
    for number, replicas in enumerate((5, 3, 4, 1)):
        ledger.set_replicas(replicas, 0, NOW_US + number)
    assert admitted(ledger, NOW_US + 10) == 2
    ledger.record_reply(PLAN, "shop", (0,), NOW_US + 2)
    assert admitted(ledger, NOW_US + 10) == 1, "there were four when it was heard: 10 / 4, the remainder by ordinal"


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["ask", "ask", "ask", "ask", "join", "leave"]),
            st.integers(0, 5),
            st.integers(1, 6),
            st.one_of(st.integers(0, 200_000), st.sampled_from([SECOND_US, 30 * SECOND_US, 65 * SECOND_US])),
        ),
        min_size=1,
        max_size=80,
    ),
    used=st.integers(0, 10),
    replicas=st.integers(1, 4),
)
@examples(300)
def test_who_leaves_oversells_nothing_and_who_comes_at_most_a_share(
    events: list[tuple[str, int, int, int]], used: int, replicas: int
) -> None:
    """In any trailing window: hard, a largest Pod for each but one that was there, and a share for each newcomer."""
    world = {f"replica-{number}": ReplicaShareLedger(replicas, number) for number in range(replicas)}
    for ledger in world.values():
        ledger.record_reply(PLAN, "shop", (used,), NOW_US)
    log, joined, left, now_us, largest = [(NOW_US, used)], [], [], NOW_US, 0
    for what, who, cost, pause_us in events:
        now_us += pause_us
        name = sorted(world)[who % len(world)]
        if what == "join" and len(world) < 6:
            world[f"newcomer-{next(_numbers)}"] = ReplicaShareLedger(len(world) + 1, 0)
            joined.append((now_us, -(-10 // len(world))))
        elif what == "leave" and len(world) > 1:
            del world[name]
            left.append(now_us)
        elif what == "ask" and world[name].acquire(asked(cost={"pods": cost}), now_us).charged:
            log.append((now_us, cost))
            largest = max(largest, cost)
        for ordinal, ledger in enumerate(world[name] for name in sorted(world)):
            ledger.set_replicas(len(world), ordinal, now_us)
        since_us = now_us - 65 * SECOND_US
        total = sum(amount for at_us, amount in log if at_us > now_us - 64 * SECOND_US)
        there = len(world) + sum(at_us > since_us for at_us in left)
        newcomers = sum(share for at_us, share in joined if at_us > since_us)
        assert total <= 10 + (there - 1) * largest + newcomers


def test_live_pods_hold_nobody_up_and_stand_behind_the_windows_and_the_pools() -> None:
    pool = PoolPlan("prod", (window(64, pods=9),))
    plan = plan_of(window(64, pods=8), standing=standing(pods=1, memory=5), tag="prod", pool=pool)
    ledger = ReplicaShareLedger()
    ledger.record_reply(plan, "shop", (5, 7, 1, 5), NOW_US)
    assert admitted(ledger, plan=plan, cost={"pods": 1, "requests.memory": 5}) == 2, "9 - 7 of the pool"
    ledger.record_reply(plan, "shop", (5, 0, 1, 5), NOW_US)
    assert admitted(ledger, plan=plan) == 1, "8 - 5 of its own, of which two are spent"


def test_a_limit_on_live_pods_alone_lets_everybody_in() -> None:
    receipt = ReplicaShareLedger().acquire(asked(plan_of(standing=standing(pods=0))), NOW_US)
    assert (receipt.refused, receipt.charged, receipt.local) == (None, True, True)
