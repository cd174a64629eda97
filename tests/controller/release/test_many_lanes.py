"""Many waiting Pods of which no two are alike: what they cost the store, and what other services notice of them."""

from msgspec.structs import replace

from tests.controller.release.queue_simulation import SECOND_US, WEB, QueueSimulation
from webhook.core.quota import Acquire, Receipt

_POOL = "pools: [{name: all, windows: [{window: 10s, hard: {pods: 9999}}], whenExceeded: Queue}]"
_SERVICES = """
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 1h, hard: {pods: 2}}], whenExceeded: Queue, queue: {maxPods: 9999, maxWait: 2h}}
- name: batch
  match: {namespaces: [batch]}
  quota: {windows: [{window: 64s, hard: {pods: 900}}], whenExceeded: Queue, queue: {maxPods: 900, maxWait: 1h}}
"""


class _CountedSimulation(QueueSimulation):
    """Counts the calls of the store for Pods of `web`."""

    def count_calls(self) -> None:
        self.calls = 0
        acquire = self.store.acquire

        async def count(request: Acquire) -> Receipt:
            self.calls += request.plan.service == "web"
            return await acquire(request)

        self.store.acquire = count  # type: ignore[method-assign]  a spy


async def test_pods_with_many_priorities_cost_the_store_a_bounded_number_of_calls_a_second() -> None:
    simulation = _CountedSimulation(_SERVICES)
    for number in range(1000):
        await simulation.create(f"p{number:04}", annotations={"podgate.io/priority": str(number)})
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["p0999", "p0998"]
    simulation.count_calls()
    await simulation.run_rounds(2)
    assert simulation.calls <= 2 * 330


async def test_a_service_with_many_priorities_costs_others_of_its_queue_no_turn() -> None:
    services = _SERVICES.replace("  quota:", "  pool: all\n  quota:")
    simulation = QueueSimulation(services, _POOL)
    for number in range(500):
        await simulation.create(f"p{number:03}", annotations={"podgate.io/priority": str(number)})
    await simulation.run_rounds(0.1)
    await simulation.create("x", namespace="batch")
    await simulation.run_rounds(0.1)
    assert simulation.gates.ungated == ["p499", "p498", "x"]
    assert len(simulation.store.charged_together) < 100


async def test_a_namespace_without_room_holds_up_no_other_namespace_of_its_service() -> None:
    simulation = QueueSimulation(
        _SERVICES.replace("quota: {windows: [{window: 1h", "quota: {per: Namespace, windows: [{window: 1h").replace(
            "[shop]", '["shop*"]'
        )
    )
    await simulation.create("a1", "a2", "a3", namespace="shop-a")
    await simulation.run_rounds(2)
    simulation.clock.set(simulation.clock.now_us() + 700 * SECOND_US)
    await simulation.run_rounds(2)
    await simulation.create("b1", namespace="shop-b")
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == ["a1", "a2", "b1"]


async def test_a_pod_behind_many_that_do_not_fit_is_tried_in_the_end() -> None:
    services = _SERVICES.replace("hard: {pods: 2}", "hard: {pods: 900, cpu: 1}")
    simulation = QueueSimulation(services)
    for number in range(700):
        await simulation.create(f"p{number:03}", cpu=f"{number + 2}", annotations={"podgate.io/priority": "1"})
    await simulation.create("small", cpu="100m")
    await simulation.run_rounds(5)
    assert simulation.gates.ungated == ["small"]


async def test_a_pod_behind_many_that_are_tried_each_second_is_tried_in_the_end() -> None:
    """As those are that wait for live Pods to end. There are too many to try all of them within a second."""
    simulation = QueueSimulation(_SERVICES)
    acquire, batch = simulation.store.acquire, simulation.policy.plans["batch"]

    async def admit_last(request: Acquire) -> Receipt:
        receipt = await acquire(replace(request, plan=batch) if request.uid == "last" else request)
        return replace(receipt, free_at_us=receipt.at_us + SECOND_US) if receipt.refused else receipt

    simulation.store.acquire = admit_last  # type: ignore[method-assign]  the last Pod has room
    for number in range(900):
        await simulation.create(f"p{number:03}", annotations={"podgate.io/priority": str(1 + number)})
    await simulation.create("last")
    await simulation.run_rounds(4)
    assert simulation.gates.ungated == ["p899", "p898", "last"]


async def test_changes_of_a_waiting_pod_leave_nothing_behind() -> None:
    """Behind the first of its lane a Pod is removed without a look at the others."""
    simulation = QueueSimulation(WEB.replace("pods: 2", "pods: 0"))
    await simulation.create("first0", annotations={"podgate.io/priority": "0"})
    await simulation.create("first1", annotations={"podgate.io/priority": "1"})
    await simulation.create("changing")
    for number in range(200):
        pod = simulation.gates.pods["changing"]
        metadata = replace(pod.metadata, annotations={"podgate.io/priority": str(number % 2)})
        simulation.gates.pods["changing"] = replace(pod, metadata=metadata)
        simulation.list_page("changing")
        await simulation.run_rounds()
    releaser = simulation.loop._releaser
    lanes = [lane for order in releaser._orders.values() for lanes in order._lanes.values() for lane in lanes]
    assert sorted(map(len, lanes)) == [1, 2]
    assert max(len(lane._by_age) for lane in lanes) <= 4
    assert len(releaser.pods._deadlines) <= 6
