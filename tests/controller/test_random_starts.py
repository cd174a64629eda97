"""In any order of events, a Pod's start is counted at most once, never from a list, with its real duration.

Pods come to be behind gates or not, become Ready or do not, fail and go; watches break, versions vanish, controllers
die, the store is away or its answers are lost, and so is the API server. What each controller was shown by the watch is
written down beside, and every outcome is held against it.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests.controller.controller_simulation import SECOND_US
from tests.controller.start_simulation import DEADLINE, GATE, Starting
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
    "see some": 8,
    "see all": 4,
    "cut": 1,
    "compact": 1,
    "lead anew": 1,
    "act": 6,
    "store away": 1,
    "answers lost": 1,
    "store back": 3,
    "blind": 1,
    "sighted": 2,
    "second": 4,
    "half a deadline": 3,
}
operations = st.lists(
    st.tuples(st.sampled_from([name for name, weight in OPERATIONS.items() for _ in range(weight)]), st.integers(0, 5)),
    min_size=40,
    max_size=100,
)


class Truth(Struct):
    """What is true of a Pod, in microseconds, 0 for never."""

    created_us: int
    ungated_us: int = 0
    ready_us: int = 0
    """First."""
    ended_us: int = 0
    """Terminal, or taken away, before it was ever Ready."""
    has_lost_it: bool = False
    """It was Ready, and is not any more."""


class Life:
    def __init__(self) -> None:
        self.simulation = Starting()
        self.number = 0
        self.truth: dict[str, Truth] = {}
        self.first_shown: dict[str, str] = {}
        """How the newest controller was first shown what ended a Pod's start: `list` or `watch`."""
        self.noted_after: dict[str, str | None] = {}
        """How a Pod had been shown when its outcome was noted: a list that shows it later changes nothing."""
        self.gated: set[str] = set()
        """Whom the newest controller was shown behind a gate."""
        self._spy()

    def _spy(self) -> None:
        """Note by what the controller that leads now is shown Pods."""
        self.first_shown, self.noted_after, self.gated = {}, {}, set()
        starts, outcomes = self.simulation.controller._start_tracker, self.simulation.controller._outcome_sender
        note = outcomes.enqueue
        listed, changed = starts.listed, starts.changed

        def by(way: str, show: Callable[[Pod, object], None], found: Pod, of: object) -> None:
            if found.spec.scheduling_gates:
                self.gated.add(found.metadata.uid)
            if is_over(found):
                self.first_shown.setdefault(found.metadata.uid, way)
            show(found, of)

        def noted(service: str, uid: str, result: StartResult, latency_us: int) -> None:
            self.noted_after[uid] = self.first_shown.get(uid)
            note(service, uid, result, latency_us)

        outcomes.enqueue = noted  # type: ignore[method-assign]  a spy
        starts.listed = partial(by, "list", listed)  # type: ignore[method-assign]  a spy
        starts.changed = partial(by, "watch", changed)  # type: ignore[method-assign]  a spy

    async def do(self, operation: str, number: int) -> None:
        simulation = self.simulation
        uids = sorted(simulation.cluster.pods)
        uid = uids[number % len(uids)] if uids else ""
        of_pods: dict[str, Callable[[], None]] = {
            "ungate": lambda: self._ungate(uid),
            "ready": lambda: self._ready(uid),
            "not ready": lambda: self._lose_it(uid),
            "fail": lambda: self._end(uid, phase="Failed"),
            "succeed": lambda: self._end(uid, phase="Succeeded"),
            "evict": lambda: self._end(uid, reason="Evicted"),
            "terminate": lambda: self._terminate(uid),
            "remove": lambda: self._remove(uid),
        }
        of_the_world: dict[str, Callable[[], None]] = {
            "cut": simulation.watch.cut,
            "compact": simulation.cluster.compact,
            "lead anew": self._lead_anew,
            "store away": partial(simulation.answer, store=False),
            "answers lost": self._lose_answers,
            "store back": self._store_back,
            "blind": partial(simulation.answer, looks=False),
            "sighted": partial(simulation.answer, looks=True),
            "second": partial(simulation.wait, 1),
            "half a deadline": partial(simulation.wait, DEADLINE // 2),
        }
        if operation in of_pods and uid:
            of_pods[operation]()
        elif operation in of_the_world:
            of_the_world[operation]()
        elif operation == "see some":
            await simulation.watch.step(simulation.tracker, number)
        elif operation == "see all":
            await simulation.watch_all()
        elif operation == "act":
            await simulation.tell_starts()
        elif operation.startswith("create") and not simulation.store.is_away:
            await self._create(is_gated=operation.endswith("gated"))

    async def _create(self, *, is_gated: bool) -> None:
        self.number += 1
        uid, now_us = f"u{self.number}", self.simulation.clock.now_us()
        self.truth[uid] = Truth(now_us, 0 if is_gated else now_us)
        await self.simulation.create(uid, scheduling_gates=(GATE,) if is_gated else None)

    def _ungate(self, uid: str) -> None:
        truth = self.truth[uid]
        truth.ungated_us = truth.ungated_us or self.simulation.clock.now_us()
        self.simulation.cluster.update(uid, spec={"scheduling_gates": None})

    def _ready(self, uid: str) -> None:
        truth, found = self.truth[uid], self.simulation.cluster.pods[uid]
        is_ready = any(one.type == "Ready" and one.status == "True" for one in found.status.conditions or ())
        may = not is_ready and truth.ungated_us and not truth.ended_us and found.metadata.deletion_timestamp is None
        if may and found.status.phase not in {"Failed", "Succeeded"} and not found.status.reason:
            truth.ready_us = truth.ready_us or self.simulation.clock.now_us()
            self.simulation.condition(uid)

    def _lose_it(self, uid: str) -> None:
        self.truth[uid].has_lost_it = True
        self.simulation.condition(uid, "False")

    def _end(self, uid: str, **status: str) -> None:
        truth = self.truth[uid]
        if truth.ungated_us:
            if not truth.ready_us and not truth.ended_us:
                truth.ended_us = self.simulation.clock.now_us()
            self.simulation.cluster.update(uid, **status)

    def _terminate(self, uid: str) -> None:
        self.simulation.cluster.terminate(uid, 30)

    def _remove(self, uid: str) -> None:
        self.simulation.cluster.delete(uid)

    def _lead_anew(self) -> None:
        self.simulation.renew()
        self.simulation.lead()
        self._spy()

    def _lose_answers(self) -> None:
        self.simulation.loses_answer = True

    def _store_back(self) -> None:
        self.simulation.answer(store=True)
        self.simulation.loses_answer = False

    def check(self, uid: str, is_ok: bool, seconds: float) -> None:  # noqa: FBT001  as it was heard
        """Hold against what is true what was heard just now."""
        assert self.noted_after.get(uid) != "list", "what a list shows is no outcome"
        truth = self.truth[uid]
        assert truth.ungated_us, "who is gated has not begun"
        taken_us = truth.ready_us - truth.created_us
        if not is_ok:
            in_time = truth.ready_us and taken_us <= DEADLINE * SECOND_US
            assert not in_time or truth.has_lost_it, "it was Ready in time, and is"
        elif truth.ready_us:
            assert seconds <= DEADLINE or truth.has_lost_it, "its success may be seen late"
            since_us = truth.ungated_us if uid in self.gated else truth.created_us
            # Where its first Ready came and went unwatched, a later one stands for it.
            is_the_first = seconds * SECOND_US <= truth.ready_us - since_us
            assert is_the_first or truth.has_lost_it, "time behind a gate does not count"
        else:
            assert truth.ended_us, "it has succeeded"


def is_over(found: Pod) -> bool:
    """Whether what is shown would end a start."""
    is_ready = any(one.type == "Ready" and one.status == "True" for one in found.status.conditions or ())
    return is_ready or found.status.phase in {"Failed", "Succeeded"}


async def live(sequence: list[tuple[str, int]]) -> None:
    life = Life()
    recorded = life.simulation.recorded
    await life.simulation.see()
    for operation, number in sequence:
        before = len(recorded)
        await life.do(operation, number)
        for uid, is_ok, seconds in recorded[before:]:
            life.check(uid, is_ok, seconds)
    assert len({uid for uid, *_ in recorded}) == len(recorded), "once at most"


@examples(100)
@given(operations)
def test_start_is_counted_at_most_once_and_never_from_a_list(sequence: list[tuple[str, int]]) -> None:
    asyncio.run(live(sequence))
