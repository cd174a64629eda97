"""In any order of events, the ledger ends equal to the cluster, and each Pod never created is refunded once.

Pods are admitted, created or not, end and are deleted; watches break, versions are compacted, the leader changes while
the former one continues, and the store is unavailable.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controller.controller_simulation import ControllerSimulation, pod

NAMES = ("web-a", "web-b", "web-c")
OPERATIONS = {
    "create": 6,
    "create uncounted": 1,
    "admit and fail": 3,
    "admit slowly": 3,
    "finish slow ones": 2,
    "end": 2,
    "remove": 5,
    "remove with grace": 2,
    "watch some": 6,
    "watch all": 2,
    "cut": 2,
    "compact": 1,
    "send": 5,
    "refund": 5,
    "repair": 2,
    "renew": 3,
    "change leader": 2,
    "former watches": 1,
    "former acts": 2,
    "store away": 2,
    "store back": 3,
    "lookups fail": 1,
    "lookups work": 2,
    "second": 3,
    "minute": 3,
}
operations = st.lists(
    st.tuples(st.sampled_from([name for name, weight in OPERATIONS.items() for _ in range(weight)]), st.integers(0, 7)),
    min_size=50,
    max_size=120,
)


class RandomLife:
    """Random operations of users and controllers, and random failures, on a simulation."""

    def __init__(self) -> None:
        self.simulation = ControllerSimulation()
        self.number = 0
        self.charged: set[str] = set()
        self.slow: list[tuple[int, Any]] = []
        self.former = self.simulation.watch, self.simulation.controller

    async def do(self, operation: str, number: int) -> None:
        simulation, cluster = self.simulation, self.simulation.cluster
        uids = sorted(cluster.pods)
        uid = uids[number % len(uids)] if uids else ""
        pod_operations: dict[str, Callable[[], None]] = {
            "end": lambda: cluster.update(uid, phase="Failed"),
            "remove": lambda: cluster.delete(uid),
            "remove with grace": lambda: cluster.terminate(uid, 30),
        }
        environment_operations: dict[str, Callable[[], None]] = {
            "create uncounted": lambda: self._create_in_cluster(self._build_pod(number)),
            "finish slow ones": self._finish_slow_ones,
            "cut": simulation.watch.cut,
            "compact": cluster.compact,
            "renew": simulation.renew,
            "change leader": self._change_leader,
            "store away": partial(simulation.set_available, store=False),
            "store back": partial(simulation.set_available, store=True),
            "lookups fail": partial(simulation.set_available, lookups=False),
            "lookups work": partial(simulation.set_available, lookups=True),
            "second": partial(simulation.wait, 1),
            "minute": self._pass_a_minute,
        }
        controller_operations: dict[str, Callable[[], Awaitable[object]]] = {
            "watch some": lambda: simulation.watch.step(simulation.tracker, number),
            "watch all": simulation.watch_all,
            "send": simulation.send_sightings_once,
            "refund": simulation.refund,
            "repair": simulation.repair,
            "former watches": lambda: self.former[0].step(self.former[1]._tracker, number),
            "former acts": self._run_former_controller,
        }
        if operation in pod_operations and uid:
            pod_operations[operation]()
        elif operation in environment_operations:
            environment_operations[operation]()
        elif operation in controller_operations:
            await controller_operations[operation]()
        elif operation in {"create", "admit and fail", "admit slowly"}:
            await self._admit(operation, number)

    def _change_leader(self) -> None:
        """Change the leader; the former one may continue."""
        self.former = self.simulation.watch, self.simulation.controller
        self.simulation.change_leader()

    async def _run_former_controller(self) -> None:
        former = self.former[1]
        await former._sighting_sender.send()
        await former._refunds.round()
        repairing = asyncio.create_task(former._drift_repair.round())
        while not repairing.done():
            await former._sighting_sender.send()
            await asyncio.sleep(0)
        await repairing

    def _pass_a_minute(self) -> None:
        self._finish_slow_ones()  # no request lives longer than a minute
        self.simulation.wait(61)

    def _build_pod(self, number: int) -> Any:
        self.number += 1
        return pod(f"u{self.number}", NAMES[number % 3] if number < 6 else f"web-{self.number}")

    async def _admit(self, operation: str, number: int) -> None:
        new = self._build_pod(number)
        if self.simulation.store.is_unavailable:
            return
        await self.simulation.admit(new)
        self.charged.add(new.metadata.uid)
        if operation == "create":
            self._create_in_cluster(new)
        elif operation == "admit slowly":
            self.slow.append((number, new))

    def _create_in_cluster(self, new: Any) -> None:
        names = {each.metadata.name for each in self.simulation.cluster.pods.values()}
        if new.metadata.name not in names:
            self.simulation.cluster.create(new)

    def _finish_slow_ones(self) -> None:
        for number, new in self.slow:
            if number % 2:
                self._create_in_cluster(new)
        self.slow.clear()

    async def settle(self) -> None:
        """End all outages, and let the controller run long enough to finish its work."""
        self._finish_slow_ones()
        simulation = self.simulation
        simulation.store.is_unavailable = simulation.watch.fails_lookups = False
        for _ in range(4):
            simulation.wait(100)
            for _ in range(2):
                await simulation.run_all()


async def run_sequence(sequence: list[tuple[str, int]]) -> None:
    life = RandomLife()
    simulation = life.simulation
    refunded: list[str] = []
    store_refund = simulation.store.refund

    async def refund(plan: Any, uid: str) -> bool:
        was_refunded = await store_refund(plan, uid)
        refunded.extend([uid] if was_refunded else [])
        return was_refunded

    simulation.store.refund = refund  # type: ignore[method-assign]  a spy
    for operation, number in sequence:
        await life.do(operation, number)
    await life.settle()
    created = simulation.cluster.created_uids
    assert await simulation.list_standing() == set(simulation.cluster.list_live()), (
        "the ledger's live Pods are those of the cluster"
    )
    assert await simulation.list_overdue_uids() == []
    assert not set(refunded) & created, "no created Pod is refunded"
    assert len(refunded) == len(set(refunded)) == simulation.reported.refunded.total(), "no Pod is refunded twice"
    never_created = life.charged - created
    assert len(never_created) <= len(refunded) + simulation.reported.unproven.total(), (
        "each Pod that was never created is refunded, or reported as unproven"
    )
    assert set(refunded) <= never_created
    uncounted = created - life.charged
    assert await simulation.count_used() == len(life.charged | uncounted) - len(refunded) - (
        len(uncounted) - simulation.reported.charged_late["web"]
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations)
def test_ledger_converges_to_the_cluster(sequence: list[tuple[str, int]]) -> None:
    asyncio.run(run_sequence(sequence))
