"""Operations on one Pod and its service's counters, in the script's order."""

import gc
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.ledger.operations import BREAKER, SECOND_US
from tests.core.plans import plan_of, window
from tests.core.strategies import examples
from webhook.core.breaker import State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.ledger import breaker_operations, operations
from webhook.core.ledger.tag_state import LONG_US, TagState
from webhook.core.policy_fields import Mode
from webhook.core.quota import HOUR_US, Acquire, Booking, CounterPlan, DeniedBy, Receipt

NOW_US = 1_000 * SECOND_US
ONE = {"pods": 1}


class Ledger:
    """The counters of one service, at a time that the test sets."""

    def __init__(self, plan: CounterPlan) -> None:
        self.plan = plan
        self.state = TagState()
        self.now_us = NOW_US
        self._count = 0

    def ask(self, uid: str | None = None, cost: dict[str, int] = ONE, **more: Any) -> Receipt:
        self._count += 1
        more = {"namespace": "payments", "event_source": f"controller:{self._count}", **more}
        request = Acquire(self.plan, uid=uid or f"fresh-{self._count}", cost=cost, **more)
        return operations.acquire(self.state, request, self.now_us)

    def refund(self, uid: str) -> bool:
        return operations.refund(self.state, self.plan, uid, self.now_us)

    def record_outcome(self, *, ok: bool, uid: str | None = None) -> None:
        breaker_operations.record_outcomes(
            self.state, self.plan, [Outcomes.from_single(ok=ok, latency_us=0, uid=uid)], self.now_us
        )

    def read_usage(self, namespace: str = "") -> list[int]:
        return [use.used for use in operations.snapshot(self.state, self.plan, self.now_us).uses.get(namespace, ())]

    def read_breaker_state(self) -> State:
        view = operations.snapshot(self.state, self.plan, self.now_us).breaker
        assert view is not None
        return view.state

    def trip(self) -> None:
        self.record_outcome(ok=False)
        self.now_us += SECOND_US
        breaker_operations.tick(self.state, self.plan, self.now_us)
        assert self.state.find_breaker(self.plan.service).state is State.OPEN


def copy_state(state: TagState) -> tuple[object, ...]:
    rings = {
        (account, seconds): (ring._buckets, ring._sums)
        for account, rings in state._rings.items()
        for seconds, ring in rings.items()
    }
    return deepcopy((state._breakers, state._clocks, state._pods, rings))


# Charging


def test_an_admitted_pod_is_charged_in_every_window() -> None:
    service = Ledger(plan_of(window(60, pods=2, cpu=500), window(3600, pods=10)))
    receipt = service.ask(cost={"pods": 1, "requests.cpu": 400, "requests.memory": 99})
    assert (receipt.refused, receipt.charged, receipt.repeated, receipt.over) == (None, True, False, ())
    assert receipt.used == (1, 400, 1), "pods and cpu in a minute, pods in an hour"
    assert service.read_usage() == [1, 400, 1]


def test_one_exceeded_limit_leaves_all_windows_uncharged() -> None:
    service = Ledger(plan_of(window(60, pods=5), window(3600, pods=1)))
    service.ask()
    receipt = service.ask()
    assert (receipt.refused, receipt.charged) == (DeniedBy.QUOTA, False)
    assert [(use.window, use.used, use.asked) for use in receipt.over] == [("3600s", 1, 1)]
    assert receipt.used == (1, 1)
    assert service.read_usage() == [1, 1]


def test_free_at_of_a_denial_is_the_exact_time_at_which_all_limits_admit() -> None:
    service = Ledger(plan_of(window(60, pods=1), window(120, pods=1)))
    service.ask()
    free_at_us = service.ask().free_at_us
    assert free_at_us is not None
    service.now_us = free_at_us - 1
    assert service.ask().refused is DeniedBy.QUOTA
    service.now_us = free_at_us
    assert service.ask().refused is None


def test_request_above_a_limit_is_denied_without_free_at() -> None:
    receipt = Ledger(plan_of(window(60, pods=1), window(120, pods=5))).ask(cost={"pods": 2})
    assert receipt.refused is DeniedBy.QUOTA
    assert receipt.free_at_us is None


def test_exceeded_resource_admits_pods_that_request_none_of_it() -> None:
    service = Ledger(plan_of(window(60, pods=9, cpu=100)))
    service.ask(cost={"pods": 1, "requests.cpu": 100})
    service.plan = plan_of(window(60, pods=9, cpu=50))
    assert service.ask(cost={"pods": 1, "requests.cpu": 0}).refused is None
    assert service.ask(cost={"pods": 1, "requests.cpu": 1}).refused is DeniedBy.QUOTA


def test_changed_limits_keep_counts_and_a_new_resource_starts_at_zero() -> None:
    service = Ledger(plan_of(window(60, pods=5)))
    for _ in range(3):
        service.ask(cost={"pods": 1, "requests.cpu": 100})
    service.plan = plan_of(window(60, **{"pods": 4, "requests.cpu": 100}), window(120, pods=1))
    assert service.read_usage() == [3, 0, 0]
    assert service.ask(cost={"pods": 1, "requests.cpu": 100}).charged
    assert service.read_usage() == [4, 100, 1]


def test_per_namespace_quota_counts_each_namespace_separately() -> None:
    service = Ledger(plan_of(window(60, pods=1), per_namespace=True))
    assert service.ask(namespace="a").charged
    assert service.ask(namespace="b").charged
    assert service.ask(namespace="a").refused is DeniedBy.QUOTA
    assert (service.read_usage("a"), service.read_usage("b"), service.read_usage()) == ([1], [1], [])


def test_clock_step_back_frees_no_quota() -> None:
    service = Ledger(plan_of(window(60, pods=1)))
    service.ask()
    service.now_us -= 3600 * SECOND_US
    receipt = service.ask()
    assert (receipt.refused, receipt.at_us) == (DeniedBy.QUOTA, NOW_US)


# The same uid again


def test_repeated_uid_is_admitted_without_a_charge() -> None:
    service = Ledger(plan_of(window(60, pods=1), breaker=BREAKER))
    service.ask("u1")
    service.trip()
    receipt = service.ask("u1")
    assert (receipt.refused, receipt.charged, receipt.repeated) == (None, False, True)
    assert receipt.used == (1,)


def test_denied_uid_is_evaluated_again() -> None:
    service = Ledger(plan_of(window(60, pods=1)))
    service.ask("u1")
    assert service.ask("u2").refused is DeniedBy.QUOTA
    service.refund("u1")
    receipt = service.ask("u2")
    assert (receipt.charged, receipt.repeated) == (True, False)


def test_record_of_a_uid_is_kept_for_remember_us_and_then_swept() -> None:
    service = Ledger(plan_of(window(60, pods=5), remember_us=2 * HOUR_US))
    service.ask("u1")
    service.now_us += 2 * HOUR_US - 1
    assert service.ask("u1").repeated
    service.now_us += 1
    service.state.sweep(service.now_us + LONG_US)
    assert not service.state._pods
    assert service.ask("u1").charged


# Peeks


def build_ledgers() -> Iterator[tuple[str, Ledger]]:
    yield "empty", Ledger(plan_of(window(60, pods=1), breaker=BREAKER))
    full = Ledger(plan_of(window(60, pods=1), breaker=BREAKER))
    full.ask("u1")
    yield "full", full
    opened = Ledger(plan_of(window(60, pods=9), breaker=BREAKER))
    opened.trip()
    yield "open", opened
    probing = Ledger(plan_of(window(60, pods=9), breaker=BREAKER))
    probing.trip()
    probing.now_us += BREAKER.open_for_us
    yield "probing", probing
    overdrawn = Ledger(plan_of(window(60, pods=1), quota_mode=Mode.WARN))
    overdrawn.ask("u1")
    yield "overdrawn", overdrawn


@pytest.mark.parametrize(("name", "service"), list(build_ledgers()))
@pytest.mark.parametrize("more", [{}, {"resize_from": {"pods": 1}, "cost": {"pods": 1, "requests.cpu": 5}}])
def test_peek_equals_the_real_call_and_writes_nothing(name: str, service: Ledger, more: dict[str, Any]) -> None:
    service = deepcopy(service)
    before = copy_state(service.state)
    peeked = service.ask("new", **more, peek=True)
    assert copy_state(service.state) == before, name
    real = service.ask("new", **more)
    assert (peeked.refused, peeked.would_refuse, peeked.over) == (real.refused, real.would_refuse, real.over)
    assert peeked.free_at_us == real.free_at_us
    assert (peeked.charged, peeked.transitions) == (False, ())


# Modes


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT])
def test_unenforced_quota_charges_past_its_limit_and_reports_it(mode: Mode) -> None:
    service = Ledger(plan_of(window(60, pods=1), quota_mode=mode, breaker=BREAKER))
    for _ in range(3):
        receipt = service.ask()
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (DeniedBy.QUOTA,), True)
    assert [(use.used, use.asked) for use in receipt.over] == [(2, 1)]
    assert receipt.used == (3,)
    assert service.read_breaker_state() is State.CLOSED, "only an enforced denial is a quota event"


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT])
def test_unenforced_breaker_is_reported_and_the_pod_is_charged(mode: Mode) -> None:
    service = Ledger(plan_of(window(60, pods=5), breaker=BREAKER, breaker_mode=mode))
    service.trip()
    receipt = service.ask()
    assert (receipt.refused, receipt.would_refuse, receipt.charged) == (None, (DeniedBy.BREAKER,), True)
    assert receipt.breaker is not None
    assert receipt.breaker.state is State.OPEN


# Breaker and quota together


def test_open_breaker_denies_before_quota_and_charges_nothing() -> None:
    service = Ledger(plan_of(window(60, pods=1), breaker=BREAKER))
    service.ask()
    service.trip()
    for _ in range(5):
        receipt = service.ask()
        assert (receipt.refused, receipt.charged, receipt.over) == (DeniedBy.BREAKER, False, ())
    assert service.read_usage() == [1]
    assert not list(service.state.find_breaker(service.plan.service).windows.quota_events)


def test_quota_denials_trip_the_breaker_and_the_receipt_shows_the_new_state() -> None:
    service = Ledger(plan_of(window(60, pods=1), breaker=BREAKER))
    service.ask()
    assert service.ask().breaker == operations.snapshot(service.state, service.plan, service.now_us).breaker
    receipt = service.ask()
    assert receipt.refused is DeniedBy.QUOTA
    assert receipt.breaker is not None
    assert (receipt.breaker.state, receipt.breaker.open_until_us) == (State.OPEN, NOW_US + BREAKER.open_for_us)
    assert [(move.old, move.new, move.at_us) for move in receipt.transitions] == [(State.CLOSED, State.OPEN, NOW_US)]


def test_first_pods_after_open_for_become_probes() -> None:
    service = Ledger(plan_of(window(60, pods=9), breaker=BREAKER))
    service.trip()
    service.now_us += BREAKER.open_for_us
    receipts = [service.ask(uid) for uid in ("p1", "p2", "p3")]
    assert [receipt.refused for receipt in receipts] == [None, None, DeniedBy.BREAKER]
    assert [move.new for move in receipts[0].transitions] == [State.HALF_OPEN]
    assert receipts[0].breaker is not None
    assert receipts[0].breaker.probes_leased == 1
    assert receipts[2].transitions == ()
    for uid in ("p1", "p2"):
        service.record_outcome(ok=True, uid=uid)
    assert service.read_breaker_state() is State.CLOSED


def test_quota_denial_in_half_open_takes_no_lease_and_is_no_quota_event() -> None:
    service = Ledger(plan_of(window(60, pods=1), breaker=BREAKER))
    service.ask()
    service.trip()
    service.now_us += BREAKER.open_for_us
    for _ in range(5):
        receipt = service.ask()
        assert receipt.refused is DeniedBy.QUOTA
        assert receipt.breaker is not None
        assert (receipt.breaker.state, receipt.breaker.probes_leased) == (State.HALF_OPEN, 0)


def test_refunded_probe_releases_its_lease() -> None:
    service = Ledger(plan_of(window(60, pods=9), breaker=BREAKER))
    service.trip()
    service.now_us += BREAKER.open_for_us
    for uid in ("p1", "p2"):
        service.ask(uid)
    assert service.ask("p3").refused is DeniedBy.BREAKER
    service.refund("p1")
    assert service.ask("p3").charged


def test_service_without_quota_records_its_pods() -> None:
    service = Ledger(plan_of(breaker=BREAKER))
    assert service.ask("u1").charged
    assert service.ask("u1").repeated


# Refunds


def test_refund_is_applied_once() -> None:
    service = Ledger(plan_of(window(60, pods=2), window(3600, pods=2)))
    service.ask("u1")
    service.ask("u2")
    assert [service.refund("u1") for _ in range(2)] == [True, False]
    assert service.read_usage() == [1, 1]
    assert not service.refund("stranger")


def test_refund_skips_the_window_whose_bucket_has_expired() -> None:
    service = Ledger(plan_of(window(60, pods=2), window(3600, pods=2)))
    service.ask("u1")
    service.now_us += 62 * SECOND_US
    service.ask("u2")
    assert service.refund("u1")
    assert service.read_usage() == [1, 1]


def test_refund_changes_no_counter_that_the_pod_was_not_charged_in() -> None:
    service = Ledger(plan_of(window(60, pods=9)))
    service.ask("u1", {"pods": 1, "requests.cpu": 100})
    service.plan = plan_of(window(60, **{"pods": 9, "requests.cpu": 900}), window(120, pods=9))
    service.ask("u2", {"pods": 1, "requests.cpu": 100})
    service.refund("u1")
    assert service.read_usage() == [1, 100, 1]


def test_refunded_uid_is_charged_again() -> None:
    service = Ledger(plan_of(window(60, pods=1)))
    service.ask("u1")
    service.refund("u1")
    assert service.ask("u1").charged
    assert service.read_usage() == [1]


# Resizes


def test_resize_charges_what_exceeds_the_high_water_mark_and_no_pods() -> None:
    service = Ledger(plan_of(window(60, pods=1, cpu=1000)))
    small, large = {"pods": 1, "requests.cpu": 100}, {"pods": 1, "requests.cpu": 300}
    service.ask("u1", small)
    for old, new, used, charged in (
        (small, large, 300, True),
        (small, large, 300, False),  # the same review again
        (large, small, 300, False),
        (small, {"pods": 1, "requests.cpu": 250}, 300, False),
        (small, {"pods": 1, "requests.cpu": 350}, 350, True),
    ):
        receipt = service.ask("u1", new, resize_from=old)
        assert (receipt.refused, receipt.repeated, receipt.charged) == (None, False, charged)
        assert service.read_usage() == [1, used]


def test_resize_of_an_unknown_pod_charges_the_difference_and_remembers_it() -> None:
    service = Ledger(plan_of(window(60, pods=1, cpu=1000)))
    for new, used in ((300, 200), (300, 200), (50, 200), (400, 300)):
        service.ask("u1", {"pods": 1, "requests.cpu": new}, resize_from={"requests.cpu": 100})
        assert service.read_usage() == [0, used]


def test_resize_downwards_of_an_unknown_pod_leaves_its_old_size_as_the_mark() -> None:
    service = Ledger(plan_of(window(60, cpu=1000)))
    service.ask("u1", {"requests.cpu": 100}, resize_from={"requests.cpu": 500})
    service.ask("u1", {"requests.cpu": 500}, resize_from={"requests.cpu": 100})
    assert service.read_usage() == [0]


def test_denied_resize_raises_no_mark_and_is_no_quota_event() -> None:
    service = Ledger(plan_of(window(60, cpu=300), breaker=BREAKER))
    service.ask("u1", {"requests.cpu": 200})
    for _ in range(3):
        receipt = service.ask("u1", {"requests.cpu": 400}, resize_from={"requests.cpu": 200})
        assert (receipt.refused, receipt.free_at_us is not None) == (DeniedBy.QUOTA, True)
        assert [use.asked for use in receipt.over] == [200]
    assert service.read_breaker_state() is State.CLOSED
    assert service.read_usage() == [200]


def test_open_breaker_admits_resizes() -> None:
    service = Ledger(plan_of(window(60, cpu=300), breaker=BREAKER))
    service.ask("u1", {"requests.cpu": 200})
    service.trip()
    assert service.ask("u1", {"requests.cpu": 250}, resize_from={"requests.cpu": 200}).charged


# Random operations

LIMITS = {1: {"pods": 4}, 3: {"pods": 9, "requests.cpu": 700}}
HARD = plan_of(*(window(seconds, **hard) for seconds, hard in LIMITS.items()))
gaps = st.sampled_from([0, 0, 1, 15_624, 15_625, 46_875, 999_999, SECOND_US, 1_015_625, 3 * SECOND_US]) | st.integers(
    -50_000, 2 * SECOND_US
)
costs = st.fixed_dictionaries({"pods": st.integers(0, 3), "requests.cpu": st.sampled_from([0, 100, 350, 701])})
operation_steps = st.tuples(
    gaps, st.sampled_from(["ask", "ask", "ask", "again", "refund", "peek"]), costs, st.integers(0, 99)
)


class Log:
    """Every charge, exactly."""

    def __init__(self) -> None:
        self.charges: dict[str, tuple[int, dict[str, int]]] = {}
        self.refunded: set[str] = set()

    def sum_costs(self, span_us: int, resource: str, now_us: int, *, closed: bool) -> int:
        return sum(
            cost[resource]
            for at_us, cost in self.charges.values()
            if now_us - at_us < span_us or (closed and now_us - at_us == span_us)
        )


_CLOCK_STEPS_BACK = [
    (15_625, "ask", {"pods": 0, "requests.cpu": 350}, 0),
    (3 * SECOND_US, "ask", {"pods": 0, "requests.cpu": 350}, 0),
    (15_625, "refund", {"pods": 0, "requests.cpu": 0}, 0),
    (-1, "ask", {"pods": 0, "requests.cpu": 100}, 0),
]
"""A charge that has just left the window is not refunded, and the clock steps back by a microsecond."""


@examples(400)
@given(st.lists(operation_steps, max_size=70))
@example(_CLOCK_STEPS_BACK)
def test_usage_never_exceeds_hard_and_every_denial_has_a_cause(steps: list[Any]) -> None:
    service, log = Ledger(HARD), Log()
    for number, (gap_us, step, cost, choice) in enumerate(steps):
        service.now_us += gap_us
        now_us = service.state.find_clock(HARD).now(service.now_us)
        known = sorted(log.charges.keys() - log.refunded)
        if step == "refund" and known:
            uid = known[choice % len(known)]
            lives = now_us // 46_875 - log.charges[uid][0] // 46_875 < 65
            assert service.refund(uid) is (lives and any(log.charges[uid][1].values()))
            log.refunded.add(uid)
            if lives:  # otherwise it counts again if the clock steps back
                del log.charges[uid]
            continue
        if step == "again" and known:
            assert service.ask(known[choice % len(known)], cost).repeated
            continue
        receipt = service.ask(f"uid-{number}", cost, peek=step == "peek")
        if receipt.charged:
            log.charges[f"uid-{number}"] = (now_us, cost)
        _check(log, receipt, cost, now_us)


def _check(log: Log, receipt: Receipt, cost: dict[str, int], now_us: int) -> None:
    """Check each window that ends at a charge: usage grows at no other time."""
    causes = [
        cost[resource] > 0
        and log.sum_costs(seconds * 1_015_625, resource, now_us, closed=False) + cost[resource] > hard
        for seconds, limits in LIMITS.items()
        for resource, hard in limits.items()
    ]
    if receipt.refused:
        assert any(causes)
    for seconds, limits in LIMITS.items():
        for resource, hard in limits.items():
            assert log.sum_costs(seconds * SECOND_US, resource, now_us, closed=True) <= hard


def test_expired_charges_are_swept_and_a_service_after_an_idle_hour() -> None:
    service = Ledger(plan_of(window(60, pods=5), per_namespace=True))
    service.ask("u1", namespace="a")
    assert not service.state.sweep(service.now_us + 61 * SECOND_US + LONG_US)
    assert not service.state._rings
    assert not service.state.sweep(service.now_us + HOUR_US + LONG_US - 1), "the record of its Pod is kept"
    assert service.state.sweep(service.now_us + HOUR_US + LONG_US)


def test_records_of_like_pods_share_their_parts_and_a_collection_scans_none_of_them() -> None:
    service = Ledger(plan_of(window(60, pods=500), window(3600, pods=500)))
    service.ask("first", {"pods": 1})
    gc.collect()
    before = len(gc.get_objects())
    for number in range(200):
        service.ask(f"u{number}", {"pods": 1})
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    first, last = (service.state.find_pod(uid, service.now_us) for uid in ("first", "u199"))
    assert first is not None
    assert last is not None
    assert (last.charges is first.charges, last.high_water is first.high_water) == (True, True)


def test_records_of_unlike_pods_share_nothing() -> None:
    service = Ledger(plan_of(window(60, pods=500, cpu=500), window(3600, pods=500)))
    service.ask("whole")
    late = Booking("payments", "late", ONE, service.now_us - 120 * SECOND_US)
    operations.book(service.state, service.plan, late, service.now_us)
    service.ask("more", {"pods": 1, "requests.cpu": 2})
    records = {uid: service.state.find_pod(uid, service.now_us) for uid in ("whole", "late", "more")}
    charges = {
        uid: [(seconds, cost) for _, seconds, cost in record.charges] for uid, record in records.items() if record
    }
    assert charges == {
        "whole": [(60, ONE), (3600, ONE)],
        "late": [(3600, ONE)],
        "more": [(60, {"pods": 1, "requests.cpu": 2}), (3600, ONE)],
    }


def test_sweep_keeps_charges_that_another_clock_still_counts() -> None:
    service = Ledger(plan_of(window(60, pods=5)))
    service.now_us += HOUR_US
    other = replace(service.plan, fleet=True)
    operations.acquire(service.state, Acquire(other, "payments", "u1", ONE, "user:x"), service.now_us)
    service.ask()
    service.now_us -= HOUR_US
    # That clock is rebased; no request uses the counters of the fleet.
    for waited_us in (0, 10 * SECOND_US, 2 * LONG_US):
        service.now_us += waited_us
        service.ask()
    service.state.sweep(service.now_us)
    assert [use.used for use in operations.snapshot(service.state, other, service.now_us).uses[""]] == [1]


def test_breaker_of_a_service_without_quota_is_kept_for_an_idle_hour() -> None:
    service = Ledger(plan_of(breaker=BREAKER))
    service.trip()
    assert not service.state.sweep(service.now_us + HOUR_US - 1)
    assert service.state.sweep(service.now_us + HOUR_US)


def test_breaker_removed_from_the_policy_returns_in_closed() -> None:
    service = Ledger(plan_of(window(60, pods=5), breaker=BREAKER))
    service.trip()
    with_breaker, service.plan = service.plan, plan_of(window(60, pods=5))
    breaker_operations.tick(service.state, service.plan, service.now_us)
    service.plan = with_breaker
    assert service.read_breaker_state() is State.CLOSED
