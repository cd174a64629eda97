"""Manual changes of a queue: a paused one releases nothing, and one Pod is released past every limit."""

from msgspec.structs import replace

from tests.controller.controller_simulation import compile_policy
from tests.controller.release.manual_queue import PAUSE, apply_override
from tests.controller.release.queue_reader import read_document
from tests.controller.release.queue_simulation import QueueSimulation
from tests.controller.release.release_loop import read_usage
from webhook.core.overrides import QueueState
from webhook.core.reporting.queue_document import WaitCause


async def test_a_paused_queue_releases_nothing_until_it_is_resumed() -> None:
    simulation = QueueSimulation()
    policy = simulation.policy
    simulation.policy = apply_override(policy, PAUSE)
    await simulation.create("a", "b")
    await simulation.run_rounds(120)
    assert simulation.gates.ungated == []
    found = await read_document(simulation)
    why = "the queue is paused until 2027-01-15T09:00:00.000Z: INC-1 (alice)"
    assert [(pod.cause, pod.why, pod.expected_at) for pod in found.pods] == [(WaitCause.PAUSED, why, None)] * 2
    assert found.pods[0].not_before == "2027-01-15T09:00:00.000Z"
    assert found.services[0].paused == "until 2027-01-15T09:00:00.000Z: INC-1 (alice)"
    simulation.policy = apply_override(policy, replace(PAUSE, queue=QueueState.RUNNING))
    await simulation.run_rounds(0.2)
    assert simulation.gates.ungated == ["a", "b"]


async def test_other_services_of_a_pool_are_released_meanwhile() -> None:
    head = "pools: [{name: shared, windows: [{window: 64s, hard: {pods: 2}}], whenExceeded: Queue}]"
    each = "  pool: shared\n  quota: {whenExceeded: Queue, queue: {}}\n"
    services = f"- name: web\n  match: {{namespaces: [shop]}}\n  slaClass: gold\n{each}"
    services += f"- name: batch\n  match: {{namespaces: [batch]}}\n{each}"
    simulation = QueueSimulation(services, head)
    simulation.policy = apply_override(compile_policy(services, head), PAUSE)
    simulation.list_all()
    await simulation.create("gold")
    await simulation.create("bronze", namespace="batch")
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == ["bronze"]


async def test_one_pod_is_released_past_the_limit_and_counts() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c", "d", "e")
    await simulation.run_rounds(10)
    simulation.wanted = ("e", "never")
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["a", "b", "e"]
    assert await read_usage(simulation) == 3, "it is charged, once"
    assert simulation.waiting == {"web": 2}
    await simulation.run_rounds(56)
    assert simulation.gates.ungated[3:] == ["c"], "c and d would have fitted, but for e"
    await simulation.run_rounds(12)
    assert simulation.gates.ungated[3:] == ["c", "d"]


async def test_a_pod_of_a_paused_queue_is_released_by_hand_and_refunded_if_it_is_gone() -> None:
    simulation = QueueSimulation()
    simulation.policy = apply_override(simulation.policy, PAUSE)
    await simulation.create("a", "b")
    simulation.wanted = ("a", "b")
    del simulation.gates.pods["b"]  # the watch has not shown it yet
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["a"]
    assert await read_usage(simulation) == 1
