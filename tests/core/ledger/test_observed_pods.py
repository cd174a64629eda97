"""Observed Pods reconciled with charges: in any order, the result is the set of live Pods."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.ledger.test_operations import BREAKER
from tests.core.plans import plan_of, standing, window
from tests.core.watched_pods import MINUTE_US, NOW_US, SECOND_US, Watched
from webhook.core.breaker import State
from webhook.core.quota import HOUR_US, Seen

PLAN = plan_of(window(3600, pods=9, cpu=900), standing=standing(pods=9, cpu=900))
SMALL = {"pods": 1, "requests.cpu": 100}
LARGE = {"pods": 1, "requests.cpu": 300}


def test_a_pod_that_was_admitted_and_is_seen_changes_nothing() -> None:
    service = Watched(PLAN)
    service.ask("a", SMALL)
    for _ in range(2):
        assert service.observe("a", SMALL) == Seen()
    assert service.used() == [1, 100, 1, 100]


def test_the_end_of_a_pod_frees_its_place_and_not_its_windows() -> None:
    service = Watched(PLAN)
    service.ask("a", SMALL)
    assert [service.gone("a") for _ in range(2)] == [Seen(changed=True), Seen()]
    assert service.used() == [1, 100, 0, 0]


# Charged afterwards


def test_a_pod_that_nobody_charged_is_charged_once_at_its_creation() -> None:
    service = Watched(PLAN)
    created_us = service.now_us
    service.now_us += 30 * MINUTE_US
    seen = [service.observe("a", SMALL, created_at_us=created_us) for _ in range(3)]
    assert seen == [Seen(charged=True, changed=True), Seen(), Seen()]
    assert service.used() == [1, 100, 1, 100]
    assert service.overdue() == [], "it came to be"
    service.now_us = created_us + 3600 * SECOND_US * 65 // 64
    assert service.used() == [0, 0, 1, 100], "it left the window as if it had been charged when it came"


def test_one_that_ended_meanwhile_is_charged_and_stands_no_more() -> None:
    service = Watched(PLAN)
    assert service.observe("a", SMALL, lives=False) == Seen(charged=True)
    assert service.used() == [1, 100, 0, 0]


def test_one_that_is_as_old_as_a_record_lives_is_not_charged_and_stands() -> None:
    service = Watched(PLAN)
    for uid, age_us in (("old", HOUR_US), ("young", HOUR_US - 1)):
        assert service.observe(uid, SMALL, created_at_us=service.now_us - age_us).charged is (uid == "young")
    assert service.used()[2:] == [2, 200]


def test_whose_record_was_forgotten_is_not_charged_a_second_time() -> None:
    service = Watched(PLAN)
    service.ask("a", SMALL)
    created_us, service.now_us = service.now_us, service.now_us + HOUR_US
    assert service.observe("a", SMALL, created_at_us=created_us) == Seen()


def test_without_a_time_nothing_is_charged() -> None:
    service = Watched(PLAN)
    assert service.observe("a", SMALL, created_at_us=0) == Seen(changed=True)
    assert service.used() == [0, 0, 1, 100]


def test_a_creation_that_the_store_has_not_reached_counts_now() -> None:
    service = Watched(PLAN)
    assert service.observe("a", SMALL, created_at_us=service.now_us + MINUTE_US).charged
    assert service.used() == [1, 100, 1, 100]


def test_a_pod_refunded_too_soon_is_charged_again() -> None:
    service = Watched(PLAN)
    service.ask("a", SMALL)
    service.refund("a")
    assert service.used() == [0, 0, 0, 0]
    assert [service.observe("a", SMALL).charged for _ in range(2)] == [True, False]
    assert service.used() == [1, 100, 1, 100]


def test_charged_afterwards_goes_past_every_limit() -> None:
    service = Watched(plan_of(window(3600, pods=0), standing=standing(pods=0)))
    assert service.observe("a").charged
    assert service.used() == [1, 1]


# Whose Pod it is


def test_a_pod_of_which_nobody_is_sure_is_accepted_only_where_the_store_knows_it() -> None:
    service = Watched(PLAN)
    assert service.observe("stranger", is_sure=False) == Seen(ignored=True)
    service.ask("known")
    assert service.observe("known", is_sure=False) == Seen()
    service.observe("stands", created_at_us=0)
    assert service.observe("stands", lives=False, created_at_us=0, is_sure=False) == Seen(changed=True)
    assert service.used() == [1, 0, 1, 0]


# Resizes


def test_a_resize_that_nobody_counted_is_charged_above_the_most_that_was_ever_charged() -> None:
    service = Watched(PLAN)
    service.ask("a", SMALL)
    assert [service.observe("a", LARGE) for _ in range(2)] == [Seen(raised=True, changed=True), Seen()]
    assert service.used() == [1, 300, 1, 300]
    assert service.observe("a", SMALL) == Seen(changed=True)
    assert service.observe("a", LARGE) == Seen(changed=True), "up to where it was"
    assert service.used() == [1, 300, 1, 300]


def test_a_resize_that_was_counted_is_not_counted_again_when_it_is_seen() -> None:
    service = Watched(PLAN)
    service.ask("a", SMALL)
    service.ask("a", LARGE, resize_from=SMALL)
    assert service.observe("a", LARGE) == Seen()
    assert service.observe("a", SMALL) == Seen(changed=True), "the watch was behind"
    assert service.observe("a", LARGE) == Seen(changed=True)
    assert service.used() == [1, 300, 1, 300]


def test_a_limit_that_came_later_raises_nothing() -> None:
    service = Watched(PLAN)
    service.ask("a", {"pods": 1})
    assert service.observe("a", SMALL) == Seen(changed=True)
    assert service.used() == [1, 0, 1, 100]


# Refunds


def test_a_refund_gives_windows_and_place_back_once() -> None:
    service = Watched(PLAN)
    for uid in "ab":
        service.ask(uid, SMALL)
    assert [service.refund("a") for _ in range(3)] == [True, False, False]
    assert service.used() == [1, 100, 1, 100]


def test_what_was_charged_at_the_very_beginning_of_time_is_refunded_too() -> None:
    service = Watched(PLAN)
    service.now_us = 0
    service.ask("a", SMALL)
    assert service.refund("a")
    assert service.used() == [0, 0, 0, 0]


def test_a_place_is_refunded_where_the_windows_have_left_too() -> None:
    service = Watched(replace(PLAN, windows=(window(1, pods=9),)))
    service.ask("a", SMALL)
    service.now_us += MINUTE_US
    assert not service.refund("a")
    assert service.used() == [0, 0, 0]


def test_a_place_is_refunded_where_the_pod_took_it_even_if_namespaces_count_apart_since() -> None:
    service = Watched(PLAN)
    service.ask("a", SMALL)
    service.plan = replace(PLAN, per_namespace=True)
    assert service.refund("a")
    service.plan = PLAN
    assert service.used() == [0, 0, 0, 0]


def test_stop_waiting_refunds_the_place_alone() -> None:
    service = Watched(PLAN)
    service.ask("a", SMALL)
    service.stop_waiting("a")
    service.stop_waiting("stranger")
    assert service.used() == [1, 100, 0, 0]
    assert service.observe("a", SMALL) == Seen(changed=True), "it came after all"
    assert service.used() == [1, 100, 1, 100]


def test_a_probe_no_longer_waited_for_keeps_its_lease_and_a_refunded_one_gives_it_back() -> None:
    service = Watched(replace(PLAN, breaker=replace(BREAKER, probes=1)))
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
def test_a_reset_forgets_windows_and_not_who_lives(seconds: int | None, used: list[int]) -> None:
    service = Watched(plan_of(window(60, pods=9), window(3600, pods=9), standing=standing(pods=9)))
    for uid in "ab":
        service.ask(uid)
    assert service.reset(service.now_us, seconds) is (seconds != 7)
    assert service.used() == used


def test_a_reset_is_done_once_for_each_moment_and_not_for_an_older_one() -> None:
    service = Watched(PLAN)
    for number, (at_us, used) in enumerate(((NOW_US, 0), (NOW_US, 1), (NOW_US - 1, 2), (NOW_US + 1, 0))):
        service.ask(f"pod-{number}")
        assert service.reset(at_us) is (used == 0)
        assert service.used()[0] == used


def test_what_was_forgotten_is_not_refunded() -> None:
    service = Watched(PLAN)
    service.ask("a")
    service.reset(service.now_us)
    service.now_us += MINUTE_US
    service.ask("b")
    assert not service.refund("a")
    assert service.refund("b")
    assert service.used()[0] == 0


def test_a_reset_that_nobody_remembers_takes_nothing_that_came_long_after_its_moment() -> None:
    service = Watched(replace(PLAN, per_namespace=True))
    service.ask("a", namespace="x")
    assert service.reset(NOW_US)
    service.now_us += MINUTE_US
    service.ask("b", namespace="y")
    assert not service.reset(NOW_US)
    assert service.used("y") == [1, 0, 1, 0]


# Whatever comes

COSTS = (SMALL, LARGE, {"pods": 1, "requests.cpu": 0})
UIDS = "abcdef"
operations = st.tuples(
    st.sampled_from(["ask", "ask", "observe", "observe", "gone", "refund", "stop_waiting", "book"]),
    st.sampled_from(UIDS),
    st.sampled_from(COSTS),
    st.sampled_from([0, 0, 1, SECOND_US]),
)


def do(service: Watched, operation: str, uid: str, cost: dict[str, int]) -> None:
    if operation in {"ask", "observe", "book"}:
        getattr(service, operation)(uid, cost)
    else:
        getattr(service, operation)(uid)


@given(st.lists(operations, max_size=40), st.dictionaries(st.sampled_from(UIDS), st.sampled_from(COSTS)), st.randoms())
def test_whatever_happened_the_watch_makes_it_the_set_of_pods_that_live(
    walk: Sequence[Any], alive: dict[str, dict[str, int]], random: Any
) -> None:
    service = Watched(PLAN)
    for operation, uid, cost, pause_us in walk:
        service.now_us += pause_us
        do(service, operation, uid, cost)
    told = list(UIDS) * 2
    random.shuffle(told)
    for uid in told:
        service.observe(uid, alive.get(uid, SMALL), lives=uid in alive, created_at_us=0)
    assert service.used()[2:] == [len(alive), sum(cost["requests.cpu"] for cost in alive.values())]
    assert service.live() == set(alive)
    assert service.overdue() == []


@given(st.lists(operations, max_size=40), st.randoms())
def test_every_pod_that_was_created_is_charged_exactly_once_and_every_other_one_not_at_all(
    walk: Sequence[Any], random: Any
) -> None:
    """The windows hold whoever was seen, at the most that was seen of it, and whoever is still waited for or let be."""
    service = Watched(plan_of(window(3600, pods=999, cpu=99_999)))
    charged: dict[str, int] = {}
    seen: set[str] = set()
    for operation, uid, cost, pause_us in walk:
        service.now_us += pause_us
        if operation == "refund" and uid in seen:
            continue  # it came to be
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
        do(service, operation, uid, cost)
        assert service.used() == [len(charged), sum(charged.values())]
    waiting = {one.uid for one in service.overdue()}
    for uid in random.sample(sorted(waiting), len(waiting)):
        service.refund(uid)
        charged.pop(uid)
    assert service.used() == [len(charged), sum(charged.values())]
