"""What the next Pod costs, in opcodes, where no two waiting Pods have the same priority, cost or scope."""

import pytest

from tests.bench.opcode_counts import count_opcodes
from webhook.core.controller.order import ReleaseOrder
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

_MINUTE_US = 60_000_000
_MEMBERS = [Member("gold", 0, 10 * _MINUTE_US), Member("bronze", 1, 10 * _MINUTE_US)]


def _build_order(service: str, count: int) -> ReleaseOrder:
    """Return an order in which younger Pods have the higher priority, and each Pod is alone in its lane."""
    order = ReleaseOrder(_MEMBERS)
    for number in range(count):
        cost = {"pods": 1, "requests.cpu": number % 7}
        order.add(WaitingPod(f"u{number:05}", service, number, cost, f"n{number % 11}", number))
    return order


def _try_all(order: ReleaseOrder, now_us: int, until_us: int) -> int:
    """Try each Pod in vain; return how many there were."""
    count = 0
    while (pod := order.take(now_us)) is not None:
        order.put_back(pod.uid, now_us, until_us, Holder.SERVICE)
        order.find_next_us(now_us)
        count += 1
    return count


def _release_all(order: ReleaseOrder, now_us: int) -> int:
    count = 0
    while (pod := order.take(now_us)) is not None:
        order.confirm(pod.uid)
        order.find_next_us(now_us)
        count += 1
    return count


@pytest.mark.parametrize(
    ("service", "age_us"), [("gold", _MINUTE_US), ("bronze", _MINUTE_US), ("bronze", 11 * _MINUTE_US)]
)
def test_a_pod_costs_about_as_much_among_many_different_ones_as_among_few(service: str, age_us: int) -> None:
    costs: dict[int, list[float]] = {}
    for count in (80, 640):
        order = _build_order(service, count)
        tried, number = count_opcodes(lambda order=order: _try_all(order, age_us, age_us + 1000))
        assert number == count
        again, number = count_opcodes(
            lambda order=order: (order.retry(), _try_all(order, age_us + 1, age_us + 1000))[1]
        )
        assert number == count
        released, number = count_opcodes(lambda order=order: _release_all(order, age_us + 1000))
        assert number == count
        costs[count] = [opcodes / count for opcodes in (tried, again, released)]
    for few, many in zip(costs[80], costs[640], strict=True):
        assert 0 < many < 1.5 * few, costs


def test_a_pod_costs_about_as_much_among_many_that_keep_room_as_among_few() -> None:
    """Each lane keeps room in its scope from another one."""
    costs: dict[int, float] = {}
    for count in (80, 640):
        order = ReleaseOrder(_MEMBERS)
        for number in range(count):
            for cpu in (1, 2):
                cost = {"pods": 1, "requests.cpu": cpu}
                order.add(WaitingPod(f"u{number:05}-{cpu}", "gold", number, cost, f"n{number}", 2 - cpu))
        assert _try_all(order, 1000, 2000) == 2 * count
        order.retry()
        opcodes, number = count_opcodes(lambda order=order: _try_all(order, 11 * _MINUTE_US, 12 * _MINUTE_US))
        assert number == count, "those behind are not tried"
        costs[count] = opcodes / count
    assert 0 < costs[640] < 1.5 * costs[80], costs


def test_a_new_pod_costs_about_as_much_among_many_different_ones_as_among_few() -> None:
    few, many = (count_opcodes(lambda count=count: _build_order("gold", count))[0] / count for count in (80, 640))
    assert 0 < many < 1.5 * few
