"""Observed Pods reconciled with charges: in any order, the result is the set of live Pods."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.ledger.operations import BREAKER
from tests.core.plans import plan_of, standing, window
from tests.core.watched_pods import MINUTE_US, NOW_US, SECOND_US, WatchedService
from webhook.core.breaker import State
from webhook.core.quota import HOUR_US, Seen

PLAN = plan_of(window(3600, pods=9, cpu=900), standing=standing(pods=9, cpu=900))
SMALL = {"pods": 1, "requests.cpu": 100}
LARGE = {"pods": 1, "requests.cpu": 300}


def test_observing_an_admitted_pod_changes_nothing() -> None:
    service = WatchedService(PLAN)
    service.ask("a", SMALL)
    for _ in range(2):
        assert service.observe("a", SMALL) == Seen()
    assert service.read_usage() == [1, 100, 1, 100]


def test_ended_pod_releases_live_usage_and_no_window_usage() -> None:
    service = WatchedService(PLAN)
    service.ask("a", SMALL)
    assert [service.gone("a") for _ in range(2)] == [Seen(changed=True), Seen()]
    assert service.read_usage() == [1, 100, 0, 0]


# Late charges


def test_uncharged_pod_is_charged_once_as_of_its_creation() -> None:
    service = WatchedService(PLAN)
    created_us = service.now_us
    service.now_us += 30 * MINUTE_US
    seen = [service.observe("a", SMALL, created_at_us=created_us) for _ in range(3)]
    assert seen == [Seen(charged=True, changed=True), Seen(), Seen()]
    assert service.read_usage() == [1, 100, 1, 100]
    assert service.list_overdue() == [], "it was created"
    service.now_us = created_us + 3600 * SECOND_US * 65 // 64
    assert service.read_usage() == [0, 0, 1, 100], "the charge expired as if made at its creation"


def test_uncharged_pod_that_has_ended_is_charged_and_not_live() -> None:
    service = WatchedService(PLAN)
    assert service.observe("a", SMALL, lives=False) == Seen(charged=True)
    assert service.read_usage() == [1, 100, 0, 0]


def test_uncharged_pod_as_old_as_the_record_ttl_is_live_and_not_charged() -> None:
    service = WatchedService(PLAN)
    for uid, age_us in (("old", HOUR_US), ("young", HOUR_US - 1)):
        assert service.observe(uid, SMALL, created_at_us=service.now_us - age_us).charged is (uid == "young")
    assert service.read_usage()[2:] == [2, 200]


def test_pod_with_an_expired_record_is_not_charged_again() -> None:
    service = WatchedService(PLAN)
    service.ask("a", SMALL)
    created_us, service.now_us = service.now_us, service.now_us + HOUR_US
    assert service.observe("a", SMALL, created_at_us=created_us) == Seen()


def test_pod_without_a_creation_time_is_not_charged() -> None:
    service = WatchedService(PLAN)
    assert service.observe("a", SMALL, created_at_us=0) == Seen(changed=True)
    assert service.read_usage() == [0, 0, 1, 100]


def test_pod_created_in_the_future_is_charged_now() -> None:
    service = WatchedService(PLAN)
    assert service.observe("a", SMALL, created_at_us=service.now_us + MINUTE_US).charged
    assert service.read_usage() == [1, 100, 1, 100]


def test_refunded_pod_is_charged_again_when_observed() -> None:
    service = WatchedService(PLAN)
    service.ask("a", SMALL)
    service.refund("a")
    assert service.read_usage() == [0, 0, 0, 0]
    assert [service.observe("a", SMALL).charged for _ in range(2)] == [True, False]
    assert service.read_usage() == [1, 100, 1, 100]


def test_late_charges_exceed_every_limit() -> None:
    service = WatchedService(plan_of(window(3600, pods=0), standing=standing(pods=0)))
    assert service.observe("a").charged
    assert service.read_usage() == [1, 1]


# Unsure sightings


def test_unsure_sighting_is_accepted_only_for_known_pods() -> None:
    service = WatchedService(PLAN)
    assert service.observe("stranger", is_sure=False) == Seen(ignored=True)
    service.ask("known")
    assert service.observe("known", is_sure=False) == Seen()
    service.observe("stands", created_at_us=0)
    assert service.observe("stands", lives=False, created_at_us=0, is_sure=False) == Seen(changed=True)
    assert service.read_usage() == [1, 0, 1, 0]


# Resizes


def test_uncounted_resize_is_charged_above_the_highest_charge() -> None:
    service = WatchedService(PLAN)
    service.ask("a", SMALL)
    assert [service.observe("a", LARGE) for _ in range(2)] == [Seen(raised=True, changed=True), Seen()]
    assert service.read_usage() == [1, 300, 1, 300]
    assert service.observe("a", SMALL) == Seen(changed=True)
    assert service.observe("a", LARGE) == Seen(changed=True), "not above the highest charge"
    assert service.read_usage() == [1, 300, 1, 300]


def test_counted_resize_is_not_charged_again_when_observed() -> None:
    service = WatchedService(PLAN)
    service.ask("a", SMALL)
    service.ask("a", LARGE, resize_from=SMALL)
    assert service.observe("a", LARGE) == Seen()
    assert service.observe("a", SMALL) == Seen(changed=True), "the watch was behind"
    assert service.observe("a", LARGE) == Seen(changed=True)
    assert service.read_usage() == [1, 300, 1, 300]


def test_limit_added_later_charges_no_window_usage() -> None:
    service = WatchedService(PLAN)
    service.ask("a", {"pods": 1})
    assert service.observe("a", SMALL) == Seen(changed=True)
    assert service.read_usage() == [1, 0, 1, 100]


# Refunds


def test_refund_releases_window_and_live_usage_once() -> None:
    service = WatchedService(PLAN)
    for uid in "ab":
        service.ask(uid, SMALL)
    assert [service.refund("a") for _ in range(3)] == [True, False, False]
    assert service.read_usage() == [1, 100, 1, 100]


def test_charge_at_time_zero_is_refunded() -> None:
    service = WatchedService(PLAN)
    service.now_us = 0
    service.ask("a", SMALL)
    assert service.refund("a")
    assert service.read_usage() == [0, 0, 0, 0]


def test_live_usage_is_refunded_after_its_window_has_expired() -> None:
    service = WatchedService(replace(PLAN, windows=(window(1, pods=9),)))
    service.ask("a", SMALL)
    service.now_us += MINUTE_US
    assert not service.refund("a")
    assert service.read_usage() == [0, 0, 0]


def test_live_usage_is_refunded_in_the_scope_that_was_charged() -> None:
    service = WatchedService(PLAN)
    service.ask("a", SMALL)
    service.plan = replace(PLAN, per_namespace=True)
    assert service.refund("a")
    service.plan = PLAN
    assert service.read_usage() == [0, 0, 0, 0]


def test_stop_waiting_refunds_live_usage_only() -> None:
    service = WatchedService(PLAN)
    service.ask("a", SMALL)
    service.stop_waiting("a")
    service.stop_waiting("stranger")
    assert service.read_usage() == [1, 100, 0, 0]
    assert service.observe("a", SMALL) == Seen(changed=True), "it was created after all"
    assert service.read_usage() == [1, 100, 1, 100]


def test_stop_waiting_keeps_the_lease_of_a_probe_and_refund_releases_it() -> None:
    service = WatchedService(replace(PLAN, breaker=replace(BREAKER, probes=1)))
    service.ask("x")
    for uid in ("y", "z"):
        service.plan = replace(service.plan, windows=(window(3600, pods=0),))
        service.ask(uid)
    service.plan = replace(service.plan, windows=PLAN.windows)
    service.now_us += BREAKER.open_for_us
    view = service.ask("probe").breaker
    assert view is not None
    assert (view.state, view.probes_leased) == (State.HALF_OPEN, 1)
    for settle, leased in ((service.stop_waiting, 1), (service.refund, 0)):
        settle("probe")
        view = service.snapshot().breaker
        assert view is not None
        assert view.probes_leased == leased


# Resets


@pytest.mark.parametrize(("seconds", "used"), [(None, [0, 0, 2]), (60, [0, 2, 2]), (3600, [2, 0, 2]), (7, [2, 2, 2])])
def test_reset_clears_windows_and_keeps_live_pods(seconds: int | None, used: list[int]) -> None:
    service = WatchedService(plan_of(window(60, pods=9), window(3600, pods=9), standing=standing(pods=9)))
    for uid in "ab":
        service.ask(uid)
    assert service.reset(service.now_us, seconds) is (seconds != 7)
    assert service.read_usage() == used


def test_reset_is_applied_once_per_timestamp_and_not_for_an_older_one() -> None:
    service = WatchedService(PLAN)
    for number, (at_us, used) in enumerate(((NOW_US, 0), (NOW_US, 1), (NOW_US - 1, 2), (NOW_US + 1, 0))):
        service.ask(f"pod-{number}")
        assert service.reset(at_us) is (used == 0)
        assert service.read_usage()[0] == used


def test_charges_before_a_reset_are_not_refunded() -> None:
    service = WatchedService(PLAN)
    service.ask("a")
    service.reset(service.now_us)
    service.now_us += MINUTE_US
    service.ask("b")
    assert not service.refund("a")
    assert service.refund("b")
    assert service.read_usage()[0] == 0


def test_repeated_reset_keeps_later_charges_of_another_namespace() -> None:
    service = WatchedService(replace(PLAN, per_namespace=True))
    service.ask("a", namespace="x")
    assert service.reset(NOW_US)
    service.now_us += MINUTE_US
    service.ask("b", namespace="y")
    assert not service.reset(NOW_US)
    assert service.read_usage("y") == [1, 0, 1, 0]


# Random operations

COSTS = (SMALL, LARGE, {"pods": 1, "requests.cpu": 0})
UIDS = "abcdef"
operations = st.tuples(
    st.sampled_from(["ask", "ask", "observe", "observe", "gone", "refund", "stop_waiting", "book"]),
    st.sampled_from(UIDS),
    st.sampled_from(COSTS),
    st.sampled_from([0, 0, 1, SECOND_US]),
)


def apply_operation(service: WatchedService, operation: str, uid: str, cost: dict[str, int]) -> None:
    if operation in {"ask", "observe", "book"}:
        getattr(service, operation)(uid, cost)
    else:
        getattr(service, operation)(uid)


@given(st.lists(operations, max_size=40), st.dictionaries(st.sampled_from(UIDS), st.sampled_from(COSTS)), st.randoms())
def test_observations_converge_to_the_set_of_live_pods(
    steps: Sequence[Any], live_pods: dict[str, dict[str, int]], random: Any
) -> None:
    service = WatchedService(PLAN)
    for operation, uid, cost, pause_us in steps:
        service.now_us += pause_us
        apply_operation(service, operation, uid, cost)
    observed_uids = list(UIDS) * 2
    random.shuffle(observed_uids)
    for uid in observed_uids:
        service.observe(uid, live_pods.get(uid, SMALL), lives=uid in live_pods, created_at_us=0)
    assert service.read_usage()[2:] == [len(live_pods), sum(cost["requests.cpu"] for cost in live_pods.values())]
    assert service.list_live() == set(live_pods)
    assert service.list_overdue() == []


@given(st.lists(operations, max_size=40), st.randoms())
def test_every_created_pod_is_charged_exactly_once_and_no_other_pod(steps: Sequence[Any], random: Any) -> None:
    """The windows hold each observed Pod at its highest cost, and each Pod still unseen or no longer waited for."""
    service = WatchedService(plan_of(window(3600, pods=999, cpu=99_999)))
    charged: dict[str, int] = {}
    seen: set[str] = set()
    for operation, uid, cost, pause_us in steps:
        service.now_us += pause_us
        if operation == "refund" and uid in seen:
            continue  # it was created
        match operation:
            case "ask" | "book" if uid not in charged:
                is_new = operation == "ask" or not service.state.was_refunded(uid, service.now_us)
                charged |= {uid: cost["requests.cpu"]} if is_new else {}
            case "observe" | "gone":
                seen.add(uid)
                if operation == "observe":
                    charged[uid] = max(charged.get(uid, 0), cost["requests.cpu"])
            case "refund":
                charged.pop(uid, None)
        apply_operation(service, operation, uid, cost)
        assert service.read_usage() == [len(charged), sum(charged.values())]
    unseen = {pod.uid for pod in service.list_overdue()}
    for uid in random.sample(sorted(unseen), len(unseen)):
        service.refund(uid)
        charged.pop(uid)
    assert service.read_usage() == [len(charged), sum(charged.values())]
