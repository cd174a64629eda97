"""A simulated cluster whose Pods wait in groups."""

from typing import Any

from msgspec.structs import replace

from tests.controller.controller_simulation import format_moment
from tests.controller.release.queue_simulation import SECOND_US, QueueSimulation
from webhook.controller.release.gated_groups import GroupFacts, GroupKey
from webhook.controller.release.queue_reader import QueueSelection
from webhook.controller.release.released_groups import ReleasedGroups, build_group_facts
from webhook.core.groups.completeness import Size
from webhook.core.groups.membership import GROUP_ANNOTATION, Membership
from webhook.core.kubernetes.pod import PodCondition, PodStatus
from webhook.core.policy_fields import GroupSource
from webhook.core.reporting.queue_document import QueueRow

SERVICES = """
- name: web
  match: {namespaces: [shop]}
  quota:
    windows: [{window: 64s, hard: {pods: 4}}]
    whenExceeded: Queue
    queue: {maxPods: 99, maxWait: 1h, whenExpired: Keep, groups: {from: [Annotations, Job], waitFor: 5m}}
"""
SINGLE = SERVICES.replace("waitFor: 5m", "waitFor: 5m, whenIncomplete: Single")
JOB = Membership(GroupSource.JOB, "train", "job-uid")


def member_of(name: str, size: int, index: str = "") -> Membership:
    return Membership(GroupSource.ANNOTATIONS, name, size=size, index=index)


class GroupSimulation(QueueSimulation):
    """A cluster with groups; `sizes` are those that the API server tells, by name."""

    def __init__(self, services: str = SERVICES) -> None:
        self.sizes: dict[str, Size] = {}
        super().__init__(services)

    def build_group_facts(self) -> GroupFacts:
        self.live = ReleasedGroups()
        return build_group_facts(self.live, self._find_size)

    def _find_size(self, key: GroupKey) -> Size | None:
        return self.sizes.get(key.name)

    async def join(self, group: Membership, *uids: str, **fields: Any) -> None:
        for uid in uids:
            await self.create(uid, annotations={GROUP_ANNOTATION: group.encode()}, **fields)

    def show(self, *uids: str) -> None:
        """Let the watch show Pods as they are in the cluster."""
        for uid in uids:
            found = self._find_ownership(self.gates.pods[uid], self.policy)
            self.observer.on_changed(self.gates.pods[uid], found)
            self.live.on_changed(self.gates.pods[uid], found)

    def end(self, *uids: str, phase: str = "Succeeded") -> None:
        """Let released Pods end, which were scheduled at the moment of this call."""
        scheduled = PodCondition("PodScheduled", "True", last_transition_time=format_moment(self.clock.now_us()))
        for uid in uids:
            self.gates.pods[uid] = replace(self.gates.pods[uid], status=PodStatus(phase, conditions=(scheduled,)))
        self.show(*uids)

    async def run_and_show(self, seconds: float = 0) -> None:
        for _ in range(max(1, round(seconds))):
            await self.run_rounds(1)
            self.show(*self.gates.pods)

    async def read_rows(self) -> dict[str, QueueRow]:
        self.clock.set(self.clock.now_us() + SECOND_US)  # places are kept for a second
        document = await self.loop.queue.make_document(QueueSelection())
        return {row.uid: row for row in document.pods}
