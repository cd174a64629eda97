"""Pods not seen yet and live Pods, and how long each is remembered."""

from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.core.watched_pods import MINUTE_US, ONE, SECOND_US, Watched
from webhook.core.ledger.live_pods import WAITED_US
from webhook.core.ledger.live_set import IDLE_US
from webhook.core.ledger.tag_state import LONG_US
from webhook.core.quota import HOUR_US, UnseenPod

PLAN = plan_of(window(3600, pods=9), standing=standing(pods=9))


def waited_for(service: Watched, age_us: int = 0) -> list[str]:
    return [waiting.uid for waiting in service.overdue(age_us)]


def test_whoever_was_admitted_is_waited_for_with_name_and_age_the_oldest_first() -> None:
    service = Watched(PLAN)
    for uid in ("b", "a"):
        service.ask(uid)
        service.now_us += MINUTE_US
    service.ask("c", namespace="yard")
    assert service.overdue(MINUTE_US) == [
        UnseenPod("b", "shop", "b-pod", 2 * MINUTE_US, "payment-api"),
        UnseenPod("a", "shop", "a-pod", MINUTE_US, "payment-api"),
    ]
    assert waited_for(service) == ["b", "a", "c"]
    assert [waiting.uid for waiting in service.overdue(most=2)] == ["b", "a"]


def test_who_was_only_judged_or_refused_is_not_waited_for() -> None:
    service = Watched(plan_of(window(60, pods=0)))
    service.ask("refused")
    service.ask("dry", peek=True)
    assert waited_for(service) == []


def test_a_service_without_any_limit_waits_for_its_pods_too() -> None:
    service = Watched(plan_of())
    service.ask("a")
    assert waited_for(service) == ["a"]


def test_services_that_share_a_tag_are_asked_together() -> None:
    service = Watched(PLAN)
    service.ask("a")
    service.plan = replace(PLAN, service="web")
    service.ask("b")
    assert waited_for(service) == ["a", "b"]


def test_whoever_is_seen_refunded_or_let_be_is_waited_for_no_longer() -> None:
    service = Watched(PLAN)
    for uid in "abcd":
        service.ask(uid)
    service.observe("a")
    service.refund("b")
    service.stop_waiting("c")
    assert waited_for(service) == ["d"]


def test_asking_again_does_not_make_one_wait_again() -> None:
    service = Watched(PLAN)
    service.ask("a")
    service.now_us += MINUTE_US
    service.ask("a")
    assert waited_for(service, MINUTE_US) == ["a"]
    service.observe("a")
    service.ask("a")
    assert waited_for(service) == []


def test_a_pod_booked_afterwards_is_waited_for_since_it_came() -> None:
    service = Watched(PLAN)
    service.book("a", at_us=service.now_us - MINUTE_US)
    assert service.overdue(MINUTE_US) == [UnseenPod("a", "shop", "a-pod", MINUTE_US, "payment-api")]


def test_a_pod_is_waited_for_an_hour_and_counts_as_seen_afterwards() -> None:
    service = Watched(replace(PLAN, remember_us=2 * HOUR_US))
    service.ask("a")
    service.now_us += WAITED_US - 1
    assert (waited_for(service), service.live()) == (["a"], set())
    service.now_us += 1
    assert (waited_for(service), service.live()) == ([], {"a"})
    service.state.sweep(service.now_us + LONG_US)
    assert (waited_for(service), service.live()) == ([], {"a"})


def test_of_a_pod_whose_record_is_lost_only_the_uid_is_known() -> None:
    service = Watched(replace(PLAN, remember_us=SECOND_US))
    service.ask("a")
    service.now_us += MINUTE_US
    assert service.overdue() == [UnseenPod("a", "", "", MINUTE_US)]


def test_only_those_that_have_been_seen_are_shown_as_live() -> None:
    service = Watched(PLAN)
    for uid in "abc":
        service.ask(uid)
    service.observe("b")
    assert (service.live(), service.used()) == ({"b"}, [3, 3])


def test_live_pods_are_shown_where_they_live() -> None:
    service = Watched(replace(PLAN, per_namespace=True))
    for namespace in ("x", "y"):
        service.ask(f"in-{namespace}", namespace=namespace)
        service.observe(f"in-{namespace}", namespace=namespace)
    assert sorted(service.state.live_pods.scopes(service.plan)) == ["x", "y"]
    assert service.live("x") == {"in-x"}
    service.gone("in-x", namespace="x")
    assert sorted(service.state.live_pods.scopes(service.plan)) == ["y"]
    assert sorted(service.state.live_pods.scopes(replace(service.plan, service="web"))) == []


def test_without_a_limit_on_live_pods_nobody_stands_and_no_place_is_asked_for() -> None:
    service = Watched(plan_of(window(60, pods=9)))
    service.ask("a")
    assert not service.observe("a").changed
    assert (service.live(), list(service.state.live_pods.scopes(service.plan))) == (set(), [])


def test_what_nobody_comes_for_any_more_is_swept_away() -> None:
    service = Watched(replace(PLAN, windows=(window(60, pods=9),)))
    service.ask("a")
    service.observe("b", ONE)
    assert not service.state.sweep(service.now_us + WAITED_US + LONG_US), "they live"
    assert not service.state.sweep(service.now_us + IDLE_US + LONG_US - 1)
    assert service.state.sweep(service.now_us + IDLE_US + LONG_US)
    assert service.used() == [0, 0]
