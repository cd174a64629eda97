"""Release when news comes late: of the watch, of a removal that ends while others are charged, of a new leader."""

import asyncio

from tests.controller.controller_simulation import compile_policy
from tests.controller.release.queue_simulation import WEB, QueueSimulation
from tests.controller.release.release_loop import read_usage
from webhook.core.kubernetes.pod import Pod
from webhook.core.quota import Acquire, Receipt
from webhook.errors import StoreUnavailableError

NO_QUEUE = WEB.replace("Queue", "Deny").replace(", queue: {maxPods: 9, maxWait: 10m}", "")
BATCH = WEB.replace("web", "batch").replace("shop", "batch").replace("pods: 2", "pods: 9")


def show(simulation: QueueSimulation, state: Pod) -> None:
    """Let the watch show a state of a Pod, which may be an earlier one."""
    simulation.observer.on_changed(state, simulation._find_ownership(state, simulation.policy))


async def test_pods_of_a_service_that_no_longer_queues_keep_their_order_under_a_new_leader() -> None:
    """They were created in one second, which is all that the cluster tells of their age."""
    simulation = QueueSimulation()
    for uid in ("e", "d", "c", "b", "a"):
        await simulation.create(uid)
        simulation.clock.set(simulation.clock.now_us() + 1000)
    simulation.policy = compile_policy(NO_QUEUE)
    simulation.lead()
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["e", "d"]
    registered = set(simulation.index.times["web"])
    simulation.index.times.clear()
    simulation.lead()
    await simulation.run_rounds(66)
    assert (registered, simulation.gates.ungated) == ({"a", "b", "c"}, ["e", "d", "a", "b"])
    assert simulation.index.times.get("web", {}) == {}, "a service without a queue registers no Pod"


async def test_what_the_watch_shows_late_of_a_released_pod_takes_no_charge_back() -> None:
    simulation = QueueSimulation()
    await simulation.create("a")
    waiting, refunded = simulation.gates.pods["a"], list[str]()
    refund = simulation.store.refund

    async def record(plan: object, uid: str) -> bool:
        refunded.append(uid)
        return await refund(plan, uid)  # type: ignore[arg-type]  passed through

    simulation.store.refund = record  # type: ignore[method-assign, assignment]  a spy
    await simulation.run_rounds()
    show(simulation, waiting)
    await simulation.run_rounds(1)
    show(simulation, simulation.gates.pods["a"])
    await simulation.run_rounds(1)
    assert (simulation.released, refunded, await read_usage(simulation)) == (["web"], [], 1)


async def test_a_list_that_is_older_than_a_release_takes_no_charge_back() -> None:
    simulation = QueueSimulation()
    await simulation.create("a")
    simulation.observer.on_list_begun(simulation.policy)
    waiting = simulation.gates.pods["a"]
    simulation.observer.on_list_complete()
    await simulation.run_rounds()
    simulation.observer.on_list_begun(simulation.policy)
    show(simulation, waiting)
    simulation.observer.on_list_complete()
    await simulation.run_rounds(1)
    assert (simulation.released, await read_usage(simulation)) == (["web"], 1)


async def test_a_pod_beyond_the_limit_waits_on_although_an_older_list_shows_released_ones_as_waiting() -> None:
    """They were refunded, and could not be charged again while the store gave no answer: another took their room."""
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c")
    waiting = dict(simulation.gates.pods)
    simulation.policy = compile_policy(NO_QUEUE)
    simulation.list_all()
    await simulation.run_rounds(0.3)
    assert simulation.gates.ungated == ["a", "b"]
    acquire, asked = simulation.store.acquire, list[str]()
    is_away = True

    async def acquire_once(request: Acquire) -> Receipt:
        asked.append(request.uid)
        if len(asked) > 1 and is_away:
            raise StoreUnavailableError("no answer in time")
        return await acquire(request)

    simulation.store.acquire = acquire_once  # type: ignore[method-assign]
    simulation.observer.on_list_begun(simulation.policy)
    for state in waiting.values():
        show(simulation, state)
    simulation.observer.on_list_complete()
    await simulation.run_rounds(1.1)
    for state in simulation.gates.pods.values():
        show(simulation, state)
    await simulation.run_rounds(0.1)
    is_away = False
    await simulation.run_rounds(5)
    assert simulation.gates.ungated == ["a", "b"]
    assert await read_usage(simulation) == 2


async def test_a_pod_that_waits_again_while_others_are_charged_confuses_no_queue() -> None:
    """The queue of its service is created anew: the service no longer queues, and no other Pod of it waits."""
    simulation = QueueSimulation(WEB + BATCH)
    simulation.gates.refused.update(("w1", "w2"))
    await simulation.create("w1", "w2")
    await simulation.run_rounds(1)
    answered, remove, acquire = asyncio.Event(), simulation.gates.remove, simulation.store.acquire

    async def remove_late(namespace: str, name: str, uid: str) -> bool:
        if uid == "w1":
            await answered.wait()
        return await remove(namespace, name, uid)

    async def acquire_late(request: Acquire) -> Receipt:
        receipt = await acquire(request)
        if request.uid == "x":
            answered.set()
            for _ in range(9):
                await asyncio.sleep(0)
        return receipt

    simulation.gates.remove = remove_late  # type: ignore[method-assign]
    simulation.store.acquire = acquire_late  # type: ignore[method-assign]
    simulation.policy = compile_policy(NO_QUEUE + BATCH)
    simulation.list_all()
    simulation.gates.refused.discard("w1")
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == []
    simulation.gates.refused.clear()
    await simulation.create("x", "y", "z", namespace="batch")
    await simulation.run_rounds(1)
    assert sorted(simulation.gates.ungated) == ["w1", "w2", "x", "y", "z"]
