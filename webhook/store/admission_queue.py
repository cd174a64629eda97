"""AdmissionQueue: decides whether a new Pod has to wait, and registers it if it does."""

from collections import deque
from collections.abc import Mapping

from msgspec.structs import replace

from webhook.core.admission.queueing import obstacle
from webhook.core.quota import Acquire, Cost
from webhook.ports import Clock, CounterStore, QueueIndex

_EXPECTED_US = 250_000
"""How long a Pod that was not gated counts as expected: longer than its way to the validating call."""


class AdmissionQueue:
    """A `ports.PodQueue` on the counters and the index of waiting Pods.

    Pods that this replica has just let through ungated are counted as if they were charged, for a moment: of many Pods
    that are created at once, those that would be denied wait.
    """

    def __init__(self, store: CounterStore, index: QueueIndex, clock: Clock) -> None:
        self._store = store
        self._index = index
        self._clock = clock
        self._expected: dict[str, deque[tuple[int, Cost]]] = {}

    async def reason_to_wait(self, asked: Acquire, *, is_dry_run: bool) -> str:
        plan = asked.plan
        if plan.queue is not None and plan.queue.pause is not None:
            return "the queue is paused"
        if count := await self._index.count(plan):
            return f"{count} Pods of the service wait"
        expected = self._expected_of(plan.service)
        cost = _sum(asked.cost, *(cost for _, cost in expected))
        reason = obstacle(plan, await self._store.acquire(replace(asked, peek=True, cost=cost)))
        if not reason and not is_dry_run:
            expected.append((self._clock.now_us() + _EXPECTED_US, asked.cost))
        return reason

    async def enqueue(self, asked: Acquire) -> bool:
        return await self._index.register(asked.plan, asked.uid)

    def _expected_of(self, service: str) -> deque[tuple[int, Cost]]:
        expected, now_us = self._expected.setdefault(service, deque()), self._clock.now_us()
        while expected and expected[0][0] <= now_us:
            expected.popleft()
        return expected


def _sum(*costs: Cost) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for cost in costs:
        for resource, amount in cost.items():
            total[resource] = total.get(resource, 0) + amount
    return total
