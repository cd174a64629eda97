from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.core.strategies import examples
from webhook.core.ledger import replica_share
from webhook.core.ledger.replica_share import ReplicaShareLedger
from webhook.core.policy_fields import Mode
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Holder, PoolPlan, Receipt

SECOND_US = 1_000_000
NOW_US = 65_000 * SECOND_US
"""An edge of a bucket of every window in use."""

PLAN = plan_of(window(64, pods=10))
_numbers = iter(range(10**9))


def acquire_request(plan: CounterPlan = PLAN, namespace: str = "shop", **more: Any) -> Acquire:
    cost = more.pop("cost", {"pods": 1})
    return Acquire(plan, namespace, f"uid-{next(_numbers)}", cost, "user:alice", **more)


def count_admitted(ledger: ReplicaShareLedger, now_us: int = NOW_US, plan: CounterPlan = PLAN, **more: Any) -> int:
    """Acquire until a denial; return the number of Pods admitted."""
    for number in range(1000):
        if ledger.acquire(acquire_request(plan, **more), now_us).refused is not None:
            return number
    raise AssertionError("no Pod was denied")


def test_quota_left_at_the_last_reply_is_divided_with_the_remainder_by_ordinal() -> None:
    shares = []
    for ordinal in range(3):
        ledger = ReplicaShareLedger(replicas=3, ordinal=ordinal)
        ledger.record_reply(PLAN, "shop", (2,), NOW_US)
        shares.append(count_admitted(ledger))
    assert shares == [3, 3, 2]


def test_without_a_reply_no_usage_is_assumed() -> None:
    assert count_admitted(ReplicaShareLedger(replicas=2, ordinal=0)) == 5


def test_usage_in_the_last_reply_counts_until_it_has_left_the_window() -> None:
    ledger = ReplicaShareLedger()
    ledger.record_reply(PLAN, "shop", (8,), NOW_US)
    assert count_admitted(ledger, NOW_US + 65 * SECOND_US - 1) == 2
    assert count_admitted(ledger, NOW_US + 65 * SECOND_US) == 8, "two of ten are this replica's own"


def test_denial_contains_the_share_and_free_at() -> None:
    ledger = ReplicaShareLedger(replicas=2)
    ledger.record_reply(PLAN, "shop", (6,), NOW_US)
    assert count_admitted(ledger, NOW_US + SECOND_US) == 2
    ahead_us = 500 * SECOND_US
    receipt = ledger.acquire(acquire_request(), NOW_US + 2 * SECOND_US, ahead_us)
    assert (receipt.refused, receipt.local, receipt.charged) == (DeniedBy.QUOTA, True, False)
    assert receipt.at_us == NOW_US + 2 * SECOND_US + ahead_us
    (use,) = receipt.over
    assert (use.window, use.resource, use.used, use.hard, use.asked, use.of) == ("64s", "pods", 2, 2, 1, Holder.SERVICE)
    # Usage of the store expires before the charges of this replica.
    assert receipt.free_at_us == use.free_at_us == NOW_US + 65 * SECOND_US + ahead_us
    assert ledger.acquire(acquire_request(), NOW_US + 65 * SECOND_US - 1).refused is DeniedBy.QUOTA
    assert ledger.acquire(acquire_request(), NOW_US + 65 * SECOND_US).charged


def test_request_above_the_limit_is_denied_without_free_at() -> None:
    receipt = ReplicaShareLedger().acquire(acquire_request(cost={"pods": 11}), NOW_US)
    assert (receipt.refused, receipt.free_at_us) == (DeniedBy.QUOTA, None)


def test_pod_larger_than_the_share_is_admitted_once_a_window_within_the_quota_left() -> None:
    ledger = ReplicaShareLedger(replicas=5)
    ledger.record_reply(PLAN, "shop", (3,), NOW_US)
    assert ledger.acquire(acquire_request(cost={"pods": 8}), NOW_US).refused is DeniedBy.QUOTA, "7 were left"
    assert ledger.acquire(acquire_request(cost={"pods": 7}), NOW_US).charged
    denied = ledger.acquire(acquire_request(cost={"pods": 7}), NOW_US)
    assert (denied.refused, denied.free_at_us) == (DeniedBy.QUOTA, NOW_US + 65 * SECOND_US)
    assert ledger.acquire(acquire_request(cost={"pods": 7}), NOW_US + 65 * SECOND_US).charged


def test_only_one_pod_per_window_may_exceed_the_share() -> None:
    ledger = ReplicaShareLedger(replicas=5)
    ledger.record_reply(PLAN, "shop", (3,), NOW_US)
    assert ledger.acquire(acquire_request(cost={"pods": 3}), NOW_US).charged
    denied = ledger.acquire(acquire_request(cost={"pods": 3}), NOW_US + SECOND_US)
    assert (denied.refused, denied.free_at_us) == (DeniedBy.QUOTA, NOW_US + 65 * SECOND_US)


def test_empty_share_admits_one_pod_while_quota_is_left() -> None:
    ledger = ReplicaShareLedger(replicas=3, ordinal=2)
    ledger.record_reply(PLAN, "shop", (9,), NOW_US)
    assert count_admitted(ledger) == 1
    full = ReplicaShareLedger(replicas=3, ordinal=2)
    full.record_reply(PLAN, "shop", (10,), NOW_US)
    assert count_admitted(full) == 0


def test_windows_over_an_hour_are_not_enforced() -> None:
    plan = plan_of(window(3601, pods=1), window(3600, pods=4))
    ledger = ReplicaShareLedger()
    ledger.record_reply(plan, "shop", (1, 2), NOW_US)
    assert count_admitted(ledger, plan=plan) == 2


def test_pod_is_charged_in_all_windows_and_resources_or_none() -> None:
    plan = plan_of(window(64, pods=10, cpu=500), window(128, pods=3))
    ledger = ReplicaShareLedger()
    assert ledger.acquire(acquire_request(plan, cost={"pods": 1, "requests.cpu": 400}), NOW_US).charged
    denied = ledger.acquire(acquire_request(plan, cost={"pods": 1, "requests.cpu": 101}), NOW_US)
    assert [(use.window, use.resource) for use in denied.over] == [("64s", "cpu")]
    assert count_admitted(ledger, plan=plan) == 2


def test_pool_windows_are_shared_by_services_and_namespaces_count_separately() -> None:
    pool = PoolPlan("prod", (window(64, pods=6),))
    plan = plan_of(window(64, pods=4), tag="prod", pool=pool, per_namespace=True)
    other = plan_of(tag="prod", pool=pool, service="other")
    ledger = ReplicaShareLedger()
    ledger.record_reply(plan, "shop", (1, 2), NOW_US)
    assert count_admitted(ledger, plan=plan) == 3
    denied = ledger.acquire(acquire_request(other, cost={"pods": 2}), NOW_US)
    assert [(use.of, use.name, use.used, use.hard) for use in denied.over] == [(Holder.POOL, "prod", 3, 4)]
    assert count_admitted(ledger, plan=plan, namespace="bank") == 1
    assert count_admitted(ledger, plan=other) == 0


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT])
def test_unenforced_limit_is_exceeded_and_reported(mode: Mode) -> None:
    plan, ledger = plan_of(window(64, pods=1), quota_mode=mode), ReplicaShareLedger()
    assert ledger.acquire(acquire_request(plan), NOW_US).would_refuse == ()
    receipt = ledger.acquire(acquire_request(plan), NOW_US)
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (DeniedBy.QUOTA,), True)
    assert [use.used for use in ledger.acquire(acquire_request(plan), NOW_US).over] == [2]


def test_peek_returns_the_same_answer_and_counts_nothing() -> None:
    ledger = ReplicaShareLedger()
    for _ in range(20):
        receipt = ledger.acquire(acquire_request(peek=True), NOW_US)
        assert (receipt.refused, receipt.charged) == (None, False)
    assert count_admitted(ledger) == 10
    assert ledger.acquire(acquire_request(peek=True), NOW_US).refused is DeniedBy.QUOTA


def test_resize_charges_its_increase() -> None:
    plan, ledger = plan_of(window(64, pods=1, cpu=300)), ReplicaShareLedger()
    grown = acquire_request(plan, cost={"pods": 1, "requests.cpu": 250}, resize_from={"pods": 1, "requests.cpu": 100})
    assert ledger.acquire(grown, NOW_US).charged
    assert ledger.acquire(acquire_request(plan, cost={"pods": 1, "requests.cpu": 150}), NOW_US).charged
    assert ledger.acquire(grown, NOW_US).refused is DeniedBy.QUOTA
    shrunk = replace(grown, cost={"pods": 1}, resize_from=grown.cost)
    assert ledger.acquire(shrunk, NOW_US).refused is None


def test_refund_releases_quota_and_forget_clears_the_charges_of_a_tag() -> None:
    ledger, request = ReplicaShareLedger(), acquire_request()
    ledger.acquire(request, NOW_US)
    assert count_admitted(ledger) == 9
    ledger.give_back(request, NOW_US, NOW_US)
    assert count_admitted(ledger) == 1
    ledger.forget("another")
    assert count_admitted(ledger) == 0
    ledger.forget(PLAN.tag)
    assert count_admitted(ledger) == 10


def test_forgotten_charge_is_not_refunded_from_later_charges() -> None:
    ledger = ReplicaShareLedger()
    request = acquire_request()
    assert ledger.acquire(request, NOW_US).charged
    ledger.forget(PLAN.tag)
    assert count_admitted(ledger, NOW_US + 1) == 10
    ledger.give_back(request, NOW_US, NOW_US + 2)
    assert count_admitted(ledger, NOW_US + 2) == 0


def test_changed_limits_keep_usage_counted_under_the_former_ones() -> None:
    before, after = plan_of(window(64, pods=10, cpu=500)), plan_of(window(32, pods=9), window(64, cpu=900, pods=8))
    ledger = ReplicaShareLedger()
    ledger.record_reply(before, "shop", (5, 100), NOW_US)
    assert count_admitted(ledger, plan=after) == 3


def test_number_of_replies_is_bounded_and_sweep_removes_expired_charges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_share, "REPLIES_MAX", 10)
    plan, ledger = replace(PLAN, per_namespace=True), ReplicaShareLedger()
    for number in range(100):
        ledger.record_reply(plan, f"ns-{number}", (10,), NOW_US)
        ledger.acquire(acquire_request(plan, f"ns-{number}"), NOW_US)
    assert len(ledger._replies) == 10
    assert count_admitted(ledger, plan=plan, namespace="ns-99") == 0
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
def test_isolated_replicas_oversell_by_less_than_one_largest_pod_each(
    events: list[tuple[int, int, int]], used_ages: list[int], replicas: int
) -> None:
    """In any trailing window: no more than hard, and one largest Pod for each replica but one."""
    ledgers = [ReplicaShareLedger(replicas, ordinal) for ordinal in range(replicas)]
    for ledger in ledgers:
        ledger.record_reply(PLAN, "shop", (len(used_ages),), NOW_US)
    log = [(NOW_US - age_us, 1) for age_us in used_ages]
    largest, smallest_share, now_us = 0, 10 // replicas, NOW_US
    for choice, cost, pause_us in events:
        now_us += pause_us
        receipt: Receipt = ledgers[choice % replicas].acquire(acquire_request(cost={"pods": cost}), now_us)
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
            peeked = ledgers[choice % replicas].acquire(acquire_request(cost={"pods": cost}, peek=True), free_at_us)
            assert peeked.refused is None, "free_at is the time at which it fits"


# Added and removed replicas


def test_more_replicas_make_smaller_shares_at_once() -> None:
    ledger = ReplicaShareLedger()
    ledger.record_reply(PLAN, "shop", (0,), NOW_US)
    ledger.set_replicas(2, 1, NOW_US)
    assert count_admitted(ledger) == 5
    ledger.set_replicas(3, 2, NOW_US + 1)
    assert count_admitted(ledger, NOW_US + 1) == 0


def test_share_grows_only_after_the_charges_of_removed_replicas_have_expired() -> None:
    ledger = ReplicaShareLedger(replicas=2)
    ledger.record_reply(PLAN, "shop", (0,), NOW_US)
    assert count_admitted(ledger) == 5
    ledger.set_replicas(1, 0, NOW_US + SECOND_US)
    assert count_admitted(ledger, NOW_US + SECOND_US) == 0, "the other replica may have admitted five"
    assert count_admitted(ledger, NOW_US + 66 * SECOND_US - 1) == 5, (
        "its own charges have expired, those of the other not yet"
    )
    assert count_admitted(ledger, NOW_US + 66 * SECOND_US) == 5


def test_later_reply_includes_the_charges_of_removed_replicas() -> None:
    ledger = ReplicaShareLedger(replicas=2)
    ledger.set_replicas(1, 0, NOW_US)
    ledger.record_reply(PLAN, "shop", (4,), NOW_US)
    assert count_admitted(ledger) == 6


def test_share_uses_the_largest_replica_count_since_the_last_reply() -> None:
    ledger = ReplicaShareLedger(replicas=2)
    ledger.record_reply(PLAN, "shop", (0,), NOW_US)
    for number, replicas in enumerate((5, 3, 4, 1)):
        ledger.set_replicas(replicas, 0, NOW_US + number)
    assert count_admitted(ledger, NOW_US + 10) == 2
    ledger.record_reply(PLAN, "shop", (0,), NOW_US + 2)
    assert count_admitted(ledger, NOW_US + 10) == 1, (
        "four replicas at the time of the reply: 10 / 4, the remainder by ordinal"
    )


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
def test_removed_replicas_oversell_nothing_and_added_ones_at_most_a_share(
    events: list[tuple[str, int, int, int]], used: int, replicas: int
) -> None:
    """In any trailing window: hard, a largest Pod for each replica but one, and a share for each added replica."""
    ledgers = {f"replica-{number}": ReplicaShareLedger(replicas, number) for number in range(replicas)}
    for ledger in ledgers.values():
        ledger.record_reply(PLAN, "shop", (used,), NOW_US)
    log, joined, left, now_us, largest = [(NOW_US, used)], [], [], NOW_US, 0
    for event, choice, cost, pause_us in events:
        now_us += pause_us
        name = sorted(ledgers)[choice % len(ledgers)]
        if event == "join" and len(ledgers) < 6:
            ledgers[f"newcomer-{next(_numbers)}"] = ReplicaShareLedger(len(ledgers) + 1, 0)
            joined.append((now_us, -(-10 // len(ledgers))))
        elif event == "leave" and len(ledgers) > 1:
            del ledgers[name]
            left.append(now_us)
        elif event == "ask" and ledgers[name].acquire(acquire_request(cost={"pods": cost}), now_us).charged:
            log.append((now_us, cost))
            largest = max(largest, cost)
        for ordinal, ledger in enumerate(ledgers[name] for name in sorted(ledgers)):
            ledger.set_replicas(len(ledgers), ordinal, now_us)
        since_us = now_us - 65 * SECOND_US
        total = sum(amount for at_us, amount in log if at_us > now_us - 64 * SECOND_US)
        replica_count = len(ledgers) + sum(at_us > since_us for at_us in left)
        newcomers = sum(share for at_us, share in joined if at_us > since_us)
        assert total <= 10 + (replica_count - 1) * largest + newcomers


def test_live_pod_limits_are_not_enforced_and_follow_window_and_pool_usage_in_replies() -> None:
    pool = PoolPlan("prod", (window(64, pods=9),))
    plan = plan_of(window(64, pods=8), standing=standing(pods=1, memory=5), tag="prod", pool=pool)
    ledger = ReplicaShareLedger()
    ledger.record_reply(plan, "shop", (5, 7, 1, 5), NOW_US)
    assert count_admitted(ledger, plan=plan, cost={"pods": 1, "requests.memory": 5}) == 2, "9 - 7 of the pool"
    ledger.record_reply(plan, "shop", (5, 0, 1, 5), NOW_US)
    assert count_admitted(ledger, plan=plan) == 1, "8 - 5 of its own, of which two are used"


def test_live_pod_limit_alone_denies_no_pod() -> None:
    receipt = ReplicaShareLedger().acquire(acquire_request(plan_of(standing=standing(pods=0))), NOW_US)
    assert (receipt.refused, receipt.charged, receipt.local) == (None, True, True)
