"""In any order of events, a Pod's start is counted at most once, never from a list, with its real duration.

Pods are created with gates or without, become Ready or not, fail and are deleted; watches break, versions are
compacted, the leader changes, the store is unavailable or its answers are lost, and lookups fail. Each outcome is
compared with the actual start of the Pod, and with what the controller has received.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests.controller.controller_simulation import SECOND_US
from tests.controller.start_simulation import DEADLINE, GATE, StartSimulation
from tests.core.strategies import examples
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.start_outcome import StartResult

OPERATIONS = {
    "create": 5,
    "create gated": 2,
    "ungate": 2,
    "ready": 5,
    "not ready": 2,
    "fail": 2,
    "succeed": 1,
    "evict": 1,
    "terminate": 1,
    "remove": 2,
    "watch some": 8,
    "watch all": 4,
    "cut": 1,
    "compact": 1,
    "change leader": 1,
    "send": 6,
    "store away": 1,
    "answers lost": 1,
    "store back": 3,
    "lookups fail": 1,
    "lookups work": 2,
    "second": 4,
    "half a deadline": 3,
}
operations = st.lists(
    st.tuples(st.sampled_from([name for name, weight in OPERATIONS.items() for _ in range(weight)]), st.integers(0, 5)),
    min_size=40,
    max_size=100,
)


class ActualStart(Struct):
    """The times of a Pod's start in microseconds, 0 for never."""

    created_us: int
    ungated_us: int = 0
    ready_us: int = 0
    """The first time."""
    ended_us: int = 0
    """Terminal or evicted before it was ever Ready."""
    has_lost_readiness: bool = False
    """It was Ready, and became not Ready."""


class RandomStarts:
    def __init__(self) -> None:
        self.simulation = StartSimulation()
        self.number = 0
        self.actual: dict[str, ActualStart] = {}
        self.first_source: dict[str, str] = {}
        """Where the newest controller first received the end of a Pod's start: `list` or `watch`."""
        self.source_at_outcome: dict[str, str | None] = {}
        """The same at the time of the outcome: a later list changes nothing."""
        self.gated: set[str] = set()
        """Pods that the newest controller received with a gate."""
        self._spy()

    def _spy(self) -> None:
        """Record where the current leader receives Pods from."""
        self.first_source, self.source_at_outcome, self.gated = {}, {}, set()
        starts, outcomes = self.simulation.controller._start_tracker, self.simulation.controller._outcome_sender
        enqueue = outcomes.enqueue
        listed, changed = starts.on_listed, starts.on_changed

        def record_source(source: str, handle: Callable[[Pod, object], None], received: Pod, owner: object) -> None:
            if received.spec.scheduling_gates:
                self.gated.add(received.metadata.uid)
            if is_end_of_start(received):
                self.first_source.setdefault(received.metadata.uid, source)
            handle(received, owner)

        def record_outcome(service: str, uid: str, result: StartResult, latency_us: int) -> None:
            self.source_at_outcome[uid] = self.first_source.get(uid)
            enqueue(service, uid, result, latency_us)

        outcomes.enqueue = record_outcome  # type: ignore[method-assign]  a spy
        starts.on_listed = partial(record_source, "list", listed)  # type: ignore[method-assign]  a spy
        starts.on_changed = partial(record_source, "watch", changed)  # type: ignore[method-assign]  a spy

    async def do(self, operation: str, number: int) -> None:
        simulation = self.simulation
        uids = sorted(simulation.cluster.pods)
        uid = uids[number % len(uids)] if uids else ""
        pod_operations: dict[str, Callable[[], None]] = {
            "ungate": lambda: self._ungate(uid),
            "ready": lambda: self._become_ready(uid),
            "not ready": lambda: self._lose_readiness(uid),
            "fail": lambda: self._end(uid, phase="Failed"),
            "succeed": lambda: self._end(uid, phase="Succeeded"),
            "evict": lambda: self._end(uid, reason="Evicted"),
            "terminate": lambda: self._terminate(uid),
            "remove": lambda: self._remove(uid),
        }
        environment_operations: dict[str, Callable[[], None]] = {
            "cut": simulation.watch.cut,
            "compact": simulation.cluster.compact,
            "change leader": self._change_leader,
            "store away": partial(simulation.set_available, store=False),
            "answers lost": self._lose_answers,
            "store back": self._restore_store,
            "lookups fail": partial(simulation.set_available, lookups=False),
            "lookups work": partial(simulation.set_available, lookups=True),
            "second": partial(simulation.wait, 1),
            "half a deadline": partial(simulation.wait, DEADLINE // 2),
        }
        if operation in pod_operations and uid:
            pod_operations[operation]()
        elif operation in environment_operations:
            environment_operations[operation]()
        elif operation == "watch some":
            await simulation.watch.step(simulation.tracker, number)
        elif operation == "watch all":
            await simulation.watch_all()
        elif operation == "send":
            await simulation.send_starts()
        elif operation.startswith("create") and not simulation.store.is_unavailable:
            await self._create(is_gated=operation.endswith("gated"))

    async def _create(self, *, is_gated: bool) -> None:
        self.number += 1
        uid, now_us = f"u{self.number}", self.simulation.clock.now_us()
        self.actual[uid] = ActualStart(now_us, 0 if is_gated else now_us)
        await self.simulation.create(uid, scheduling_gates=(GATE,) if is_gated else None)

    def _ungate(self, uid: str) -> None:
        actual = self.actual[uid]
        actual.ungated_us = actual.ungated_us or self.simulation.clock.now_us()
        self.simulation.cluster.update(uid, spec={"scheduling_gates": None})

    def _become_ready(self, uid: str) -> None:
        actual, current = self.actual[uid], self.simulation.cluster.pods[uid]
        is_ready = any(each.type == "Ready" and each.status == "True" for each in current.status.conditions or ())
        may_become_ready = (
            not is_ready and actual.ungated_us and not actual.ended_us and current.metadata.deletion_timestamp is None
        )
        if may_become_ready and current.status.phase not in {"Failed", "Succeeded"} and not current.status.reason:
            actual.ready_us = actual.ready_us or self.simulation.clock.now_us()
            self.simulation.set_condition(uid)

    def _lose_readiness(self, uid: str) -> None:
        self.actual[uid].has_lost_readiness = True
        self.simulation.set_condition(uid, "False")

    def _end(self, uid: str, **status: str) -> None:
        actual = self.actual[uid]
        if actual.ungated_us:
            if not actual.ready_us and not actual.ended_us:
                actual.ended_us = self.simulation.clock.now_us()
            self.simulation.cluster.update(uid, **status)

    def _terminate(self, uid: str) -> None:
        self.simulation.cluster.terminate(uid, 30)

    def _remove(self, uid: str) -> None:
        self.simulation.cluster.delete(uid)

    def _change_leader(self) -> None:
        self.simulation.renew()
        self.simulation.change_leader()
        self._spy()

    def _lose_answers(self) -> None:
        self.simulation.loses_answers = True

    def _restore_store(self) -> None:
        self.simulation.set_available(store=True)
        self.simulation.loses_answers = False

    def check(self, uid: str, is_ok: bool, seconds: float) -> None:  # noqa: FBT001  as recorded
        """Compare an outcome with the Pod's actual start."""
        assert self.source_at_outcome.get(uid) != "list", "a list causes no outcome"
        actual = self.actual[uid]
        assert actual.ungated_us, "a gated Pod has not started"
        taken_us = actual.ready_us - actual.created_us
        if not is_ok:
            in_time = actual.ready_us and taken_us <= DEADLINE * SECOND_US
            assert not in_time or actual.has_lost_readiness, "the Pod became Ready in time, and stayed so"
        elif actual.ready_us:
            assert seconds <= DEADLINE or actual.has_lost_readiness, "a success after the deadline is an error"
            since_us = actual.ungated_us if uid in self.gated else actual.created_us
            # If the first Ready was not watched, a later one counts.
            is_the_first = seconds * SECOND_US <= actual.ready_us - since_us
            assert is_the_first or actual.has_lost_readiness, "time with a gate does not count"
        else:
            assert actual.ended_us, "the Pod has ended"


def is_end_of_start(version: Pod) -> bool:
    """Return whether this version of a Pod ends its start."""
    is_ready = any(each.type == "Ready" and each.status == "True" for each in version.status.conditions or ())
    return is_ready or version.status.phase in {"Failed", "Succeeded"}


async def run_sequence(sequence: list[tuple[str, int]]) -> None:
    life = RandomStarts()
    recorded = life.simulation.recorded
    await life.simulation.watch_and_send()
    for operation, number in sequence:
        before = len(recorded)
        await life.do(operation, number)
        for uid, is_ok, seconds in recorded[before:]:
            life.check(uid, is_ok, seconds)
    assert len({uid for uid, *_ in recorded}) == len(recorded), "each start is counted at most once"


@examples(100)
@given(operations)
def test_start_is_counted_at_most_once_and_never_from_a_list(sequence: list[tuple[str, int]]) -> None:
    asyncio.run(run_sequence(sequence))
