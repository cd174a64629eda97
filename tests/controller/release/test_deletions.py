"""Deletions of Pods that have waited for `maxWait`: no release waits for one."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.controller.release.queue_simulation import SECOND_US, FakeGates, QueueSimulation
from webhook.adapters.clocks import VirtualClock
from webhook.errors import GateError

_SERVICE = """
- name: {name}
  match: {{namespaces: [{name}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: {hard}}}}}], whenExceeded: Queue, queue: {{maxWait: {wait}}}}}
"""
_SERVICES = _SERVICE.format(name="old", hard=1, wait="30s") + _SERVICE.format(name="well", hard=900, wait="9h")


class _SlowGates(FakeGates):
    """Each deletion takes some seconds, and has no answer unless `answers`."""

    def __init__(self, clock: VirtualClock, seconds: float, *, answers: bool) -> None:
        super().__init__()
        self._clock = clock
        self.seconds = seconds
        self.answers = answers
        self.running = self.running_max = 0

    async def delete(self, namespace: str, name: str, uid: str) -> bool:
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        ends_us = self._clock.now_us() + self.seconds * SECOND_US
        while self._clock.now_us() < ends_us:  # noqa: ASYNC110  the test advances the clock
            await asyncio.sleep(0)
        self.running -= 1
        if not self.answers:
            raise GateError(f"{namespace}/{name}", "cannot delete: no answer in time")
        return await super().delete(namespace, name, uid)


async def _expire(seconds: float, *, answers: bool = True, rate: int = 300) -> tuple[QueueSimulation, _SlowGates]:
    """Let 200 Pods expire, and 200 others wait for which there is room."""
    simulation = QueueSimulation(_SERVICES, rate=rate)
    simulation.gates = gates = _SlowGates(simulation.clock, seconds, answers=answers)
    simulation.lead()
    await simulation.create(*(f"old{number:03}" for number in range(201)), namespace="old")
    await simulation.run_rounds(29)
    await simulation.create(*(f"well{number:03}" for number in range(200)), namespace="well")
    return simulation, gates


def _count_released(simulation: QueueSimulation) -> int:
    return sum(uid.startswith("well") for uid in simulation.gates.ungated)


@pytest.mark.parametrize(("seconds", "answers"), [(5, False), (1, True), (0, True)])
async def test_no_release_waits_for_deletions(seconds: float, *, answers: bool) -> None:
    simulation, _ = await _expire(seconds, answers=answers)
    await simulation.run_rounds(6)
    assert _count_released(simulation) == 200


@pytest.mark.parametrize("rate", [10, 40])
async def test_deletions_have_half_of_the_rate_while_others_are_released(rate: int) -> None:
    simulation, gates = await _expire(0, rate=rate)
    await simulation.run_rounds(2)
    before = _count_released(simulation), len(gates.deleted)
    await simulation.run_rounds(4)
    grown = _count_released(simulation) - before[0], len(gates.deleted) - before[1]
    assert 3.6 * rate <= sum(grown) <= 4.4 * rate
    assert abs(grown[0] - grown[1]) <= 0.4 * rate
    await simulation.run_rounds(400 / rate)
    assert len(gates.deleted) == 200


async def test_a_namespace_that_gives_no_answer_has_one_deletion_at_a_time() -> None:
    simulation, gates = await _expire(5, answers=False)
    await simulation.run_rounds(60)
    assert gates.running_max == 1
    assert simulation.waiting["old"] >= 183, "all but those of which the deletion waits"
    gates.answers, gates.seconds = True, 0
    await simulation.run_rounds(60)
    assert (len(gates.deleted), simulation.expired) == (200, ["old"] * 200)
    assert simulation.waiting == {"old": 0, "well": 0}


async def test_a_pod_that_changes_while_it_is_deleted_is_deleted_once() -> None:
    simulation, gates = await _expire(5)
    await simulation.run_rounds(2)
    assert gates.running
    for pod in (*gates.pods.values(),):
        labels = replace(pod.metadata, labels={"changed": "yes"})
        gates.pods[pod.metadata.uid] = replace(pod, metadata=labels)
    simulation.list_page(*gates.pods)
    await simulation.run_rounds(120)
    assert len(gates.deleted) == len(set(gates.deleted)) == 200


async def test_a_pod_that_is_gone_before_the_answer_to_its_deletion_waits_no_more() -> None:
    simulation, gates = await _expire(5, answers=False)
    for uid in [uid for uid in gates.pods if uid.startswith("old")]:
        if uid != "old200":
            simulation.delete(uid)
    await simulation.run_rounds(2)
    assert gates.running == 1
    simulation.delete("old200")
    await simulation.run_rounds(30)
    assert gates.running == 0
    assert simulation.expired == ["old"]
    assert simulation.waiting == {"old": 0, "well": 0}
