"""The queue: gated Pods and groups, a store that goes away, an API server that refuses, and leaders that change."""

from random import Random

from tests.chaos.history import History
from tests.chaos.virtual.recorded_store import RecordedStore
from tests.chaos.virtual.written import Written
from tests.controller.release.group_simulation import GroupSimulation, member_of
from tests.controller.release.queue_simulation import FakeGates, ForgetfulStore
from webhook.controller.release.queue_reader import QueueSelection
from webhook.core.quota import Acquire, AcquireGroup, CounterPlan, Receipt
from webhook.errors import GateError, StoreUnavailableError

SERVICES = """
- name: web
  match: {namespaces: [shop]}
  quota:
    windows: [{window: 64s, hard: {pods: 7}}]
    whenExceeded: Queue
    queue: {maxPods: 999, maxWait: 100h, whenExpired: Keep, groups: {from: [Annotations], waitFor: 2m}}
"""
STEPS = 160
REST_SECONDS_MAX = 1800


class FailingStore(RecordedStore, ForgetfulStore):
    """A store that gives no answer to the next `unavailable` calls."""

    unavailable = 0

    async def acquire(self, request: Acquire) -> Receipt:
        self._fail()
        return await super().acquire(request)

    async def acquire_group(self, request: AcquireGroup) -> Receipt:
        self._fail()
        return await super().acquire_group(request)

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        self._fail()
        return await super().refund(plan, uid)

    def _fail(self) -> None:
        if self.unavailable:
            self.unavailable -= 1
            raise StoreUnavailableError("the store is away")


class RefusingGates(FakeGates):
    """The API server, whose answers are lost; after that, another webhook may refuse the next attempt."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random

    def _fail(self, uid: str) -> None:
        try:
            super()._fail(uid)
        except GateError:
            if self.loses_answers and self.random.random() < 0.5:
                self.refused.add(uid)
            raise


class QueueStage(GroupSimulation):
    """A cluster whose Pods wait. `play` returns its history."""

    store: FailingStore
    written: Written

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  the same history again
        self.seed = seed
        self.made = self.groups = 0
        self.known: set[str] = set()
        super().__init__(SERVICES)

    def begin_term(self) -> None:
        if not isinstance(self.store, FailingStore):
            self.written = Written(self.clock, self.seed, SERVICES)
            self.store, self.gates = FailingStore(self.clock, self.written), RefusingGates(self.random)
        super().begin_term()

    async def play(self) -> History:
        for _ in range(STEPS):
            await self._act(self.random.random())
            await self.run_rounds(self.random.choice((0.1, 0.5, 2, 10)))
            self._write_releases()
        self.gates.refused.clear()
        self.gates.trouble = self.store.unavailable = 0
        for _ in range(REST_SECONDS_MAX // 10):
            await self.run_rounds(10)
            self._write_releases()
            if all(pod.spec.scheduling_gates is None for pod in self.gates.pods.values()):
                break
        document = await self.loop.queue.make_document(QueueSelection())
        queue = {"pods": [{"uid": row.uid} for row in document.pods]}
        return self.written.finish([*self.gates.pods.values()], queue)

    async def _act(self, draw: float) -> None:
        if draw < 0.14:
            self.groups += 1
            await self._make_group(f"g{self.groups}", self.random.randint(2, 5))
        elif draw < 0.3:
            self.made += 1
            await self._make(f"single-{self.made}")
        elif draw < 0.4:
            self.store.unavailable = 2
        elif draw < 0.48:
            self.gates.trouble, self.gates.loses_answers = self.random.randint(1, 4), self.random.random() < 0.5
        elif draw < 0.54:
            uids = self.gates.ungated[-3:] if self.random.random() < 0.5 else sorted(self.gates.pods)
            self.gates.refused = set(self.random.sample(uids, min(2, len(uids))))
        elif draw < 0.62:
            self.gates.refused.clear()
        elif draw < 0.67:
            self._change_leader()

    def _change_leader(self) -> None:
        self.loop._removal.attempts.cancel()
        self.lead()
        self.show(*self.gates.pods)

    async def _make_group(self, name: str, size: int) -> None:
        for index in range(size):
            await self._make(f"{name}-{index}", name, size, index)

    async def _make(self, uid: str, group: str = "", size: int = 0, index: int = 0) -> None:
        """Create a gated Pod, as the API server stores it after both halves."""
        if group:
            await self.join(member_of(group, size, str(index)), uid)
        else:
            await self.create(uid)
        made = self.written.carry(self.gates.pods[uid], "web")
        self.gates.pods[uid] = made
        self.written.add_request("create", made, 201, decision="Queue")
        self.observer.on_changed(made, self._find_ownership(made, self.policy))

    def _write_releases(self) -> None:
        for uid in self.gates.ungated:
            if uid not in self.known and uid in self.gates.pods:
                self.known.add(uid)
                self.written.add_request("patch", self.gates.pods[uid], 200, user="podgate-controller")
                self.show(uid)
