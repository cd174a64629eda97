"""Policies that change while Pods wait: each Pod is released by the rules that it has then."""

from tests.controller.controller_simulation import compile_policy
from tests.controller.release.group_simulation import SERVICES, GroupSimulation, member_of
from tests.controller.release.queue_simulation import WEB, QueueSimulation
from tests.controller.release.release_loop import read_usage


async def test_pods_whose_service_was_away_for_a_moment_wait_and_are_charged() -> None:
    simulation = QueueSimulation(WEB)
    await simulation.create(*(f"p{number:02}" for number in range(40)))
    await simulation.run_rounds()
    await _lose_service(simulation, WEB)
    released = len(simulation.gates.ungated)
    assert released < 40
    await simulation.run_rounds(55)
    assert len(simulation.gates.ungated) == released
    await simulation.run_rounds(15)
    assert len(simulation.gates.ungated) == released + 2
    assert await read_usage(simulation) == 2


async def test_members_whose_service_was_away_for_a_moment_are_released_together() -> None:
    simulation = GroupSimulation()
    await simulation.join(member_of("train", 3), "a", "b")
    await simulation.create(*(f"p{number:02}" for number in range(40)))
    await simulation.run_rounds()
    await _lose_service(simulation, SERVICES)
    await simulation.run_rounds(1)
    assert not {"a", "b"} & set(simulation.gates.ungated)
    await simulation.join(member_of("train", 3), "c")
    await simulation.run_rounds(70)
    assert {"a", "b", "c"} <= set(simulation.gates.ungated)


async def _lose_service(simulation: QueueSimulation, services: str) -> None:
    """Let a policy without the service be in force for one round, and then the former one again."""
    simulation.policy = compile_policy(services.replace("[shop]", "[elsewhere]").replace("name: web", "name: other"))
    simulation.list_all()
    await simulation.run_rounds()
    simulation.policy = compile_policy(services)
    simulation.list_all()
