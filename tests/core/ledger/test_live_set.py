"""The live Pods of a service: correct sums, and no admission above `hard` and its surge."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.core.watched_pods import MINUTE_US, NOW_US, ONE, SECOND_US, WatchedService
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.ledger.live_set import IDLE_US, KNOWN_US, SURGE_US, LiveSet
from webhook.core.policy_fields import Mode, StandingQuota
from webhook.core.quota import CounterPlan, DeniedBy, Holder, StandingPlan, Use

PODS_3 = plan_of(standing=standing(pods=3))
SURGING = plan_of(standing=standing(2, pods=3))


def quantities(**hard: str) -> dict[str, Quantity]:
    return {name.replace("_", "."): Quantity.parse(amount) for name, amount in hard.items()}


def is_denied(service: WatchedService, uid: str, cost: dict[str, int] = ONE, **more: Any) -> bool:
    return service.ask(uid, cost, **more).refused is DeniedBy.QUOTA


def fill(service: WatchedService, count: int) -> WatchedService:
    for number in range(count):
        assert service.ask(f"pod-{number}").charged
        service.observe(f"pod-{number}")
    return service


# Limits


def test_live_pod_limit_denies_until_a_pod_ends() -> None:
    service = fill(WatchedService(PODS_3), 3)
    (use,) = service.ask("late").over
    assert use == Use("standing", "pods", 3, 3, 1, 0, Holder.STANDING)
    service.gone("pod-1")
    assert service.ask("late").used == (3,)


def test_admitted_pods_count_before_they_are_observed() -> None:
    service = WatchedService(PODS_3)
    assert [is_denied(service, uid) for uid in "abcd"] == [False, False, False, True]
    assert service.read_usage() == [3]


def test_repeated_uid_counts_once() -> None:
    service = WatchedService(PODS_3)
    for _ in range(3):
        service.ask("a")
    assert service.read_usage() == [1]
    assert (service.ask("b").used, service.read_usage()) == ((2,), [2])


def test_pod_counts_toward_each_limited_resource_or_toward_none() -> None:
    service = WatchedService(plan_of(window(60, pods=9), standing=standing(pods=9, memory=100)))
    service.ask("a", {"pods": 1, "requests.memory": 60, "requests.cpu": 5})
    receipt = service.ask("b", {"pods": 1, "requests.memory": 41})
    assert [(use.resource, use.used, use.hard, use.asked) for use in receipt.over] == [("memory", 60, 100, 41)]
    assert service.read_usage() == [1, 1, 60], "all or nothing, the window too"


def test_live_pods_count_per_namespace_if_the_plan_says_so() -> None:
    service = WatchedService(replace(PODS_3, per_namespace=True, standing=standing(pods=1)))
    assert [is_denied(service, uid, namespace=uid[0]) for uid in ("x1", "y1", "x2")] == [False, False, True]
    assert (service.read_usage("x"), service.read_usage("y")) == ([1], [1])


def test_request_above_hard_and_surge_is_denied_without_free_at() -> None:
    service = WatchedService(plan_of(standing=standing(50, memory=100)))
    assert service.ask("a", {"pods": 1, "requests.memory": 150}).charged
    for requested, free_at_us in ((150, 0), (151, None)):
        receipt = service.ask("b", {"pods": 1, "requests.memory": requested})
        assert (receipt.refused, receipt.free_at_us) == (DeniedBy.QUOTA, free_at_us)


def test_exceeded_limit_admits_pods_that_do_not_increase_its_usage() -> None:
    service = WatchedService(plan_of(standing=standing(memory=100)))
    service.book("a", {"pods": 1, "requests.memory": 150})
    assert service.ask("b", {"pods": 1, "requests.memory": 0}).charged
    shrunk = {"pods": 1, "requests.memory": 120}
    assert service.ask("a", shrunk, resize_from={"requests.memory": 150}).refused is None
    service.observe("a", shrunk)
    assert service.read_usage() == [120]


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT])
def test_unenforced_limit_is_exceeded_and_reported(mode: Mode) -> None:
    service = fill(WatchedService(replace(PODS_3, quota_mode=mode)), 3)
    receipt = service.ask("late")
    assert (receipt.refused, receipt.would_refuse, receipt.used) == (None, (DeniedBy.QUOTA,), (4,))
    assert [use.of for use in receipt.over] == [Holder.STANDING]


def test_lowered_limit_keeps_live_pods_and_raised_limit_admits_at_once() -> None:
    service = fill(WatchedService(PODS_3), 3)
    service.plan = replace(PODS_3, standing=standing(pods=1))
    assert is_denied(service, "late")
    assert service.read_usage() == [3]
    service.plan = replace(PODS_3, standing=standing(pods=4))
    assert not is_denied(service, "late")


def test_peeks_and_denied_pods_do_not_count() -> None:
    service = fill(WatchedService(PODS_3), 2)
    assert service.ask("dry", peek=True).refused is None
    service.ask("dry", peek=True)
    assert service.read_usage() == [2]
    service.plan = replace(PODS_3, windows=(window(60, pods=0),))
    assert is_denied(service, "late")
    assert service.read_usage() == [0, 2]


# Start and end of enforcement


def test_limit_is_not_enforced_before_the_first_complete_list() -> None:
    service = WatchedService(PODS_3, is_known=False)
    assert not service.snapshot().is_standing_known
    assert [is_denied(service, uid) for uid in "abcde"] == [False] * 5
    service.mark_complete()
    assert service.snapshot().is_standing_known
    assert (is_denied(service, "f"), service.read_usage()) == (True, [5])


def test_limit_is_enforced_for_ten_minutes_after_the_last_complete_list() -> None:
    service = fill(WatchedService(PODS_3), 3)
    service.now_us += KNOWN_US - 1
    assert is_denied(service, "late")
    service.now_us += 1
    assert not service.snapshot().is_standing_known
    assert not is_denied(service, "late")
    service.mark_complete()
    assert is_denied(service, "later")


def test_complete_list_of_one_service_does_not_confirm_another() -> None:
    service = WatchedService(PODS_3)
    service.plan = replace(PODS_3, service="other")
    assert not service.snapshot().is_standing_known


def test_live_pods_are_kept_for_days_while_complete_lists_arrive() -> None:
    service = fill(WatchedService(PODS_3), 3)
    for _ in range(9):
        service.now_us += IDLE_US // 3
        service.mark_complete()
        service.state.sweep(service.now_us)
    assert is_denied(service, "late")
    service.now_us += IDLE_US + KNOWN_US
    service.state.sweep(service.now_us)
    assert service.read_usage() == [0], "no complete list confirmed them"


# Surge


def test_surge_admits_pods_above_hard_during_a_rollout() -> None:
    service = fill(WatchedService(SURGING), 3)
    assert [is_denied(service, uid) for uid in ("new-1", "new-2", "new-3")] == [False, False, True]
    (use,) = service.ask("new-3").over
    assert (use.used, use.hard, use.surge) == (5, 3, 2)
    service.gone("pod-0")
    assert not is_denied(service, "new-3")


def test_surge_closes_ten_minutes_after_the_sum_was_last_within_hard() -> None:
    service = fill(WatchedService(SURGING), 3)
    service.ask("over")
    service.now_us += SURGE_US - 1
    service.mark_complete()
    assert [use.surge for use in service.snapshot().uses[""]] == [2]
    assert service.ask("peek", peek=True).refused is None
    service.now_us += 1
    assert [use.surge for use in service.snapshot().uses[""]] == [0]
    (use,) = service.ask("late").over
    assert (use.used, use.hard, use.surge) == (4, 3, 0)


def test_further_pods_above_hard_do_not_extend_surge() -> None:
    service = fill(WatchedService(SURGING), 4)
    service.now_us += SURGE_US - 1
    service.mark_complete()
    assert service.ask("second").charged
    service.gone("second")
    service.now_us += 1
    assert is_denied(service, "third")


def test_surge_opens_again_as_soon_as_the_sum_is_within_hard() -> None:
    service = fill(WatchedService(SURGING), 4)
    service.now_us += SURGE_US
    service.mark_complete()
    assert is_denied(service, "late")
    service.gone("pod-0")
    assert [is_denied(service, uid) for uid in ("new-1", "new-2", "new-3")] == [False, False, True]
    service.now_us += SURGE_US - 1
    service.gone("new-1")
    service.mark_complete()
    assert not is_denied(service, "new-4"), "its ten minutes began with new-1"


def test_surge_of_one_resource_does_not_open_another() -> None:
    plan = plan_of(standing=StandingPlan(window(0, pods=1, memory=100).limits, (1, 0)))
    service = WatchedService(plan)
    service.ask("a", {"pods": 1, "requests.memory": 100})
    assert [use.resource for use in service.ask("b", {"pods": 1, "requests.memory": 1}).over] == ["memory"]
    assert service.ask("c").charged


@pytest.mark.parametrize(
    ("surge", "hard", "expected"),
    [
        ("25%", {"pods": "200", "cpu": "3"}, (50, 750)),
        ("25%", {"pods": "3"}, (1,)),  # rounded up
        ("0%", {"pods": "3"}, (0,)),
        (2, {"pods": "3"}, (2,)),
        (2, {"pods": "10", "cpu": "1"}, (2, 200)),  # two more of what ten Pods take
        (1, {"memory": "10", "pods": "3"}, (4, 1)),
    ],
)
def test_surge_is_a_percentage_of_each_limit_or_a_number_of_pods(
    surge: str | int, hard: dict[str, str], expected: tuple[int, ...]
) -> None:
    assert StandingPlan.from_standing(StandingQuota(hard=quantities(**hard), surge=surge)).surge == expected


# Resizes


def test_resize_takes_increases_and_frees_decreases_when_seen() -> None:
    service = WatchedService(plan_of(standing=standing(cpu=500)))
    service.ask("a", {"pods": 1, "requests.cpu": 300})
    old, new = {"pods": 1, "requests.cpu": 300}, {"pods": 1, "requests.cpu": 500}
    assert service.ask("a", new, resize_from=old).used == (500,)
    assert is_denied(service, "a", {"pods": 1, "requests.cpu": 501}, resize_from=new)
    small = {"pods": 1, "requests.cpu": 100}
    assert service.ask("a", small, resize_from=new).used == (500,)
    service.observe("a", small, live_cost=new)
    assert is_denied(service, "b", {"pods": 1, "requests.cpu": 1})
    service.observe("a", small)
    assert service.ask("b", {"pods": 1, "requests.cpu": 400}).charged


def test_live_usage_follows_a_sighting_and_windows_keep_the_maximum() -> None:
    service = WatchedService(plan_of(window(60, cpu=900), standing=standing(cpu=900)))
    small, large = {"pods": 1, "requests.cpu": 100}, {"pods": 1, "requests.cpu": 300}
    service.ask("a", small)
    for new, old, used in ((large, small, [300, 300]), (small, large, [300, 100]), (large, small, [300, 300])):
        service.ask("a", new, resize_from=old)
        assert service.read_usage() == [300, 300]
        service.observe("a", new)
        assert service.read_usage() == used


# Random operations

LIMITS = {"pods": 4, "requests.cpu": 500}
SURGES = {"pods": 2, "requests.cpu": 100}
ANY = plan_of(standing=StandingPlan(window(0, **LIMITS).limits, tuple(SURGES.values())))
costs = st.fixed_dictionaries({"pods": st.just(1)}, optional={"requests.cpu": st.sampled_from([0, 60, 200, 601])})
operations = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "resize", "observe", "gone", "refund", "stop_waiting", "peek"]),
    st.sampled_from("abcdefghij"),
    costs,
    st.sampled_from([0, SECOND_US, MINUTE_US, SURGE_US - 1, SURGE_US]),
)


@given(st.lists(operations, max_size=60))
def test_sums_equal_live_pods_and_admissions_stay_within_hard_and_surge(steps: list[Any]) -> None:
    service, over_since_us, previous = WatchedService(ANY), dict.fromkeys(LIMITS, NOW_US), dict.fromkeys(LIMITS, 0)
    for operation, uid, cost, pause_us in steps:
        service.now_us += pause_us
        service.mark_complete()
        match operation:
            case "ask" | "peek":
                receipt = service.ask(uid, cost, peek=operation == "peek")
                is_admitted = receipt.charged
            case "resize":
                is_known = uid in read_charges(service)  # an unknown Pod is live already
                is_admitted = service.ask(uid, cost, resize_from=ONE).refused is None and is_known
            case "observe":
                service.observe(uid, cost)
                is_admitted = False
            case _:
                getattr(service, operation)(uid)
                is_admitted = False
        sums = dict(zip(LIMITS, service.read_usage(), strict=True))
        assert sums == {name: sum(held.get(name, 0) for held in read_charges(service).values()) for name in LIMITS}
        for name, hard in LIMITS.items():
            if is_admitted and sums[name] > previous[name]:
                is_open = previous[name] <= hard or service.now_us - over_since_us[name] < SURGE_US
                assert sums[name] <= hard + (SURGES[name] if is_open else 0), name
            if sums[name] <= hard or previous[name] <= hard:
                over_since_us[name] = service.now_us
        previous = sums


def read_charges(service: WatchedService) -> dict[str, Any]:
    """Return the charge of each live Pod."""
    live_pods = service.state.live_pods
    return {uid: held for uid in "abcdefghij" if (held := live_pods.find_held(service.plan, "", uid)) is not None}


@given(st.lists(st.tuples(st.sampled_from("abc"), costs | st.none()), max_size=30), st.sampled_from([ANY, PODS_3]))
def test_sums_of_a_live_set_follow_changed_limits(steps: list[Any], later: CounterPlan) -> None:
    live, held = LiveSet(), dict[str, dict[str, int]]()
    for number, (uid, cost) in enumerate(steps):
        plan = (ANY if number < len(steps) // 2 else later).standing
        assert plan is not None
        if cost is None:
            assert live.remove(uid, number) is (held.pop(uid, None) is not None)
        else:
            amounts = dict(plan.select_amounts(cost))
            assert live.put(plan, uid, cost, number) is (held.get(uid) != amounts)
            held[uid] = amounts
        assert ANY.standing is not None
        sums = [sum(amounts.get(name, 0) for amounts in held.values()) for name in LIMITS]
        assert [use.used for use in live.list_uses(ANY.standing, number)] == sums
        assert dict(live.items()) == held
