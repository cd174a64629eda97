"""In any order of events, the ledger ends equal to the cluster, and each Pod never created is refunded once.

Pods are admitted, come to be or do not, end and go; watches break, versions vanish, controllers die or do not know that
another leads, the store is away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controller.controller_simulation import World, pod

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
    "see some": 6,
    "see all": 2,
    "cut": 2,
    "compact": 1,
    "tell": 5,
    "refund": 5,
    "repair": 2,
    "renew": 3,
    "kill": 2,
    "former sees": 1,
    "former acts": 2,
    "store away": 2,
    "store back": 3,
    "blind": 1,
    "sighted": 2,
    "second": 3,
    "minute": 3,
}
operations = st.lists(
    st.tuples(st.sampled_from([name for name, weight in OPERATIONS.items() for _ in range(weight)]), st.integers(0, 7)),
    min_size=50,
    max_size=120,
)


class Life:
    """What a cluster's users, and bad luck, do to a world."""

    def __init__(self) -> None:
        self.simulation = World()
        self.number = 0
        self.charged: set[str] = set()
        self.slow: list[tuple[int, Any]] = []
        self.former = self.simulation.watch, self.simulation.controller

    async def do(self, operation: str, number: int) -> None:
        simulation, cluster = self.simulation, self.simulation.cluster
        uids = sorted(cluster.pods)
        uid = uids[number % len(uids)] if uids else ""
        of_pods: dict[str, Callable[[], None]] = {
            "end": lambda: cluster.update(uid, phase="Failed"),
            "remove": lambda: cluster.delete(uid),
            "remove with grace": lambda: cluster.terminate(uid, 30),
        }
        of_the_world: dict[str, Callable[[], None]] = {
            "create uncounted": lambda: self._come_to_be(self._new(number)),
            "finish slow ones": self._finish_slow_ones,
            "cut": simulation.watch.cut,
            "compact": cluster.compact,
            "renew": simulation.renew,
            "kill": self._kill,
            "store away": partial(simulation.answer, store=False),
            "store back": partial(simulation.answer, store=True),
            "blind": partial(simulation.answer, looks=False),
            "sighted": partial(simulation.answer, looks=True),
            "second": partial(simulation.wait, 1),
            "minute": self._pass_a_minute,
        }
        of_the_controller: dict[str, Callable[[], Awaitable[object]]] = {
            "see some": lambda: simulation.watch.step(simulation.tracker, number),
            "see all": simulation.watch_all,
            "tell": simulation.tell_once,
            "refund": simulation.refund,
            "repair": simulation.repair,
            "former sees": lambda: self.former[0].step(self.former[1]._tracker, number),
            "former acts": self._let_the_former_act,
        }
        if operation in of_pods and uid:
            of_pods[operation]()
        elif operation in of_the_world:
            of_the_world[operation]()
        elif operation in of_the_controller:
            await of_the_controller[operation]()
        elif operation in {"create", "admit and fail", "admit slowly"}:
            await self._ask(operation, number)

    def _kill(self) -> None:
        """Let another lead; who led before may not know it yet."""
        self.former = self.simulation.watch, self.simulation.controller
        self.simulation.lead()

    async def _let_the_former_act(self) -> None:
        former = self.former[1]
        await former._sighting_sender.send()
        await former._refunds.round()
        mending = asyncio.create_task(former._drift_repair.round())
        while not mending.done():
            await former._sighting_sender.send()
            await asyncio.sleep(0)
        await mending

    def _pass_a_minute(self) -> None:
        self._finish_slow_ones()  # no request lives longer than a minute
        self.simulation.wait(61)

    def _new(self, number: int) -> Any:
        self.number += 1
        return pod(f"u{self.number}", NAMES[number % 3] if number < 6 else f"web-{self.number}")

    async def _ask(self, operation: str, number: int) -> None:
        new = self._new(number)
        if self.simulation.store.is_away:
            return
        await self.simulation.admit(new)
        self.charged.add(new.metadata.uid)
        if operation == "create":
            self._come_to_be(new)
        elif operation == "admit slowly":
            self.slow.append((number, new))

    def _come_to_be(self, new: Any) -> None:
        names = {one.metadata.name for one in self.simulation.cluster.pods.values()}
        if new.metadata.name not in names:
            self.simulation.cluster.create(new)

    def _finish_slow_ones(self) -> None:
        for number, new in self.slow:
            if number % 2:
                self._come_to_be(new)
        self.slow.clear()

    async def rest(self) -> None:
        """Let all come to an end: what can be answered is, and enough time passes."""
        self._finish_slow_ones()
        simulation = self.simulation
        simulation.store.is_away = simulation.watch.is_blind = False
        for _ in range(4):
            simulation.wait(100)
            for _ in range(2):
                await simulation.all()


async def live(sequence: list[tuple[str, int]]) -> None:
    life = Life()
    simulation = life.simulation
    refunded: list[str] = []
    give_back = simulation.store.refund

    async def refund(plan: Any, uid: str) -> bool:
        given = await give_back(plan, uid)
        refunded.extend([uid] if given else [])
        return given

    simulation.store.refund = refund  # type: ignore[method-assign]  to see whose it was
    for operation, number in sequence:
        await life.do(operation, number)
    await life.rest()
    ever = simulation.cluster.ever
    assert await simulation.standing() == set(simulation.cluster.live()), "who stands is who is there"
    assert await simulation.waiting() == []
    assert not set(refunded) & ever, "none that came to be is given back"
    assert len(refunded) == len(set(refunded)) == simulation.reported.refunded.total(), "once"
    never = life.charged - ever
    assert len(never) <= len(refunded) + simulation.reported.unproven.total(), (
        "each that never came is given back, or said to be unproven"
    )
    assert set(refunded) <= never
    uncounted = ever - life.charged
    assert await simulation.used() == len(life.charged | uncounted) - len(refunded) - (
        len(uncounted) - simulation.reported.afterwards["web"]
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations)
def test_ledger_converges_to_the_cluster(sequence: list[tuple[str, int]]) -> None:
    asyncio.run(live(sequence))
