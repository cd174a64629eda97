"""Guarantees in a pool while the store is away: each replica keeps its part of them."""

from random import Random

import pytest

from tests.core.plans import plan_of, window
from webhook.core.ledger.replica_share import ReplicaShareLedger
from webhook.core.quota import Acquire, GuaranteeUse, Holder, PoolGuarantees, PoolPlan, Use

NOW_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
GUARANTEES = PoolGuarantees({(64, "pods"): (("gold", 6), ("silver", 2))})
SHARED = window(64, pods=10)
PLANS = {
    name: plan_of(service=name, tag="prod", pool=PoolPlan("prod", (GUARANTEES.bind(SHARED, name),)))
    for name in ("gold", "silver", "guest")
}


def ask(ledger: ReplicaShareLedger, name: str, now_us: int = NOW_US, *, peek: bool = False) -> tuple[Use, ...]:
    """Ask for one Pod; return what denies it."""
    return ledger.acquire(Acquire(PLANS[name], "x", "a", {"pods": 1}, "user:a", peek=peek), now_us).over


def count_admitted(ledger: ReplicaShareLedger, name: str, now_us: int = NOW_US) -> int:
    return next(count for count in range(100) if ask(ledger, name, now_us))


def record(ledger: ReplicaShareLedger, name: str, used: int, of_pool: int, at_us: int = NOW_US) -> None:
    """Record a snapshot of a member: its own use, and that of the pool."""
    plan = PLANS[name]
    hard = dict(GUARANTEES.by_limit[64, "pods"]).get(name, 0)
    use = Use("64s", "pods", of_pool, 10, of=Holder.POOL, name="prod", guarantee=GuaranteeUse(hard, used, 0))
    ledger.record_members(plan, (use,), at_us)
    ledger.record_reply(plan, "", (of_pool,), at_us)


def test_others_take_only_what_is_not_guaranteed() -> None:
    ledger = ReplicaShareLedger()
    assert count_admitted(ledger, "guest") == 2
    assert [count_admitted(ledger, name) for name in ("gold", "silver", "guest")] == [6, 2, 0]


def test_a_denial_names_this_replicas_part_of_a_guarantee_and_what_it_keeps() -> None:
    ledger = ReplicaShareLedger(2, 0)
    assert count_admitted(ledger, "guest") == 1
    [use] = ask(ledger, "guest")
    assert (use.hard, use.used, use.guarantee) == (5, 1, GuaranteeUse(0, 0, 4))
    assert use.free_at_us == (NOW_US // SECOND_US + 65) * SECOND_US
    assert count_admitted(ledger, "gold") == 3
    [use] = ask(ledger, "gold")
    assert use.guarantee == GuaranteeUse(3, 3, 1)


def test_what_members_had_used_by_the_last_snapshot_is_not_kept_again() -> None:
    ledger = ReplicaShareLedger()
    record(ledger, "gold", 5, 6)
    record(ledger, "silver", 0, 6)
    assert count_admitted(ledger, "guest") == 1, "4 are left, of which 1 and 2 are kept"
    assert [count_admitted(ledger, name) for name in ("gold", "silver")] == [1, 2]


def test_use_at_the_last_snapshot_leaves_with_its_window() -> None:
    ledger = ReplicaShareLedger()
    record(ledger, "gold", 6, 6)
    assert count_admitted(ledger, "gold") == 2, "of what all share"
    later_us = NOW_US + 66 * SECOND_US
    assert count_admitted(ledger, "guest", later_us) == 2
    assert count_admitted(ledger, "gold", later_us) == 6


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_together_admit_no_more_than_the_limit_and_each_keeps_its_promises(replicas: int) -> None:
    chosen = Random(replicas)  # noqa: S311  not for security
    for _ in range(50):
        ledgers = [ReplicaShareLedger(replicas, ordinal) for ordinal in range(replicas)]
        admitted: list[tuple[int, str, int]] = []
        now_us = NOW_US
        for _ in range(60):
            now_us += chosen.choice((0, SECOND_US, 5 * SECOND_US))
            number, name = chosen.randrange(replicas), chosen.choice(tuple(PLANS))
            live = [(each, who) for each, who, at_us in admitted if at_us > now_us - 65 * SECOND_US]
            part = divide(dict(GUARANTEES.by_limit[64, "pods"]).get(name, 0), replicas, number)
            is_promised = live.count((number, name)) < part
            if not ask(ledgers[number], name, now_us):
                admitted.append((number, name, now_us))
                recent = [at_us for _, _, at_us in admitted if at_us > now_us - 64 * SECOND_US]
                assert len(recent) <= 10
            elif is_promised:
                parts = sum(divide(hard, replicas, number) for _, hard in GUARANTEES.by_limit[64, "pods"])
                assert parts > divide(10, replicas, number), "denied within its part"


def divide(left: int, replicas: int, ordinal: int) -> int:
    each, rest = divmod(left, replicas)
    return each + (ordinal < rest)
