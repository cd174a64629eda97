"""A cluster of gated Pods, a store, an index and a release loop, stepped manually."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from tests.controller.controller_simulation import compile_policy, format_moment, pod
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_store import MemoryStore
from webhook.controller.release.gated_groups import GroupFacts
from webhook.controller.release.gated_pods import GatedPod, GatedPods
from webhook.controller.release.loop import ReleaseLoop, ReleaseReports
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod, SchedulingGate
from webhook.core.pods import ownership
from webhook.core.quota import Acquire, CounterPlan, Receipt
from webhook.core.reporting.queue_document import QueueDepth
from webhook.errors import GateError, StoreUnavailableError
from webhook.ports import Clock

WEB = """
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 64s, hard: {pods: 2}}], whenExceeded: Queue, queue: {maxPods: 9, maxWait: 10m}}
"""
SECOND_US = 1_000_000


class FakeIndex:
    """A `ports.QueueIndex` that can be lost."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.times: dict[str, dict[str, int]] = {}
        self.is_available = True

    async def register(self, plan: CounterPlan, uid: str) -> bool:
        self.times.setdefault(plan.service, {}).setdefault(uid, self._clock.now_us())
        return True

    async def restore(self, plan: CounterPlan, times_us: Mapping[str, int]) -> None:
        self.times.setdefault(plan.service, {}).update(times_us)

    async def list_waiting(self, plan: CounterPlan) -> Mapping[str, int]:
        if not self.is_available:
            raise StoreUnavailableError("the store is away")
        return dict(self.times.get(plan.service, {}))

    async def find_times_us(self, plan: CounterPlan, uids: Sequence[str]) -> Mapping[str, int]:
        return {uid: at_us for uid, at_us in (await self.list_waiting(plan)).items() if uid in uids}

    async def count(self, plan: CounterPlan) -> int:
        return len(self.times.get(plan.service, {}))

    async def forget(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        for uid in uids:
            self.times.get(plan.service, {}).pop(uid, None)


class ForgetfulStore(MemoryStore):
    """A store that can lose its data, as Redis does after FLUSHALL."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.on_loss: Callable[[], None] = lambda: None
        self.loses_at_next_answer = False
        self.charged_together: list[int] = []
        """How many Pods were charged at each moment."""
        self._charging = 0

    async def acquire(self, request: Acquire) -> Receipt:
        self._charging += 1
        await asyncio.sleep(0)  # until those of the same call have asked, too
        if self._charging:
            self.charged_together.append(self._charging)
            self._charging = 0
        if self.loses_at_next_answer:
            self.loses_at_next_answer = False
            self.lose()
        return await super().acquire(request)

    def lose(self) -> None:
        self._states.clear()
        self.on_loss()


class FakeGates:
    """A `ports.GateClient`: the Pods of a cluster, and what the API server did. `trouble` fails the next calls."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.ungated: list[str] = []
        self.deleted: list[str] = []
        self.trouble = 0
        self.refused: set[str] = set()
        """Pods that the API server refuses to change."""
        self.refusals: list[str] = []
        self.unanswered = 0
        self.loses_answers = False
        """Whether `trouble` loses the answers only."""

    async def remove(self, namespace: str, name: str, uid: str) -> bool:  # noqa: ARG002  as in the port
        await asyncio.sleep(0)
        self._fail(uid)
        if uid not in self.pods:
            return False
        self._ungate(uid)
        return True

    async def delete(self, namespace: str, name: str, uid: str) -> bool:  # noqa: ARG002  as in the port
        self._fail(uid)
        self.deleted.append(uid)
        return self.pods.pop(uid, None) is not None

    async def is_reachable(self) -> bool:
        await asyncio.sleep(0)
        return True

    def _ungate(self, uid: str) -> None:
        if self.pods[uid].spec.scheduling_gates is None:
            return
        self.pods[uid] = replace(self.pods[uid], spec=replace(self.pods[uid].spec, scheduling_gates=None))
        self.ungated.append(uid)

    def _fail(self, uid: str) -> None:
        if uid in self.refused:
            self.refusals.append(uid)
            raise GateError(f"shop/{uid}", "cannot release: HTTP 403: it is refused", "forbidden")
        if self.trouble:
            self.trouble -= 1
            self.unanswered += 1
            if self.loses_answers and uid in self.pods:
                self._ungate(uid)
            raise GateError(f"shop/{uid}", "cannot release: no answer in time")


async def settle() -> None:
    """Let tasks go on that wait for nothing but their turn."""
    for _ in range(40):
        await asyncio.sleep(0)


class QueueSimulation:
    """The leader's part: `list_all` and `list_page` show Pods to the loop; `run_rounds` runs the loop for a time."""

    def __init__(self, services: str = WEB, head: str = "", rate: int = 300) -> None:
        self.rate = rate
        self.clock = VirtualClock()
        self.clock.set(1_800_000_000 * SECOND_US)
        self.own_clock: Clock = self.clock
        """That of the leader; `clock` is that of the store and of the cluster."""
        self.store = ForgetfulStore(self.clock)
        self.index, self.gates = FakeIndex(self.clock), FakeGates()
        self.policy = compile_policy(services, head)
        self.released: list[str] = []
        self.latencies: list[float] = []
        """From the moment at which a Pod was due to its release, in seconds."""
        self.expired: list[str] = []
        self.troubles: list[str] = []
        self.waiting: Mapping[str, int] = {}
        self.depths: Sequence[QueueDepth] = ()
        self.wanted: tuple[str, ...] = ()
        """Uids of Pods that an override releases."""
        self.lead()

    def lead(self) -> None:
        """Begin a term of leadership: nothing is known but the store and the cluster."""
        self.begin_term()
        self.list_all()

    def begin_term(self) -> None:
        self.observer = GatedPods()
        reports = ReleaseReports(
            self._record_release,
            lambda pod, _, __: self.expired.append(pod.waiting.service),
            self._set_waiting,
            self._set_depths,
            self.troubles.append,
        )
        arguments = (self.observer, self.store, self.index, self.gates, lambda: self.policy, reports)
        groups = self.build_group_facts()
        self.loop = ReleaseLoop(*arguments, lambda: self.wanted, rate=self.rate, clock=self.own_clock, groups=groups)
        self.store.on_loss = self.loop.on_lost

    def build_group_facts(self) -> GroupFacts:
        """Return what the cluster tells of groups: nothing."""
        return GroupFacts()

    def _record_release(self, pod: GatedPod, _: float, latency_seconds: float) -> None:
        self.released.append(pod.waiting.service)
        self.latencies.append(latency_seconds)

    def _set_waiting(self, counts: Mapping[str, int]) -> None:
        self.waiting = counts

    def _set_depths(self, depths: Sequence[QueueDepth]) -> None:
        self.depths = depths

    def list_all(self) -> None:
        self.observer.on_list_begun(self.policy)
        for gated in (*self.gates.pods.values(),):
            self.list_page(gated.metadata.uid)
        self.observer.on_list_complete()

    def list_page(self, *uids: str) -> None:
        for uid in uids:
            self.observer.on_listed(self.gates.pods[uid], self._find_ownership(self.gates.pods[uid], self.policy))

    async def create(self, *uids: str, **fields: object) -> None:
        """Create gated Pods, as the API server stores them after both calls."""
        for uid in uids:
            labels = fields.pop("labels", {"app": "web"})
            created = pod(uid, labels=labels, scheduling_gates=(SchedulingGate(QUEUE_GATE),), **fields)  # type: ignore[arg-type]
            now = format_moment(self.clock.now_us())
            created = replace(created, metadata=replace(created.metadata, creation_timestamp=now))
            self.gates.pods[uid] = created
            found = self._find_ownership(created, self.policy)
            if found is not None:
                await self.index.register(self.policy.plans[found.service], uid)
            self.observer.on_changed(created, found)

    def delete(self, uid: str) -> None:
        self.gates.pods.pop(uid, None)
        self.observer.on_deleted(uid)

    async def run_rounds(self, seconds: float = 0) -> None:
        """Run the loop for this long, every 100 ms."""
        for _ in range(max(1, round(seconds * 10))):
            self.clock.set(self.clock.now_us() + (SECOND_US // 10 if seconds else 0))
            await self.loop.round()
            for _ in range(5):
                await asyncio.sleep(0)

    async def run_settled(self, seconds: float) -> None:
        """Run the loop for this long, every 100 ms, and let what it has begun go on between."""
        for _ in range(round(10 * seconds)):
            await self.run_rounds(0.1)
            await settle()

    @staticmethod
    def _find_ownership(found: Pod, policy: CompiledPolicy) -> ownership.OwnedPod | None:
        return ownership.find_ownership(found, policy, {})
