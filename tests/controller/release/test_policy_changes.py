"""Policies that change while Pods wait: each Pod is released by the rules that it has then."""

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import compile_policy
from tests.controller.release.group_simulation import SERVICES, GroupSimulation, member_of
from tests.controller.release.manual_queue import PAUSE, apply_override
from tests.controller.release.queue_simulation import WEB, QueueSimulation
from tests.controller.release.release_loop import read_usage
from webhook.core.kubernetes.quantity import Quantity


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


_DOUBLED = replace(PAUSE, queue=None, quota_factor=Quantity.parse("2"))
_MOVED = WEB.replace("[shop]", "[elsewhere]") + WEB.replace("name: web", "name: shop")


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        (WEB.replace("hard: {pods: 2}", 'hard: {requests.cpu: "4"}'), 4),
        (WEB.replace("quota: {", "quota: {per: Namespace, "), 2),
        (WEB.replace("name: web", "name: shop"), 2),
        (_MOVED, 2),
        (WEB.replace("[shop]", "[elsewhere]"), 28),
    ],
    ids=["other resource", "other scope", "renamed", "moved", "of no service"],
)
async def test_a_new_policy_releases_pods_once_all_of_them_are_listed_under_it(changed: str, more: int) -> None:
    """Until then they have the services, scopes and costs of the former policy."""
    simulation = QueueSimulation()
    await simulation.create(*(f"p{number:02}" for number in range(30)))
    await simulation.run_rounds(1)
    simulation.policy = compile_policy(changed)
    await simulation.run_rounds(3)
    simulation.observer.on_list_begun(simulation.policy)
    simulation.list_page("p02", "p03")
    await simulation.run_rounds(3)
    assert len(simulation.gates.ungated) == 2
    simulation.list_all()
    await simulation.run_rounds(3)
    assert len(simulation.gates.ungated) == 2 + more


async def test_a_new_policy_deletes_pods_once_all_of_them_are_listed_under_it() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(30)
    simulation.policy = compile_policy(WEB.replace("10m", "20s").replace("name: web", "name: shop"))
    await simulation.run_rounds(3)
    assert simulation.gates.deleted == []
    simulation.list_all()
    await simulation.run_rounds(3)
    assert simulation.gates.deleted == ["c"]


async def test_pods_that_were_kept_are_deleted_when_the_policy_says_so() -> None:
    simulation = QueueSimulation(WEB.replace("10m", "20s, whenExpired: Keep"))
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(30)
    assert (simulation.gates.deleted, simulation.expired) == ([], ["web"])
    simulation.policy = compile_policy(WEB.replace("10m", "40s, whenExpired: Keep"))
    await simulation.run_rounds(12)
    assert simulation.expired == ["web"], "nothing new has happened to it"
    simulation.policy = compile_policy(WEB.replace("10m", "50s"))
    await simulation.run_rounds(5)
    assert simulation.gates.deleted == []
    await simulation.run_rounds(5)
    assert (simulation.gates.deleted, simulation.expired) == (["c"], ["web", "web"])


async def test_a_pod_has_only_the_deadline_of_its_service() -> None:
    """The former service's is not its own any more, though both have become known in one round."""
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(30)
    simulation.policy = compile_policy(_MOVED.replace("10m", "20s", 1))
    simulation.list_all()
    await simulation.run_rounds(3)
    assert (simulation.gates.deleted, simulation.gates.ungated) == ([], ["a", "b", "c"])


async def test_an_override_of_a_limit_acts_at_once() -> None:
    simulation = QueueSimulation()
    await simulation.create(*"abcde")
    await simulation.run_rounds(1)
    simulation.policy = apply_override(simulation.policy, _DOUBLED)
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["a", "b", "c", "d"]


async def _lose_service(simulation: QueueSimulation, services: str) -> None:
    """Let a policy without the service be in force for one round, and then the former one again."""
    simulation.policy = compile_policy(services.replace("[shop]", "[elsewhere]").replace("name: web", "name: other"))
    simulation.list_all()
    await simulation.run_rounds()
    simulation.policy = compile_policy(services)
    simulation.list_all()
