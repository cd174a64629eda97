"""Waking of held controllers, on the real counters: order, bounds, failures of the API server and of the store."""

from dataclasses import dataclass, field

import pytest

from tests.controller.controller_simulation import SECOND_US, START_US, compile_policy
from tests.controller.stepped_clock import SteppedClock
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.memory_store import MemoryStore
from webhook.controller import ControllerWaker, WakeReports
from webhook.controller.held_controllers import WakeTiming
from webhook.controller.held_controllers.controller_reader import ControllerReader
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.controller.held_controller import ControllerReference, CreatingController, TemplatedSpec
from webhook.core.diagnosis.objects import OwnerStatus
from webhook.core.kubernetes.pod import PodMetadata
from webhook.core.quota import Acquire, CounterPlan, ServiceSnapshot
from webhook.errors import ControllerAccessError, StoreUnavailableError
from webhook.ports import CreationFailureHandler

PACED = compile_policy("- {name: web, match: {namespaces: [shop]}, quota: {windows: [{window: 10s, hard: {pods: 4}}]}}")
CLASSES = compile_policy(
    "\n".join(
        f"- {{name: {name}, slaClass: {name}, pool: all, match: {{namespaces: [{name}]}}}}"
        for name in ("bronze", "silver", "gold")
    ),
    "pools: [{name: all, windows: [{window: 10s, hard: {pods: 7}}]}]",
)
FREE = compile_policy(
    "- {name: web, match: {namespaces: [shop]}, quota: {windows: [{window: 10s, hard: {pods: 100000}}]}}"
)


class Store(MemoryStore):
    is_unavailable = False
    snapshots = 0

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        self.snapshots += 1
        if self.is_unavailable:
            raise StoreUnavailableError("away")
        return await super().snapshot(plan, namespace)


@dataclass
class Workloads:
    """Controllers that try only when they are woken. A `ports.ControllerClient`."""

    clock: VirtualClock
    store: MemoryStore
    policy: CompiledPolicy
    wanted: dict[ControllerReference, int] = field(default_factory=dict)
    present: dict[ControllerReference, int] = field(default_factory=dict)
    created: list[ControllerReference] = field(default_factory=list)
    woken: list[ControllerReference] = field(default_factory=list)
    is_forbidden: bool = False
    creates_nothing: bool = False

    async def run(self, handler: CreationFailureHandler) -> None:
        """Do nothing: tests pass failures on themselves."""

    async def find(self, controller: ControllerReference) -> CreatingController | None:
        if self.is_forbidden:
            raise ControllerAccessError("forbidden")
        if controller not in self.wanted:
            return None
        metadata = PodMetadata(controller.name, namespace=controller.namespace, uid=controller.uid)
        status = OwnerStatus(replicas=self.present.get(controller, 0))
        return CreatingController(metadata, "ReplicaSet", TemplatedSpec(replicas=self.wanted[controller]), status)

    async def wake(self, controller: ControllerReference, at_us: int) -> bool:  # noqa: ARG002  the store has its own clock
        if self.is_forbidden:
            raise ControllerAccessError("forbidden")
        self.woken.append(controller)
        if controller not in self.wanted:
            return False
        while not self.creates_nothing and self.present.get(controller, 0) < self.wanted[controller]:
            if not await self.create(controller):
                break
        return True

    async def create(self, controller: ControllerReference) -> bool:
        [service] = self.policy.matcher.list_candidates(controller.namespace)
        plan, uid = self.policy.plans[service.name], f"{controller.uid}-{len(self.created)}"
        request = Acquire(plan, controller.namespace, uid, {"pods": 1}, "")
        receipt = await self.store.acquire(request)
        if receipt.refused is None:
            self.present[controller] = self.present.get(controller, 0) + 1
            self.created.append(controller)
        return receipt.refused is None


class Simulation:
    """A waker that is stepped through virtual time."""

    def __init__(self, policy: CompiledPolicy, timing: WakeTiming = WakeTiming()) -> None:  # noqa: B008  frozen
        self.clock = VirtualClock(START_US)
        self.stored = SteppedClock(self.clock)
        self.store = Store(self.stored)
        self.workloads = Workloads(self.clock, self.store, policy)
        self.results: list[tuple[str, str]] = []
        self.held: dict[str, int] = {}
        self.troubles: list[str] = []
        reports = WakeReports(
            lambda service, result: self.results.append((service, result)),
            lambda held: (self.held.clear(), self.held.update(held))[0],
            self.troubles.append,
            lambda reason: self.troubles.append(f"over: {reason}"),
        )
        namespaces = FixedNamespaces()
        self.waker = ControllerWaker(
            self.workloads, self.store, self.clock, lambda: self.workloads.policy, namespaces, reports, timing=timing
        )

    @property
    def reader(self) -> ControllerReader:
        return self.waker.reader

    async def hold(self, name: str, missing: int, namespace: str = "shop", age_seconds: int = 0) -> ControllerReference:
        """Create a controller whose Pods were denied."""
        reference = ControllerReference("ReplicaSet", namespace, name, f"uid-{namespace}-{name}")
        self.workloads.wanted[reference] = missing
        await self.reader.on_creation_failed(
            reference, at_us=self.clock.now_us() - age_seconds * SECOND_US, is_held=True
        )
        return reference

    async def fill(self, namespace: str = "shop") -> None:
        """Take all room, by a controller that wants no more."""
        other = ControllerReference("Job", namespace, "other", f"uid-{namespace}-other")
        while await self.workloads.create(other):
            pass
        self.workloads.created.clear()

    async def step(self, seconds: float = 0.25) -> None:
        await self.waker.round()
        while await self.reader.read() is not None:
            pass
        await self.waker.round()
        self.clock.set(self.clock.now_us() + round(seconds * SECOND_US))

    async def run(self, seconds: float) -> None:
        until_us = self.clock.now_us() + round(seconds * SECOND_US)
        while self.clock.now_us() < until_us:
            await self.step()


async def test_deployment_is_whole_within_two_seconds_of_the_last_room() -> None:
    simulation = Simulation(PACED)
    await simulation.fill()
    await simulation.hold("web", 12)
    await simulation.run(12)
    assert len(simulation.workloads.created) == 4
    await simulation.run(10 + 1)
    assert len(simulation.workloads.created) == 8
    await simulation.run(10 + 1)
    assert len(simulation.workloads.created) == 12
    assert len(simulation.workloads.woken) <= 6
    await simulation.run(5)
    assert (simulation.held, set(simulation.results)) == ({}, {("web", "created")})


async def test_controllers_are_not_touched_while_there_is_no_room() -> None:
    simulation = Simulation(PACED)
    await simulation.fill()
    await simulation.hold("web", 12)
    await simulation.run(9)
    assert simulation.workloads.woken == []
    assert simulation.held == {"web": 1}
    assert simulation.store.snapshots <= 6, "the moment of room is known: snapshots are rare until then"


async def test_of_a_pool_pods_are_created_by_class_then_by_age_of_the_denial() -> None:
    simulation = Simulation(CLASSES)
    await simulation.fill("gold")
    sizes = {("bronze", 90): 3, ("gold", 5): 4, ("silver", 40): 5, ("gold", 30): 6, ("bronze", 10): 2, ("silver", 1): 1}
    for number, ((namespace, age), missing) in enumerate(sizes.items()):
        await simulation.hold(f"{age}-{number}", missing, namespace, age)
    await simulation.run(60)
    order = sorted(sizes, key=lambda owner: (["gold", "silver", "bronze"].index(owner[0]), -owner[1]))
    expected = [owner for owner in order for _ in range(sizes[owner])]
    found = [(workload.namespace, int(workload.name.partition("-")[0])) for workload in simulation.workloads.created]
    assert found == expected


async def test_flood_of_a_thousand_is_woken_at_the_bounded_rate() -> None:
    simulation = Simulation(FREE)
    for number in range(1000):
        await simulation.hold(f"web-{number}", 1, age_seconds=1000 - number)
    counts: list[int] = []
    for _ in range(30):
        before = len(simulation.workloads.woken)
        await simulation.run(1)
        counts.append(len(simulation.workloads.woken) - before)
    assert max(counts) <= WakeTiming().wakes_per_second
    assert len(simulation.workloads.woken) == len(set(simulation.workloads.woken)) == 1000


async def test_of_a_thousand_only_as_many_are_woken_as_there_is_room() -> None:
    simulation = Simulation(PACED)
    await simulation.fill()
    for number in range(1000):
        await simulation.hold(f"web-{number}", 1, age_seconds=1000 - number)
    await simulation.run(12)
    assert [workload.name for workload in simulation.workloads.woken] == [f"web-{number}" for number in range(4)]


async def test_more_controllers_than_are_remembered_are_ignored() -> None:
    simulation = Simulation(FREE, WakeTiming(held_max=5))
    for number in range(9):
        await simulation.hold(f"web-{number}", 1)
    await simulation.run(3)
    assert [workload.name for workload in simulation.workloads.woken] == [f"web-{number}" for number in range(5)]


@pytest.mark.parametrize("invented", [8, 200])
async def test_events_that_somebody_invents_in_one_namespace_keep_no_controller_of_another_from_being_woken(
    invented: int,
) -> None:
    services = "- {name: web, match: {namespaces: [shop, evil]}, quota: {windows: [{window: 10s, hard: {pods: 90}}]}}"
    simulation = Simulation(compile_policy(services), WakeTiming(held_max=20))
    for number in range(invented):
        reference = ControllerReference("ReplicaSet", "evil", f"f{number}", f"u{number}")
        await simulation.reader.on_creation_failed(reference, at_us=simulation.clock.now_us(), is_held=True)
    for number in range(8):
        await simulation.hold(f"web-{number}", 1)
    for _ in range(2):
        await simulation.reader.read()
    await simulation.waker.round()
    assert len([workload for workload in simulation.workloads.woken if workload.namespace == "shop"]) == 8


async def test_controllers_that_are_held_in_one_namespace_keep_none_of_another_from_being_woken() -> None:
    """Those that are forgotten retry by themselves."""
    services = "- {name: web, match: {namespaces: [shop, full]}, quota: {windows: [{window: 10s, hard: {pods: 90}}]}}"
    simulation = Simulation(compile_policy(services), WakeTiming(held_max=20))
    simulation.workloads.creates_nothing = True
    for number in range(20):
        await simulation.hold(f"full-{number}", 1, "full")
    await simulation.run(3)
    simulation.workloads.creates_nothing = False
    for number in range(15):
        await simulation.hold(f"web-{number}", 1)
    await simulation.run(3)
    woken = [workload.name for workload in simulation.workloads.woken if workload.namespace == "shop"]
    assert woken == [f"web-{number}" for number in range(10)], "half of the places"


async def test_controller_that_creates_nothing_is_woken_less_and_less_often() -> None:
    simulation = Simulation(FREE)
    simulation.workloads.creates_nothing = True
    await simulation.hold("web", 1)
    await simulation.run(60)
    assert 5 <= len(simulation.workloads.woken) <= 8
    assert set(simulation.results) == {("web", "refused")}


async def test_controller_denied_for_another_reason_is_not_woken() -> None:
    simulation = Simulation(PACED)
    await simulation.fill()
    reference = await simulation.hold("web", 1)
    await simulation.run(2)
    await simulation.reader.on_creation_failed(reference, at_us=simulation.clock.now_us(), is_held=False)
    await simulation.run(20)
    assert simulation.workloads.woken == []


async def test_deleted_controllers_and_those_of_no_service_are_forgotten() -> None:
    simulation = Simulation(PACED)
    await simulation.fill()
    deleted = await simulation.hold("deleted", 1)
    await simulation.hold("strange", 1, "elsewhere")
    await simulation.run(2)
    del simulation.workloads.wanted[deleted]
    await simulation.run(20)
    assert (simulation.workloads.woken, simulation.held) == ([deleted], {})


async def test_new_policy_with_room_wakes_at_once() -> None:
    simulation = Simulation(PACED)
    await simulation.fill()
    await simulation.hold("web", 3)
    await simulation.run(2)
    simulation.workloads.policy = FREE
    await simulation.run(1)
    assert len(simulation.workloads.created) == 3


@pytest.mark.parametrize("what", ["store", "rights"])
async def test_what_was_unavailable_is_retried_and_reported_once(what: str) -> None:
    simulation = Simulation(FREE)
    simulation.store.is_unavailable = what == "store"
    await simulation.hold("web", 3)
    simulation.workloads.is_forbidden = what == "rights"
    for _ in range(20):
        await simulation.waker.round()
        await simulation.reader.read()
        simulation.clock.set(simulation.clock.now_us() + SECOND_US)
    assert simulation.workloads.woken == []
    assert simulation.troubles == (["forbidden"] if what == "rights" else [])
    simulation.store.is_unavailable = simulation.workloads.is_forbidden = False
    await simulation.run(5)
    assert len(simulation.workloads.created) == 3


async def test_the_store_is_asked_once_a_second_while_woken_controllers_cannot_be_read_again() -> None:
    simulation = Simulation(PACED)
    simulation.workloads.creates_nothing = True
    await simulation.hold("web", 3)
    await simulation.step(1)
    assert len(simulation.workloads.woken) == 1
    simulation.workloads.is_forbidden = True
    await simulation.reader.read()
    simulation.clock.set(simulation.clock.now_us() + 10 * SECOND_US)
    await simulation.waker.round()
    simulation.store.snapshots = 0
    until_us = simulation.clock.now_us() + 10 * SECOND_US
    while simulation.clock.now_us() < until_us:
        pause_seconds = await simulation.waker.round()
        simulation.clock.set(simulation.clock.now_us() + round((pause_seconds or 1) * SECOND_US))
    assert 1 <= simulation.store.snapshots <= 11


async def test_controllers_are_woken_after_the_clock_of_the_store_has_gone_back() -> None:
    simulation = Simulation(FREE)
    simulation.stored.ahead_us = 600 * SECOND_US
    for number in range(200):
        await simulation.hold(f"web-{number}", 1)
    await simulation.run(3)
    simulation.stored.ahead_us = 0
    await simulation.run(3)
    assert len(simulation.workloads.created) == 200


async def test_room_is_looked_for_again_after_the_clock_of_the_store_has_gone_back() -> None:
    simulation = Simulation(PACED)
    simulation.stored.ahead_us = 600 * SECOND_US
    await simulation.fill()
    await simulation.hold("web", 4)
    await simulation.run(3)
    simulation.stored.ahead_us = 0
    for number in range(4):
        await simulation.store.refund(PACED.plans["web"], f"uid-shop-other-{number}")
    await simulation.run(6)
    assert len(simulation.workloads.created) == 4
