"""A leader's day in virtual time: Pods come, wait, start, fail and go, and the policy, the watch and the leader change.

Controller, release loop and store are the real ones; the cluster is simulated, and keeps no past.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from tests.controller.controller_simulation import ControllerSimulation, compile_policy, pod
from tests.controller.start_simulation import StartSimulation
from webhook.adapters.memory_queue_index import MemoryQueueIndex
from webhook.controller.pod_lifecycle import PodObserver
from webhook.controller.release.gated_groups import find_no_size
from webhook.controller.release.gated_pods import GatedPod, GatedPods
from webhook.controller.release.loop import ReleaseLoop, ReleaseReports
from webhook.controller.release.released_groups import ReleasedGroups, build_group_facts
from webhook.controller.rollout.pod_figures import PodFiguresObserver
from webhook.controller.unjudged_pods import UnjudgedPods, UnjudgedReports
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.kubernetes.pod import Pod, SchedulingGate

STEP_SECONDS = 60
HOUR_STEPS = 3600 // STEP_SECONDS
_LIFE_STEPS = 10
_PODS_A_STEP = 6
_ROUNDS = 3
_POLICY = """
- name: web
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: web}}}}}}
  quota:
    windows: [{{window: 1m, hard: {{pods: {limit}}}}}, {{window: 24h, hard: {{pods: 100000}}}}]
    standing: {{hard: {{pods: 900}}}}
  breaker:
    outcomes: {{source: PodStart, startDeadline: 60s}}
    errorRate: {{percent: 95, interval: 30s, consecutive: 3, minimumOutcomes: 5}}
- name: batch
  match: {{namespaces: [batch]}}
  quota: {{windows: [{{window: 1m, hard: {{pods: 6}}}}], whenExceeded: Queue, queue: {{maxPods: 50, maxWait: 10m}}}}
"""


@dataclass
class Gates:
    """A `ports.GateClient` of the simulated cluster."""

    simulation: ControllerSimulation
    released: int = 0
    expired: int = 0

    async def remove(self, namespace: str, name: str, uid: str) -> bool:  # noqa: ARG002  as in the port
        if uid not in self.simulation.cluster.pods:
            return False
        self.simulation.cluster.update(uid, spec={"scheduling_gates": None})
        self.released += 1
        return True

    async def is_reachable(self) -> bool:
        return True

    async def delete(self, namespace: str, name: str, uid: str) -> bool:  # noqa: ARG002  as in the port
        if uid in self.simulation.cluster.pods:
            self.simulation.cluster.delete(uid)
            self.expired += 1
        return True


@dataclass
class VirtualDay:
    """`run` lets time pass; `created` counts the Pods."""

    simulation: StartSimulation = field(default_factory=lambda: StartSimulation(_POLICY.format(limit=20)))
    created: int = 0
    further: tuple[PodObserver, ...] = ()
    """Observers of the watch that a test adds."""
    _numbers: "count[int]" = field(default_factory=count)
    _steps: int = 0
    _living: deque[tuple[int, str]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.gates = Gates(self.simulation)
        self._index = MemoryQueueIndex(self.simulation.clock)
        self._lead()

    def _lead(self) -> None:
        """Begin a term of leadership."""
        simulation, gated, released = self.simulation, GatedPods(), ReleasedGroups()
        unjudged = UnjudgedPods(UnjudgedReports(lambda _: None, lambda _, __: None), simulation.clock.now_us)
        figures = PodFiguresObserver(simulation.clock.now_us)
        simulation.observers = (unjudged, figures, gated, released, *self.further)
        simulation.change_leader()
        reports = ReleaseReports(_ignore_release, _ignore_release, _ignore, _ignore, _ignore)
        parts = (gated, simulation.store, self._index, self.gates, lambda: simulation.policy, reports)
        self._loop = ReleaseLoop(
            *parts, rate=300, clock=simulation.clock, groups=build_group_facts(released, find_no_size)
        )

    async def run(self, hours: float) -> None:
        """Let hours pass."""
        for _ in range(round(hours * HOUR_STEPS)):
            self._steps += 1
            self.simulation.wait(STEP_SECONDS)
            if self._steps % HOUR_STEPS == 0:
                await self._change_something(self._steps // HOUR_STEPS)
            await self._create_pods()
            self._end_pods()
            await self._act()
            self.simulation.renew()
            self._forget_past()

    async def _change_something(self, hour: int) -> None:
        """Change the policy, break the watch, or change the leader, in turn."""
        if hour % 4 == 1:
            self.simulation.policy = compile_policy(_POLICY.format(limit=20 + hour % 3))
            self.simulation.watch.list_again()
        elif hour % 4 == 2:
            self.simulation.watch.cut()
        elif hour % 4 == 3:
            self.simulation.cluster.compact()
            self.simulation.watch.cut()
        else:
            self._lead()

    def _forget_past(self) -> None:
        """Drop what the simulation records of the past, which no controller holds."""
        simulation, cluster = self.simulation, self.simulation.cluster
        oldest = simulation.lease.version if simulation.lease is not None else 0
        cluster.log = [entry for entry in cluster.log if entry[0] > oldest]
        cluster.created_uids.clear()
        simulation.reported.transitions.clear()
        simulation.watch.lookups.clear()
        simulation.sent_starts.clear()
        simulation.recorded.clear()

    async def _create_pods(self) -> None:
        for number in range(_PODS_A_STEP):
            uid = f"uid-{next(self._numbers)}"
            if number % 2:
                await self._create_waiting(uid)
            else:
                new = pod(uid)
                if (await self.simulation.admit(new)).refused is None and number + self._steps % 7:
                    self._add(new)  # else its creation fails after its admission

    async def _create_waiting(self, uid: str) -> None:
        labels = {"podgate.io/service": "batch"}
        new = pod(uid, labels=labels, namespace="batch", scheduling_gates=(SchedulingGate(QUEUE_GATE),))
        if await self._index.register(self.simulation.policy.plans["batch"], uid):
            self._add(new)

    def _add(self, new: Pod) -> None:
        self.simulation.cluster.create(new)
        self._living.append((self._steps, new.metadata.uid))
        self.created += 1

    def _end_pods(self) -> None:
        """Let the youngest Pods start, some of them fail, and the oldest go."""
        cluster = self.simulation.cluster
        for step, uid in self._living:
            if step == self._steps - 1 and uid in cluster.pods and cluster.pods[uid].spec.scheduling_gates is None:
                self.simulation.set_condition(uid)
                cluster.update(uid, phase="Failed" if hash_of(uid) % 5 == 0 else "Running")
        while self._living and self._living[0][0] <= self._steps - _LIFE_STEPS:
            _, uid = self._living.popleft()
            if uid in cluster.pods:
                cluster.delete(uid)

    async def _act(self) -> None:
        """Let the controller and the release loop do what they do within a step."""
        simulation = self.simulation
        await simulation.watch_all()
        await simulation.send_sightings()
        simulation.tracker.enqueue_ended()
        await simulation.send_starts()
        await simulation.refund()
        if self._steps % 10 == 0:
            await simulation.repair()
        for _ in range(_ROUNDS):
            await simulation.store.tick(simulation.policy.list_breakers())
            await self._loop.round()
            await simulation.watch.step(simulation.tracker)


def hash_of(uid: str) -> int:
    """Return the number of a uid."""
    return int(uid.rpartition("-")[2])


def _ignore(_: object) -> None:
    pass


def _ignore_release(_: GatedPod, __: object, ___: float) -> None:
    pass
