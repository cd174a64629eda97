"""A day of a leader in virtual time: nothing that it holds grows with the Pods that have come and gone."""

import os
from dataclasses import dataclass, field

from tests.soak.holdings import Holdings
from tests.soak.virtual_day import VirtualDay
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import OwnedPod

DAYS = 7 if os.environ.get("PODGATE_TEST_SOAK") else 1
"""`make soak` lets a week pass."""
_WARM_HOURS = 8.0
"""Until the uids of deleted Pods, which are kept for an hour, and the caches are as many as they will be."""
_BLOCKS_A_POD_MAX = 0.2
_OBJECTS_MAX = 20


@dataclass
class Forgetting:
    """An observer with a leak: it keeps the uid of each Pod that it has seen."""

    seen: dict[str, list[str]] = field(default_factory=dict)

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        pass

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        self.on_changed(pod, found)

    def on_list_complete(self) -> None:
        pass

    def on_changed(self, pod: Pod, _: OwnedPod | None) -> None:
        self.seen.setdefault(pod.metadata.uid, [])

    def on_deleted(self, uid: str) -> None:
        pass


async def test_a_leader_holds_no_more_after_a_day_than_after_a_morning() -> None:
    day = VirtualDay()
    await day.run(_WARM_HOURS)
    before, pods = Holdings.take(), day.created
    await day.run(DAYS * 24 - _WARM_HOURS)
    after, pods = Holdings.take(), day.created - pods
    grown = after.blocks - before.blocks
    said = f"{pods} Pods, {day.gates.released} released, {day.gates.expired} expired: {grown} blocks of {before.blocks}"
    print(said)  # noqa: T201  what a person who runs the long form wants to know
    assert pods > 3_000
    assert day.gates.released > 1_000
    assert grown < _BLOCKS_A_POD_MAX * pods, after.find_grown(before, 0)
    assert after.find_grown(before, _OBJECTS_MAX) == {}
    assert (after.tasks, after.descriptors) == (before.tasks, before.descriptors)


async def test_an_observer_that_keeps_each_pod_is_noticed() -> None:
    day = VirtualDay(further=(Forgetting(),))
    await day.run(2)
    before, pods = Holdings.take(), day.created
    await day.run(2)
    assert Holdings.take().blocks - before.blocks >= _BLOCKS_A_POD_MAX * (day.created - pods)
