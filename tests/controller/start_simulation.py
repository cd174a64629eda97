"""A simulation whose service counts Pod starts, and steps in a Pod's life."""

from collections.abc import Sequence
from typing import Any

from tests.controller.controller_simulation import SECOND_US, ControllerSimulation, format_moment
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


class StartSimulation(ControllerSimulation):
    """A simulation that records the starts sent to the store, and those that it counted, with seconds."""

    def __init__(self, services: str = STARTS, **options: Any) -> None:
        self.sent_starts: list[Start] = []
        self.recorded: list[tuple[str, bool, float]] = []
        self.loses_answers = False
        super().__init__(services, **options)
        started = self.store.record_starts

        async def record(
            plan: CounterPlan, starts: Sequence[Start]
        ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
            self.sent_starts += starts
            answer = await started(plan, starts)
            for start, settlement in zip(starts, answer[0], strict=True):
                if settlement is Settlement.COUNTED:
                    self.recorded.append((start.uid, start.ok, start.latency_us / SECOND_US))
            if self.loses_answers:
                await self.store._fail()
            return answer

        self.store.record_starts = record  # type: ignore[method-assign]  a spy

    def set_condition(self, uid: str, status: str = "True", kind: str = "Ready", reason: str | None = None) -> None:
        """Change a condition of a Pod now."""
        others = tuple(each for each in self.cluster.pods[uid].status.conditions or () if each.type != kind)
        now = format_moment(self.clock.now_us())
        self.cluster.update(uid, conditions=(*others, PodCondition(kind, status, reason, now)))

    async def watch_and_send(self) -> None:
        """Deliver all versions that were written; send the starts in them to the store."""
        await self.watch_all()
        await self.send_starts()

    @property
    def results(self) -> dict[str, int]:
        """Return the number of counted starts by result."""
        return {result: count for (_, result), count in self.reported.started.items()}
