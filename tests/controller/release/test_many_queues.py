"""Many services that queue, of which few have waiting Pods: a round costs what those few cost."""

import contextlib

from tests.bench.opcode_counts import count_opcodes
from tests.controller.controller_simulation import compile_policy
from tests.controller.release.queue_simulation import SECOND_US, QueueSimulation
from webhook.core.quota import CounterPlan

_SERVICE = """
- name: s{number}
  match: {{namespaces: [n{number}]}}
  quota: {{windows: [{{window: 64s, hard: {{pods: 2}}}}], whenExceeded: Queue, queue: {{}}}}
"""


def build_services(count: int) -> str:
    return "".join(_SERVICE.format(number=number) for number in range(count))


async def count_round(services: int) -> int:
    """Return the opcodes of a round between two retries, after each of three services has had waiting Pods."""
    simulation = QueueSimulation(build_services(services))
    for number in range(3):
        await simulation.create(*(f"p{number}-{name}" for name in "abc"), namespace=f"n{number}")
    await simulation.run_rounds(12)
    simulation.clock.set(simulation.clock.now_us() + SECOND_US)
    await simulation.run_rounds()  # it retries, which happens once a second
    simulation.clock.set(simulation.clock.now_us() + SECOND_US // 10)

    def run_round() -> None:
        with contextlib.suppress(StopIteration):
            simulation.loop.round().send(None)

    opcodes, _ = count_opcodes(run_round)
    assert len(simulation.gates.ungated) == 6
    return opcodes


async def test_a_round_costs_as_much_with_many_empty_queues_as_with_few() -> None:
    few, many = await count_round(5), await count_round(400)
    assert 0 < many <= 1.1 * few


async def test_a_new_leader_meets_each_service_that_no_longer_queues_once() -> None:
    """The queue of one is made when its first Pod comes, and not those of all others again."""

    async def count_first_round(services: int) -> int:
        simulation = QueueSimulation(build_services(services))
        for number in range(services):
            await simulation.create(f"p{number}", namespace=f"n{number}")
        simulation.policy = compile_policy(build_services(services).replace("whenExceeded: Queue, queue: {}", ""))
        simulation.lead()
        simulation.index.is_available = True
        made = 0
        begin = simulation.loop._releaser.begin

        def count_begins(plans: object) -> None:
            nonlocal made
            made += 1
            begin(plans)  # type: ignore[arg-type]  passed through

        simulation.loop._releaser.begin = count_begins  # type: ignore[method-assign]  a spy
        await simulation.run_rounds(2)
        assert len(simulation.gates.ungated) == services
        return made

    assert await count_first_round(40) == 1


async def test_the_index_is_mended_in_parts() -> None:
    """Each part is asked for at once; all of them in one round would delay releases."""
    simulation = QueueSimulation(build_services(200))
    asked: list[list[str]] = []
    list_waiting = simulation.index.list_waiting

    async def record(plan: CounterPlan) -> object:
        asked[-1].append(plan.service)
        return await list_waiting(plan)

    simulation.index.list_waiting = record  # type: ignore[method-assign, assignment]  a spy
    for _ in range(90):
        asked.append([])
        await simulation.run_rounds(0.1)
    assert max(map(len, asked)) <= 64
    assert sorted(service for part in asked for service in part) == sorted(f"s{number}" for number in range(200))
