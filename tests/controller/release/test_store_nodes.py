"""Nodes of the store of which one gives no answer: its services wait, and those of other nodes go on."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from tests.controller.release.group_simulation import member_of
from tests.controller.release.queue_simulation import FakeIndex, ForgetfulStore, QueueSimulation
from webhook.adapters.clocks import VirtualClock
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt
from webhook.errors import StoreUnavailableError

_SERVICE = """
- name: {name}
  match: {{namespaces: [{name}]}}
  quota: {{windows: [{{window: 20s, hard: {{pods: 5}}}}], whenExceeded: Queue, queue: {{maxPods: 900, maxWait: 9h}}}}
"""


class _Node:
    """The node that has the counters and the index of service `away`."""

    is_down = False

    def ask(self, plan: CounterPlan) -> None:
        if self.is_down and plan.service == "away":
            raise StoreUnavailableError("no answer")


class _NodeStore(ForgetfulStore):
    def __init__(self, clock: VirtualClock, node: _Node) -> None:
        super().__init__(clock)
        self._node = node

    async def acquire(self, request: Acquire) -> Receipt:
        self._node.ask(request.plan)
        return await super().acquire(request)

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        self._node.ask(plan)
        return await super().refund(plan, uid)

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        self._node.ask(plan)
        return await super().book(plan, bookings)


class _NodeIndex(FakeIndex):
    def __init__(self, clock: VirtualClock, node: _Node) -> None:
        super().__init__(clock)
        self._node = node

    async def restore(self, plan: CounterPlan, times_us: Mapping[str, int]) -> None:
        self._node.ask(plan)
        await super().restore(plan, times_us)

    async def list_waiting(self, plan: CounterPlan) -> Mapping[str, int]:
        self._node.ask(plan)
        return await super().list_waiting(plan)

    async def forget(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        self._node.ask(plan)
        await super().forget(plan, uids)


async def _begin(node: _Node) -> QueueSimulation:
    """Let Pods of both services wait, of which five each were released."""
    simulation = QueueSimulation(_SERVICE.format(name="away") + _SERVICE.format(name="near"))
    simulation.store, simulation.index = _NodeStore(simulation.clock, node), _NodeIndex(simulation.clock, node)
    simulation.lead()
    for name in ("away", "near"):
        await simulation.create(*(f"{name}{number:02}" for number in range(30)), namespace=name, labels={})
    await simulation.run_rounds(1)
    return simulation


def _list_all(simulation: QueueSimulation) -> None:
    simulation.list_all()


def _change(simulation: QueueSimulation) -> None:
    simulation.list_page("away29")


def _delete(simulation: QueueSimulation) -> None:
    simulation.delete("away29")


def _release(simulation: QueueSimulation) -> None:
    simulation.wanted = ("away29",)


def _lose(simulation: QueueSimulation) -> None:
    simulation.loop.on_lost()


def _vacate(simulation: QueueSimulation) -> None:
    """Let the share of a vanished member of a group end."""
    pod = simulation.loop._releaser.pods.get("away29")
    assert pod is not None
    simulation.loop.groups.keep_share(simulation.policy.plans["away"], replace(pod, group=member_of("train", 2)))


@pytest.mark.parametrize("happen", [_list_all, _change, _delete, _release, _lose, _vacate])
async def test_services_of_other_nodes_are_released(happen: Callable[[QueueSimulation], None]) -> None:
    node = _Node()
    simulation = await _begin(node)
    node.is_down = True
    happen(simulation)
    await simulation.run_rounds(65)
    released = simulation.gates.ungated
    assert [sum(uid.startswith(name) for uid in released) for name in ("away", "near")] == [5, 20]
    node.is_down = False
    await simulation.run_rounds(20)
    assert sum(uid.startswith("away") for uid in released) >= 10


async def test_new_pods_of_other_nodes_are_queued() -> None:
    node = _Node()
    simulation = await _begin(node)
    node.is_down = True
    for name in ("away", "near"):
        await simulation.create(f"{name}-new", namespace=name, labels={})
    await simulation.run_rounds(1)
    assert simulation.waiting == {"away": 26, "near": 26}
    assert [*simulation.loop._unqueued] == ["away-new"]
    node.is_down = False
    await simulation.run_rounds(1)
    assert not simulation.loop._unqueued
    assert simulation.waiting == {"away": 26, "near": 26}
