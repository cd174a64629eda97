"""A simulation whose service counts Pod starts, and steps in a Pod's life."""

from collections.abc import Sequence
from typing import Any

from tests.controller.controller_simulation import SECOND_US, World, at
from webhook.core.breaker import Transition
from webhook.core.breaker.outcome_types import Settlement, Start
from webhook.core.kubernetes.pod import (
    ContainerState,
    ContainerStateDetail,
    ContainerStatus,
    PodCondition,
    SchedulingGate,
)
from webhook.core.quota import CounterPlan

DEADLINE = 60
STARTS = f"""
- name: web
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: web}}}}}}
  breaker:
    outcomes: {{source: PodStart, startDeadline: {DEADLINE}s}}
    errorRate: {{percent: 95, interval: 30s, consecutive: 1, minimumOutcomes: 2}}
"""
GATE = SchedulingGate("example.com/wait")
CRASHING = ContainerStatus(3, ContainerState(waiting=ContainerStateDetail("CrashLoopBackOff")))


class Starting(World):
    """A world that notes what the store is told of starts. `heard` is what it counted, in seconds, by uid."""

    def __init__(self, services: str = STARTS, **more: Any) -> None:
        self.told_of: list[Start] = []
        self.recorded: list[tuple[str, bool, float]] = []
        self.loses_answer = False
        super().__init__(services, **more)
        started = self.store.started

        async def listen(
            plan: CounterPlan, starts: Sequence[Start]
        ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
            self.told_of += starts
            answer = await started(plan, starts)
            for start, settlement in zip(starts, answer[0], strict=True):
                if settlement is Settlement.COUNTED:
                    self.recorded.append((start.uid, start.ok, start.latency_us / SECOND_US))
            if self.loses_answer:
                await self.store._refuse()
            return answer

        self.store.started = listen  # type: ignore[method-assign]  a spy

    def condition(self, uid: str, status: str = "True", kind: str = "Ready", reason: str | None = None) -> None:
        """Let a condition of a Pod change now."""
        others = tuple(one for one in self.cluster.pods[uid].status.conditions or () if one.type != kind)
        now = at(self.clock.now_us())
        self.cluster.update(uid, conditions=(*others, PodCondition(kind, status, reason, now)))

    async def see(self) -> None:
        """Let all arrive that was written, and the store hear of it."""
        await self.watch_all()
        await self.tell_starts()

    @property
    def results(self) -> dict[str, int]:
        """Return how many starts breakers were told of, by result."""
        return {result: count for (_, result), count in self.reported.started.items()}
