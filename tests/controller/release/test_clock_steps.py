"""Steps of the store's clock: a server whose clock is stepped, or a failover to one whose clock is elsewhere.

The leader's clock and the API server's go on; waiting Pods are retried and expire by them.
"""

from pathlib import Path

import pytest

from tests.controller.release.queue_simulation import SECOND_US, WEB, FakeIndex, ForgetfulStore, QueueSimulation
from tests.controller.stepped_clock import SteppedClock
from webhook.controller import release

STEP_SECONDS = 1800
ROOMY = WEB.replace("pods: 2", "pods: 9")
FULL = WEB.replace("pods: 2", "pods: 0")


class SteppedSimulation(QueueSimulation):
    """A queue whose store has another clock than the leader and the cluster. Servers register Pods by `registers`."""

    def __init__(self, services: str = WEB) -> None:
        super().__init__(services)
        self.stored, self.registers = SteppedClock(self.clock), SteppedClock(self.clock)
        self.store, self.index = ForgetfulStore(self.stored), FakeIndex(self.registers)
        self.lead()

    def step(self, seconds: int) -> None:
        self.stored.ahead_us = self.registers.ahead_us = seconds * SECOND_US


async def test_a_removal_without_an_answer_is_repeated_after_a_step_back() -> None:
    simulation = SteppedSimulation(ROOMY)
    simulation.step(STEP_SECONDS)
    await simulation.run_rounds(2)
    simulation.step(0)
    simulation.gates.trouble = 1
    await simulation.create("a")
    await simulation.run_rounds(3)
    assert simulation.gates.ungated == ["a"]


async def test_room_that_ends_without_an_event_is_found_after_a_step_back() -> None:
    simulation = SteppedSimulation()
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(2)
    simulation.step(-STEP_SECONDS)
    await simulation.store.refund(simulation.policy.plans["web"], "a")
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == ["a", "b", "c"]


async def test_nothing_is_released_for_ten_seconds_after_a_failover_to_a_server_that_is_behind() -> None:
    simulation = SteppedSimulation(ROOMY)
    await simulation.run_rounds(1)
    simulation.store.lose()
    simulation.step(-STEP_SECONDS)
    await simulation.create("a")
    await simulation.run_rounds(9)
    assert simulation.gates.ungated == []
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == ["a"]


@pytest.mark.parametrize("seconds", [STEP_SECONDS, -STEP_SECONDS])
async def test_waiting_pods_expire_at_their_time_while_the_clock_is_stepped(seconds: int) -> None:
    simulation = SteppedSimulation(FULL)
    await simulation.create("a")
    await simulation.run_rounds(60)
    simulation.step(seconds)
    await simulation.create("b")
    await simulation.run_rounds(530)
    assert simulation.gates.deleted == []
    await simulation.run_rounds(20)
    assert simulation.gates.deleted == ["a"]
    await simulation.run_rounds(60)
    assert simulation.gates.deleted == ["a", "b"]


async def test_a_new_pod_is_not_expired_while_some_answers_have_the_time_of_a_step_that_is_over() -> None:
    simulation = SteppedSimulation(FULL)
    simulation.stored.ahead_us = STEP_SECONDS * SECOND_US
    await simulation.create("a")
    await simulation.run_rounds(590)
    assert simulation.gates.deleted == []
    await simulation.run_rounds(20)
    assert simulation.gates.deleted == ["a"]


async def test_a_new_leader_lets_no_pod_expire_before_its_time_because_of_a_step() -> None:
    simulation = SteppedSimulation(FULL)
    await simulation.create("a")
    await simulation.run_rounds(60)
    simulation.step(STEP_SECONDS)
    simulation.lead()
    await simulation.run_rounds(530)
    assert simulation.gates.deleted == []
    await simulation.run_rounds(20)
    assert simulation.gates.deleted == ["a"]


async def test_the_age_of_a_pod_does_not_jump_when_the_clock_is_stepped() -> None:
    simulation = SteppedSimulation(FULL)
    await simulation.create("a")
    await simulation.run_rounds(3)
    simulation.step(STEP_SECONDS)
    await simulation.run_rounds(2)
    assert simulation.depths[0].oldest_seconds in {4, 5}


async def test_what_the_index_has_lost_is_registered_again_by_the_clock_of_the_store() -> None:
    simulation = SteppedSimulation(FULL)
    simulation.step(STEP_SECONDS)
    await simulation.create("a")
    registered_us = simulation.index.times["web"]["a"]
    await simulation.run_rounds(1)
    simulation.index.times.clear()
    await simulation.run_rounds(15)
    assert simulation.index.times == {"web": {"a": registered_us}}


async def test_a_pod_that_is_registered_before_the_leader_knows_of_a_step_is_as_old_as_its_creation() -> None:
    simulation = SteppedSimulation(FULL)
    await simulation.create("a")
    await simulation.run_rounds(1)
    simulation.registers.ahead_us = STEP_SECONDS * SECOND_US
    await simulation.create("b")
    await simulation.run_rounds(2)
    simulation.step(STEP_SECONDS)
    await simulation.create("c")
    await simulation.run_rounds(2)
    assert [place.pod.waiting.uid for place in simulation.loop.queue.list_places()] == ["a", "b", "c"]
    await simulation.run_rounds(605)
    assert simulation.gates.deleted == ["a", "b", "c"]


async def test_a_new_leader_whose_clock_is_a_little_behind_keeps_the_order_of_registration() -> None:
    simulation = SteppedSimulation(FULL)
    for uid in ("c", "b", "a"):
        await simulation.create(uid)
        await simulation.run_rounds(0.1)
    behind = SteppedClock(simulation.clock)
    behind.ahead_us = -2 * SECOND_US
    simulation.own_clock = behind
    simulation.lead()
    await simulation.run_rounds(1)
    assert [place.pod.waiting.uid for place in simulation.loop.queue.list_places()] == ["c", "b", "a"]


async def test_a_pod_that_no_server_has_registered_is_registered_as_of_its_creation_by_the_clock_of_the_store() -> None:
    simulation = SteppedSimulation(FULL)
    simulation.step(-STEP_SECONDS)
    await simulation.create("a")
    simulation.index.times.clear()
    created_us = simulation.stored.now_us()
    await simulation.run_rounds(5)
    assert simulation.index.times == {"web": {"a": created_us}}
    assert simulation.depths[0].oldest_seconds in {4, 5}


def test_only_bookings_and_translations_have_the_time_of_the_store() -> None:
    modules = Path(release.__path__[0]).glob("*.py")
    asking = {module.stem for module in modules if "store.now_us" in module.read_text()}
    assert asking == {"loop", "queue_time", "releaser"}
