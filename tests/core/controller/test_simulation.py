"""Hours of an overloaded pool in virtual time: waiting times, the cost of a release, and the limit."""

import os
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from heapq import merge
from statistics import mean
from time import process_time

from tests.core.controller.order_model import OrderModel
from webhook.core.controller.order import ReleaseOrder
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.ledger.window_ring import Ring
from webhook.core.quota import Holder

_SECOND_US = 1_000_000
_MINUTE_US = 60 * _SECOND_US
_IS_SOAK = os.environ.get("PODGATE_TEST_QUEUE") == "soak"
_RANKS = {"gold": 0, "silver": 1, "bronze": 2}


class _Pool:
    """A pool of `hard` Pods a minute, whose queue is drained as soon as there is room."""

    def __init__(self, order: ReleaseOrder | OrderModel, hard: int) -> None:
        self.order, self.hard, self.ring = order, hard, Ring(60)
        self.released: list[tuple[int, WaitingPod]] = []

    def drain(self, now_us: int) -> int | None:
        """Release what fits; return when the next Pod may fit, None if none waits."""
        while (pod := self.order.take(now_us)) is not None:
            used = self.ring.used(now_us).get("pods", 0)
            if used >= self.hard:
                free_us = self.ring.free_at_us(now_us, "pods", self.hard, 1)
                assert free_us is not None
                self.order.put_back(pod.uid, now_us, free_us, Holder.POOL)
                return free_us
            self.ring.add(now_us, {"pods": 1}, now_us)
            self.order.confirm(pod.uid)
            self.released.append((now_us, pod))
        return None


def _generate_arrivals(per_minute: dict[str, int], minutes: int, services: int) -> Iterator[WaitingPod]:
    """Yield Pods at even distances, each class spread over `services`."""

    def generate_class(name: str, rate: int) -> Iterator[tuple[int, WaitingPod]]:
        for number in range(rate * minutes):
            at_us = number * _MINUTE_US // rate
            yield at_us, WaitingPod(f"{name}-{number:06}", f"{name}-{number % services}", at_us, {"pods": 1})

    for _, pod in merge(
        *(generate_class(name, rate) for name, rate in per_minute.items()), key=lambda arrival: arrival[0]
    ):
        yield pod


def _build_members(services: int, ageing_us: int = 10 * _MINUTE_US) -> list[Member]:
    return [Member(f"{name}-{n}", rank, ageing_us) for name, rank in _RANKS.items() for n in range(services)]


def _run(pool: _Pool, pods: Iterator[WaitingPod]) -> dict[str, list[float]]:
    """Feed the Pods, release in between, and return the waiting minutes of the released ones by class."""
    wake_us: int | None = None
    for pod in pods:
        while wake_us is not None and wake_us <= pod.since_us:
            wake_us = pool.drain(wake_us)
        pool.order.add(pod)
        wake_us = pool.drain(pod.since_us) or wake_us
    waits: dict[str, list[float]] = defaultdict(list)
    for at_us, pod in pool.released:
        waits[pod.service.partition("-")[0]].append((at_us - pod.since_us) / _MINUTE_US)
    return waits


def test_two_hours_at_145_percent_starve_nobody() -> None:
    pool = _Pool(ReleaseOrder(_build_members(3)), 100)
    waits = _run(pool, _generate_arrivals({"gold": 95, "silver": 30, "bronze": 20}, 120, 3))
    shown = {name: (len(found), round(mean(found), 1)) for name, found in sorted(waits.items())}
    print(f"released and mean wait in minutes, by class: {shown}")  # noqa: T201  the figures are the result
    assert mean(waits["gold"]) < 4
    assert len(waits["bronze"]) > 200
    times = [at_us for at_us, _ in pool.released]
    for number, at_us in enumerate(times[100:]):
        assert at_us - times[number] >= _MINUTE_US, "never more than 100 in any minute"


def test_the_order_of_a_long_queue_is_the_models() -> None:
    """`make test` has 12 services; `make soak` has 300 services with 100,000 Pods."""
    services, per_minute, minutes, hard = (100, 100, 334, 285) if _IS_SOAK else (4, 30, 12, 45)
    members = _build_members(services, ageing_us=2 * _MINUTE_US)
    pods = list(_generate_arrivals(dict.fromkeys(_RANKS, per_minute), minutes, services))
    pools = [
        _Pool(order, hard)
        for order in (ReleaseOrder(members), OrderModel({member.service: member for member in members}))
    ]
    for pool in pools:
        started = process_time()
        _run(pool, iter(pods))
        us = (process_time() - started) / len(pods) * 1e6
        print(f"{len(pods)} Pods, {len(members)} services: {us:.0f} us of CPU for each")  # noqa: T201  the figure is the result
    assert pools[0].released == pools[1].released
    assert len(pools[0].released) > len(pods) // 3


def test_cost_of_twenty_thousand_waiting_pods() -> None:
    """60 services in 6 pools: all Pods wait at once, and are released as far as there is room."""
    members = {n: _build_members(10, 10 * _MINUTE_US)[n * 10 : n * 10 + 10] for n in range(3)}
    tracemalloc.start()
    orders: list[ReleaseOrder] = []
    for pool in range(6):
        services = [Member(f"p{pool}-{member.service}", member.rank, member.ageing_us) for member in members[pool % 3]]
        order = ReleaseOrder(services)
        for number in range(3334):
            order.add(WaitingPod(f"{pool}-{number}", services[number % 10].service, number, {"pods": 1}))
        orders.append(order)
    pod_bytes = tracemalloc.get_traced_memory()[0] / sum(map(len, orders))
    tracemalloc.stop()
    started = process_time()
    count = 0
    for order in orders:
        while (pod := order.take(_MINUTE_US)) is not None:
            order.confirm(pod.uid)
            count += 1
    seconds = process_time() - started
    print(f"{pod_bytes:.0f} bytes a waiting Pod, {seconds / count * 1e6:.0f} us of CPU a release")  # noqa: T201
    assert count == 6 * 3334
    assert pod_bytes < 2000
