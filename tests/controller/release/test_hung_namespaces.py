"""Namespaces in which the API server does not answer, as while a webhook hangs there: others are released meanwhile."""

import asyncio

import pytest

from tests.controller.release.queue_simulation import SECOND_US, FakeGates, QueueSimulation, settle
from tests.controller.release.release_loop import read_usage
from webhook.adapters.clocks import VirtualClock
from webhook.controller.release.observed_gates import ObservedGates
from webhook.controller.release.removal_slots import RemovalSlots
from webhook.errors import GateError

_SERVICE = """
- name: {name}
  match: {{namespaces: [{name}]}}
  quota: {{windows: [{{window: 64s, hard: {{pods: 900}}}}], whenExceeded: Queue, queue: {{maxPods: 900, maxWait: 1h}}}}
"""


class _HangingGates(FakeGates):
    """No removal in namespaces `hung*` is answered; each ends after five seconds."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.tried: list[str] = []
        self.hangs = True

    async def remove(self, namespace: str, name: str, uid: str) -> bool:
        self.tried.append(uid)
        if self.hangs and namespace.startswith("hung"):
            ends_us = self._clock.now_us() + 5 * SECOND_US
            while self._clock.now_us() < ends_us:  # noqa: ASYNC110  the test advances the clock
                await asyncio.sleep(0)
            raise GateError(f"{namespace}/{name}", "cannot release: no answer in time")
        return await super().remove(namespace, name, uid)


async def hang(namespaces: int) -> QueueSimulation:
    """Let 40 Pods of each of some services hang, and 600 Pods of another one wait."""
    names = [f"hung{number}" for number in range(namespaces)]
    simulation = QueueSimulation("".join(_SERVICE.format(name=name) for name in (*names, "well")))
    simulation.gates = _HangingGates(simulation.clock)
    simulation.lead()
    for name in names:
        await simulation.create(*(f"{name}-{number}" for number in range(40)), namespace=name)
    await simulation.create(*(f"well-{number}" for number in range(600)), namespace="well")
    return simulation


@pytest.mark.parametrize(("namespaces", "seconds", "fewest"), [(1, 3, 500), (3, 3, 500), (40, 8, 500)])
async def test_namespaces_that_hang_take_no_turn_from_another_one(namespaces: int, seconds: int, fewest: int) -> None:
    """More of them than there are slots do once: until the first calls end."""
    simulation = await hang(namespaces)
    leading = asyncio.create_task(_lead(simulation))
    for _ in range(20 * seconds):
        simulation.clock.set(simulation.clock.now_us() + SECOND_US // 20)
        await settle()
    leading.cancel()
    simulation.loop._removal.attempts.cancel()
    assert len(simulation.gates.ungated) >= fewest


async def test_a_namespace_that_hangs_is_tried_by_one_pod_at_a_time_and_released_when_it_answers() -> None:
    simulation = await hang(1)
    gates = simulation.gates
    assert isinstance(gates, _HangingGates)
    await simulation.run_settled(8)
    gates.tried.clear()
    await simulation.run_settled(20)
    assert 3 <= len([uid for uid in gates.tried if uid.startswith("hung")]) <= 5
    gates.hangs = False
    await simulation.run_settled(75)
    assert len(gates.ungated) == 640


async def test_pods_without_a_slot_are_not_charged_for_long() -> None:
    """Their charges would leave their windows before they run."""
    simulation = await hang(1)
    for _ in range(90):
        await simulation.run_settled(1)
        used = await read_usage(simulation, "hung0")
        assert used <= 16 + 1, "those that wait for a slot, and the one that has it"
    assert (simulation.waiting["hung0"], simulation.waiting["well"]) == (40, 0)


async def _lead(simulation: QueueSimulation) -> None:
    while True:
        await simulation.loop.round()
        await asyncio.sleep(0)


def make_slots(clock: VirtualClock) -> RemovalSlots:
    return RemovalSlots(ObservedGates(FakeGates(), clock.now_us), clock.now_us)


async def test_a_namespace_may_hold_as_many_slots_as_it_leaves_free() -> None:
    slots, held, given_up = make_slots(VirtualClock()), list[str](), list[str]()

    async def take(namespace: str) -> None:
        (held if await slots.acquire(namespace) else given_up).append(namespace)

    waiting = [asyncio.create_task(take(namespace)) for namespace in "abcd" for _ in range(40)]
    await asyncio.sleep(0)
    assert held == ["a", "b", "c", "d"], "one each until something is answered there"
    for namespace in "abc":
        slots.release(namespace, is_answered=True)
        await asyncio.sleep(0)
    assert [held.count(namespace) for namespace in "abcd"] == [1 + 15, 1 + 8, 1 + 4, 1]
    slots.release("d", is_answered=False)
    await asyncio.sleep(0)
    assert (held.count("d"), given_up) == (1, ["d"] * 39)
    for task in waiting:
        task.cancel()


async def test_a_slow_api_server_is_asked_concurrently() -> None:
    """Each of its answers takes more than a second, as those of one with much work may."""
    clock = VirtualClock()
    slots = make_slots(clock)
    first, second = (asyncio.create_task(slots.acquire("a")) for _ in range(2))
    await first
    slots.release("a", is_answered=True)
    await second
    clock.set(clock.now_us() + 3 * SECOND_US // 2)
    third = asyncio.create_task(slots.acquire("a"))
    await asyncio.sleep(0)
    assert third.done()


async def test_a_namespace_hangs_only_after_a_while() -> None:
    """Else its service would be passed over at each first call, and a lower class be released before it."""
    clock = VirtualClock()
    slots = make_slots(clock)
    assert await slots.acquire("a")
    for passed_us, needs_ping, hangs in ((0, False, False), (SECOND_US // 2, False, False), (SECOND_US, True, True)):
        clock.set(clock.now_us() + passed_us)
        assert (slots.needs_ping(), slots.hangs("a")) == (needs_ping, False)
        slots._gates.ping()
        await settle()
        assert slots.hangs("a") == hangs, "as the API server answers"
    slots.release("a", is_answered=True)
    assert not slots.hangs("a")


async def test_a_namespace_that_did_not_answer_once_is_forgotten() -> None:
    """Else each new namespace would be taken to hang until its first answer, and its service be passed over."""
    clock = VirtualClock(SECOND_US)
    slots = make_slots(clock)
    for gone in ("gone", "gone, too"):
        assert await slots.acquire(gone)
        slots.release(gone, is_answered=False)
    assert await slots.acquire("new")
    assert (slots.hangs("gone"), slots.hangs("new")) == (True, True)
    clock.set(clock.now_us() + 10 * SECOND_US)
    slots.release("new", is_answered=True)
    assert await slots.acquire("newer")
    assert (slots.hangs("gone"), slots.hangs("newer")) == (False, False)
    assert not slots._unanswered_us


async def test_a_namespace_that_is_tried_again_and_again_hangs() -> None:
    clock = VirtualClock(SECOND_US)
    slots = make_slots(clock)
    for _ in range(20):
        assert await slots.acquire("hung")
        clock.set(clock.now_us() + 5 * SECOND_US)
        slots.release("hung", is_answered=False)
        clock.set(clock.now_us() + SECOND_US)
        assert slots.hangs("hung")
