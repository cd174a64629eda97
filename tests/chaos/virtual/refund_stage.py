"""Refunds: Pods that are created or not, a watch that breaks, leaders that change, and an etcd without space."""

from random import Random

from tests.chaos.checkers.replica_counts import NO_SPACE
from tests.chaos.history import History
from tests.chaos.virtual.recorded_store import RecordedStore
from tests.chaos.virtual.written import Written
from tests.controller.controller_simulation import ControllerSimulation, UnreliableStore, pod
from webhook.core.kubernetes.pod import Pod

SERVICES = """
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 24h, hard: {pods: 100000}}], standing: {hard: {pods: 100000}}}
"""
STEPS = 300
REST_ROUNDS = 12
SLOW_SECONDS = 40
"""No request lives longer than a minute."""


class UnreliableRecordedStore(RecordedStore, UnreliableStore):
    """A store that the stage can make unavailable."""


class RefundStage:
    """A simulated cluster and its controller. `play` returns the history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  the same history again
        self.simulation = ControllerSimulation(SERVICES)
        self.written = Written(self.simulation.clock, seed, SERVICES)
        self.simulation.store = UnreliableRecordedStore(self.simulation.clock, self.written)
        self.simulation.change_leader()
        self.made = self.faults = 0
        self.slow: list[tuple[float, Pod]] = []

    async def play(self) -> History:
        simulation = self.simulation
        await simulation.run_all()
        simulation.wait(60)
        for _ in range(STEPS):
            await self._act(self.random.random())
            simulation.wait(self.random.choice((0.1, 1, 5)))
            if self.slow and self.slow[0][0] < self.written.now - SLOW_SECONDS:
                self._finish_slow()
        self._finish_slow()
        simulation.set_available(store=True, lookups=True)
        for _ in range(REST_ROUNDS):
            simulation.wait(61)
            await simulation.run_all()
        return self.written.finish([*simulation.cluster.pods.values()])

    async def _act(self, draw: float) -> None:
        simulation, uids = self.simulation, sorted(self.simulation.cluster.pods)
        if draw < 0.25:
            self._store(await self._admit())
        elif draw < 0.35:
            refused = await self._admit()
            self.written.add_request("create", refused, 403)
        elif draw < 0.4:
            self.slow.append((self.written.now, await self._admit()))
        elif draw < 0.45:
            self._finish_slow()
        elif draw < 0.55 and uids:
            simulation.cluster.delete(self.random.choice(uids))
        elif draw < 0.72:
            await simulation.watch.step(simulation.tracker, self.random.randint(1, 6))
        elif draw < 0.82:
            await simulation.send_sightings()
        elif draw < 0.94:
            await simulation.refund()
        else:
            await self._disturb(draw)

    async def _disturb(self, draw: float) -> None:
        simulation = self.simulation
        if draw < 0.95:
            simulation.watch.cut()
        elif draw < 0.965:
            self._finish_slow()
            simulation.wait(61)  # the watch stands still
        elif draw < 0.975:
            await self._fill_etcd()
        elif draw < 0.99:
            simulation.renew()
        else:
            self.faults += 1
            self.written.add_fault(self.faults, "leader-change", "controller-1")
            simulation.change_leader()

    async def _fill_etcd(self) -> None:
        """Admit Pods while etcd has no space: it stores none of them, and makes no version."""
        self.faults += 1
        self.written.add_fault(self.faults, NO_SPACE, "etcd")
        for _ in range(self.random.randint(1, 4)):
            self.written.add_request("create", await self._admit(), 500)
            self.simulation.wait(self.random.choice((0.1, 1, 5)))
        self.written.add_fault(self.faults, NO_SPACE, "etcd", ended=True)

    async def _admit(self) -> Pod:
        """Charge a Pod, as the validating half does; it is not stored yet."""
        self.made += 1
        made = self.written.carry(pod(f"uid-{self.made}", labels={"app": "web"}), "web")
        await self.simulation.admit(made)
        return made

    def _store(self, made: Pod, asked_at: float | None = None) -> None:
        self.simulation.cluster.create(made)
        stored = self.simulation.cluster.pods[made.metadata.uid]
        self.written.add_request("create", stored, 201, decision="Admit", asked_at=asked_at)

    def _finish_slow(self) -> None:
        """Store the Pods whose other webhooks took long; no request lives longer than a minute."""
        for asked_at, made in self.slow:
            self._store(made, asked_at)
        self.slow.clear()
