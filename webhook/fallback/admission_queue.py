"""AdmissionQueue: decides whether a new Pod has to wait, and registers it if it does."""

from collections import Counter, deque
from collections.abc import Mapping

from msgspec.structs import replace

from webhook.core.admission.queueing import find_obstacle
from webhook.core.quota import Acquire, Cost, CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.fallback.overload_monitor import OverloadMonitor
from webhook.ports import Clock, CounterStore, QueueIndex

_EXPECTED_US = 250_000
"""How long a Pod that was not gated counts as expected: longer than its way to the validating call."""


class AdmissionQueue:
    """A `ports.PodQueue` on the counters and the index of waiting Pods.

    Pods that this replica has just let through ungated are counted as if they were charged, for a moment: of many Pods
    that are created at once, those that would be denied wait.

    While the store gives no answer, and during an overload, gated Pods wait unregistered, at most `maxPods` more of a
    service: until the store answers, or the overload ends.
    """

    def __init__(self, store: CounterStore, index: QueueIndex, clock: Clock, monitor: OverloadMonitor) -> None:
        self._store = store
        self._index = index
        self._clock = clock
        self._monitor = monitor
        self._expected: dict[str, deque[tuple[int, Cost]]] = {}
        self._unregistered = Counter[tuple[str, str]]()

    def find_overload(self, plan: CounterPlan) -> str:
        return self._monitor.find_reason_to_gate() if plan.queue is not None and plan.queue.on_overload else ""

    async def find_reason_to_wait(self, asked: Acquire, *, is_dry_run: bool) -> str:
        plan = asked.plan
        if plan.queue is not None and plan.queue.pause is not None:
            return "the queue is paused"
        if plan.queue is not None and plan.queue.only_on_overload:
            if self._monitor.store_trouble():  # perhaps of another part of the store: then this one answers
                await self._index.count(plan)
            return ""
        if (count := await self._index.count(plan)) and (plan.queue is None or plan.queue.waits_in_turn):
            return f"{count} Pods of the service wait"
        expected = self._list_expected(plan.service)
        cost = _sum_costs(asked.cost, *(cost for _, cost in expected))
        reason = find_obstacle(plan, await self._store.acquire(replace(asked, peek=True, cost=cost)))
        if not reason and not is_dry_run:
            expected.append((self._clock.now_us() + _EXPECTED_US, asked.cost))
        return reason

    async def enqueue(self, asked: Acquire) -> bool:
        plan = asked.plan
        if not (self._monitor.is_busy and plan.queue is not None and plan.queue.on_overload):
            try:
                is_registered = await self._index.register(plan, asked.uid)
            except StoreUnavailableError:
                pass  # it waits: the controller registers it
            else:
                del self._unregistered[plan.key]
                return is_registered
        self._unregistered[plan.key] += 1
        return self._unregistered[plan.key] <= plan.waiting_max

    def _list_expected(self, service: str) -> deque[tuple[int, Cost]]:
        expected, now_us = self._expected.setdefault(service, deque()), self._clock.now_us()
        while expected and expected[0][0] <= now_us:
            expected.popleft()
        return expected


def _sum_costs(*costs: Cost) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for cost in costs:
        for resource, amount in cost.items():
            total[resource] = total.get(resource, 0) + amount
    return total
