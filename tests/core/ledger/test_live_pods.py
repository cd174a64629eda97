"""Unseen Pods and live Pods, and how long each is kept."""

from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.core.watched_pods import MINUTE_US, ONE, SECOND_US, WatchedService
from webhook.core.ledger.live_pods import WAITED_US, LivePods
from webhook.core.ledger.live_set import IDLE_US
from webhook.core.ledger.tag_state import LONG_US
from webhook.core.quota import HOUR_US, UnseenPod

PLAN = plan_of(window(3600, pods=9), standing=standing(pods=9))


def list_unseen_uids(service: WatchedService, age_us: int = 0) -> list[str]:
    return [pod.uid for pod in service.list_overdue(age_us)]


def test_unseen_pods_are_listed_with_name_and_age_oldest_first() -> None:
    service = WatchedService(PLAN)
    for uid in ("b", "a"):
        service.ask(uid)
        service.now_us += MINUTE_US
    service.ask("c", namespace="yard")
    assert service.list_overdue(MINUTE_US) == [
        UnseenPod("b", "shop", "b-pod", 2 * MINUTE_US, "payment-api"),
        UnseenPod("a", "shop", "a-pod", MINUTE_US, "payment-api"),
    ]
    assert list_unseen_uids(service) == ["b", "a", "c"]
    assert [pod.uid for pod in service.list_overdue(most=2)] == ["b", "a"]


def test_denied_and_dry_run_pods_are_not_listed_as_unseen() -> None:
    service = WatchedService(plan_of(window(60, pods=0)))
    service.ask("refused")
    service.ask("dry", peek=True)
    assert list_unseen_uids(service) == []


def test_service_without_limits_lists_its_unseen_pods() -> None:
    service = WatchedService(plan_of())
    service.ask("a")
    assert list_unseen_uids(service) == ["a"]


def test_unseen_pods_of_services_with_one_tag_are_listed_together() -> None:
    service = WatchedService(PLAN)
    service.ask("a")
    service.plan = replace(PLAN, service="web")
    service.ask("b")
    assert list_unseen_uids(service) == ["a", "b"]


def test_observed_refunded_and_stopped_pods_are_no_longer_unseen() -> None:
    service = WatchedService(PLAN)
    for uid in "abcd":
        service.ask(uid)
    service.observe("a")
    service.refund("b")
    service.stop_waiting("c")
    assert list_unseen_uids(service) == ["d"]


def test_repeated_acquire_does_not_restart_the_wait_for_a_pod() -> None:
    service = WatchedService(PLAN)
    service.ask("a")
    service.now_us += MINUTE_US
    service.ask("a")
    assert list_unseen_uids(service, MINUTE_US) == ["a"]
    service.observe("a")
    service.ask("a")
    assert list_unseen_uids(service) == []


def test_booked_pod_is_unseen_since_its_admission() -> None:
    service = WatchedService(PLAN)
    service.book("a", at_us=service.now_us - MINUTE_US)
    assert service.list_overdue(MINUTE_US) == [UnseenPod("a", "shop", "a-pod", MINUTE_US, "payment-api")]


def test_unseen_pod_counts_as_live_after_an_hour() -> None:
    service = WatchedService(replace(PLAN, remember_us=2 * HOUR_US))
    service.ask("a")
    service.now_us += WAITED_US - 1
    assert (list_unseen_uids(service), service.list_live()) == (["a"], set())
    service.now_us += 1
    assert (list_unseen_uids(service), service.list_live()) == ([], {"a"})
    service.state.sweep(service.now_us + LONG_US)
    assert (list_unseen_uids(service), service.list_live()) == ([], {"a"})


def test_unseen_pod_without_a_record_is_listed_by_uid_only() -> None:
    service = WatchedService(replace(PLAN, remember_us=SECOND_US))
    service.ask("a")
    service.now_us += MINUTE_US
    assert service.list_overdue() == [UnseenPod("a", "", "", MINUTE_US)]


def test_only_observed_pods_are_listed_as_live() -> None:
    service = WatchedService(PLAN)
    for uid in "abc":
        service.ask(uid)
    service.observe("b")
    assert (service.list_live(), service.read_usage()) == ({"b"}, [3, 3])


def test_live_pods_are_listed_in_their_namespace() -> None:
    service = WatchedService(replace(PLAN, per_namespace=True))
    for namespace in ("x", "y"):
        service.ask(f"in-{namespace}", namespace=namespace)
        service.observe(f"in-{namespace}", namespace=namespace)
    assert sorted(service.state.live_pods.list_scopes(service.plan)) == ["x", "y"]
    assert service.list_live("x") == {"in-x"}
    service.gone("in-x", namespace="x")
    assert sorted(service.state.live_pods.list_scopes(service.plan)) == ["y"]
    assert sorted(service.state.live_pods.list_scopes(replace(service.plan, service="web"))) == []


def test_no_live_pods_and_scopes_are_listed_without_a_live_pod_limit() -> None:
    service = WatchedService(plan_of(window(60, pods=9)))
    service.ask("a")
    assert not service.observe("a").changed
    assert (service.list_live(), list(service.state.live_pods.list_scopes(service.plan))) == (set(), [])


def test_idle_live_set_is_swept() -> None:
    service = WatchedService(replace(PLAN, windows=(window(60, pods=9),)))
    service.ask("a")
    service.observe("b", ONE)
    assert not service.state.sweep(service.now_us + WAITED_US + LONG_US), "both Pods are live"
    assert not service.state.sweep(service.now_us + IDLE_US + LONG_US - 1)
    assert service.state.sweep(service.now_us + IDLE_US + LONG_US)
    assert service.read_usage() == [0, 0]


def test_sweep_ends_waits_in_the_order_in_which_they_were_written() -> None:
    live = LivePods()
    for uid, at_us in (("a", 1), ("b", 2), ("late", 1), ("a", 3)):
        live.wait_for(uid, at_us)

    def list_waiting(now_us: int) -> list[str]:
        live.sweep(now_us + WAITED_US)
        return list(live._waiting)

    assert list_waiting(0) == ["b", "late", "a"]
    assert list_waiting(1) == ["b", "late", "a"], "found late, because it was written late"
    assert list_waiting(2) == ["a"]
    assert list_waiting(3) == []
