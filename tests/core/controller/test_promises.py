"""The promises to users about the order in which their Pods are released."""

from webhook.core.controller.order import ReleaseOrder
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

_MINUTE_US = 60_000_000
_AGEING_US = 10 * _MINUTE_US
_GOLD, _OTHER_GOLD = Member("gold", 0, _AGEING_US), Member("other-gold", 0, _AGEING_US)
_SILVER, _BRONZE = Member("silver", 1, _AGEING_US), Member("bronze", 2, _AGEING_US)


def _build_order(*waiting: WaitingPod) -> ReleaseOrder:
    order = ReleaseOrder([_GOLD, _OTHER_GOLD, _SILVER, _BRONZE])
    for pod in waiting:
        order.add(pod)
    return order


def _build_pods(service: str, count: int, *, since_us: int = 0, pods: int = 1, priority: int = 0) -> list[WaitingPod]:
    return [
        WaitingPod(f"{service}-{pods}-{priority}-{n:03}", service, since_us + n, {"pods": pods}, "", priority)
        for n in range(count)
    ]


def _release(order: ReleaseOrder, count: int, now_us: int) -> list[str]:
    """Return the services of the next `count` Pods, each of which fits."""
    services = []
    for _ in range(count):
        pod = order.take(now_us)
        if pod is None:
            break
        order.confirm(pod.uid)
        services.append(pod.service)
    return services


def test_a_higher_class_is_released_first() -> None:
    order = _build_order(
        *_build_pods("bronze", 1), *_build_pods("silver", 1, since_us=50), *_build_pods("gold", 1, since_us=99)
    )
    assert _release(order, 9, 100) == ["gold", "silver", "bronze"]


def test_services_of_one_class_take_turns() -> None:
    order = _build_order(*_build_pods("gold", 4), *_build_pods("other-gold", 2, since_us=50))
    assert _release(order, 9, 100) == ["gold", "other-gold", "gold", "other-gold", "gold", "gold"]


def test_a_priority_orders_the_pods_of_its_service_only() -> None:
    order = _build_order(
        *_build_pods("bronze", 2, priority=1000),
        *_build_pods("silver", 1),
        *_build_pods("silver", 1, since_us=9, priority=5),
    )
    uids = [order.take(100), order.take(100), order.take(100)]
    assert [pod.uid for pod in uids if pod] == ["silver-1-5-000", "silver-1-0-000", "bronze-1-1000-000"]


def test_pods_that_ageing_lifted_take_a_tenth_of_a_higher_class() -> None:
    order = _build_order(*_build_pods("bronze", 30), *_build_pods("gold", 90, since_us=2 * _AGEING_US))
    services = _release(order, 100, 2 * _AGEING_US + 1000)
    assert services == (["gold"] * 9 + ["bronze"]) * 10


def test_pods_that_are_taken_together_are_released_in_the_order_of_single_ones() -> None:
    """Those that do not fit are put back, the last one first, and change neither turns nor shares."""
    now_us = 2 * _AGEING_US + 1000
    waiting = [pod for name in ("gold", "other-gold") for pod in _build_pods(name, 40, since_us=2 * _AGEING_US)]
    single, together = (_build_order(*waiting, *_build_pods("bronze", 20)) for _ in range(2))
    released: list[str] = []
    for fitting in (13, 1, 0, 16, 9, 16, 5, 16, 10):
        taken = [pod for pod in (together.take(now_us) for _ in range(16)) if pod is not None]
        for pod in taken[:fitting]:
            together.confirm(pod.uid)
            released.append(pod.service)
        for pod in reversed(taken[fitting:]):
            together.put_back(pod.uid, now_us, now_us, Holder.POOL)
    assert released == _release(single, 86, now_us)
    assert released.count("bronze") == 8


def test_ageing_lifts_by_one_class_at_a_time() -> None:
    order = _build_order(*_build_pods("bronze", 2), *_build_pods("gold", 40, since_us=_AGEING_US))
    assert _release(order, 40, _AGEING_US + 1000) == ["gold"] * 40, "after one period it is silver at most"
    assert _release(order, 2, _AGEING_US + 1000) == ["bronze"] * 2


def test_lifted_pods_take_what_the_higher_class_leaves() -> None:
    order = _build_order(*_build_pods("bronze", 5), *_build_pods("silver", 5, since_us=3 * _AGEING_US))
    assert _release(order, 5, 2 * _AGEING_US + 1000) == ["bronze"] * 5, "gold has no Pods, and silver is below it"


def test_a_pod_that_does_not_fit_is_passed_by_smaller_ones() -> None:
    order = _build_order(*_build_pods("gold", 1, pods=8), *_build_pods("gold", 2, since_us=50))
    large = order.take(100)
    assert large is not None
    assert large.cost == {"pods": 8}
    order.put_back(large.uid, 100, 10_000, Holder.SERVICE)
    assert _release(order, 9, 200) == ["gold", "gold"]
    assert order.find_next_us(200) == 10_000
    assert order.take(10_000) == large


def test_room_is_kept_for_a_pod_that_was_passed_for_an_ageing_period() -> None:
    order = _build_order(
        *_build_pods("gold", 1, pods=8), *_build_pods("gold", 2, since_us=50), *_build_pods("silver", 1, since_us=50)
    )
    large = order.take(100)
    assert large is not None
    order.put_back(large.uid, 100, 100 + 2 * _AGEING_US, Holder.SERVICE)
    assert _release(order, 9, 100 + _AGEING_US) == ["silver"], "the room that it needs is its service's"
    assert order.take(100 + 2 * _AGEING_US) == large
    assert order.take(100 + 2 * _AGEING_US) is None, "others of its service wait for the answer of the store"
    order.confirm(large.uid)
    assert _release(order, 9, 100 + 2 * _AGEING_US) == ["gold", "gold"]


def test_room_of_a_pool_is_kept_from_all_of_its_services() -> None:
    order = _build_order(
        *_build_pods("gold", 1, pods=8),
        *_build_pods("other-gold", 2, since_us=50),
        *_build_pods("bronze", 1, since_us=50),
    )
    large = order.take(100)
    assert large is not None
    order.put_back(large.uid, 100, 100 + 2 * _AGEING_US, Holder.POOL)
    assert order.take(100 + _AGEING_US) is None
    order.retry()
    assert order.take(100 + _AGEING_US) == large
    assert order.take(100 + _AGEING_US) is None, "all others wait for the answer of the store"
    order.confirm(large.uid)
    assert _release(order, 9, 100 + _AGEING_US) == ["other-gold", "other-gold", "bronze"]


def test_room_that_is_kept_in_one_scope_is_kept_from_no_other_scope() -> None:
    """With `per: Namespace` each namespace has limits of its own."""
    waiting = [WaitingPod(f"{scope}{n}", "gold", n, {"pods": 1}, scope) for n, scope in enumerate("aab")]
    order = _build_order(*waiting, WaitingPod("a-small", "gold", 9, {"pods": 1, "cpu": 1}, "a"))
    first = order.take(100)
    assert first == waiting[0]
    order.put_back(first.uid, 100, 100 + 3 * _AGEING_US, Holder.SERVICE)
    now_us = 100 + _AGEING_US
    second = order.take(now_us)
    assert second == waiting[2]
    order.confirm(second.uid)
    assert order.take(now_us) is None, "room is kept from the small one of its scope"
    order.retry()
    assert order.take(now_us) == waiting[0]
    order.confirm(first.uid)
    assert _release(order, 9, now_us) == ["gold", "gold"]


def test_a_pod_behind_one_that_keeps_room_keeps_no_room_of_the_pool() -> None:
    large = WaitingPod("large", "gold", 1, {"pods": 8}, "a", priority=1)
    other = WaitingPod("other", "gold", 2, {"pods": 4}, "a")
    order = _build_order(large, other, WaitingPod("b", "other-gold", 50, {"pods": 1}))
    for pod, by in ((large, Holder.SERVICE), (other, Holder.POOL)):
        assert order.take(100) == pod
        order.put_back(pod.uid, 100, 100 + 3 * _AGEING_US, by)
    assert _release(order, 9, 100 + _AGEING_US) == ["other-gold"]
    order.remove(large.uid)
    order.add(WaitingPod("c", "other-gold", 60, {"pods": 1}))
    assert order.take(100 + _AGEING_US) is None, "now it is the first of its scope"


def test_others_pass_a_blocked_pod_since_its_first_try() -> None:
    order = _build_order(*_build_pods("gold", 1, pods=8), *_build_pods("gold", 1, since_us=50))
    for now_us in (100, 100 + _AGEING_US // 2, 99 + _AGEING_US):
        large = order.take(now_us)
        assert large is not None
        order.put_back(large.uid, now_us, now_us + 10, Holder.SERVICE)
    assert order.take(99 + _AGEING_US) is not None, "one microsecond before the end of the period"
    order.add(_build_pods("gold", 2, since_us=60)[1])
    order.retry()
    large = order.take(100 + _AGEING_US)
    assert large is not None
    assert large.cost == {"pods": 8}
    order.put_back(large.uid, 100 + _AGEING_US, 100 + 2 * _AGEING_US, Holder.SERVICE)
    assert order.take(101 + _AGEING_US) is None


def test_a_deleted_pod_leaves_wherever_it_is() -> None:
    order = _build_order(*_build_pods("gold", 3))
    first, second = order.take(100), order.take(100)
    assert first is not None
    assert second is not None
    order.remove(first.uid)
    order.confirm(first.uid)
    order.put_back(first.uid, 100, 200, Holder.SERVICE)
    order.put_back(second.uid, 100, 200, Holder.SERVICE)
    order.remove(second.uid)
    assert first.uid not in order
    assert second.uid not in order
    assert len(order) == 1
    assert _release(order, 9, 300) == ["gold"]
