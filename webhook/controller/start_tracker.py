"""Start tracker: determines the outcome of each Pod start for breakers that use it, at most one for each Pod.

A state that is first seen in a list is no outcome: the time of its change is unknown. A Pod that a list shows while it
is starting is tracked from then on, if it is younger than startDeadline. When the deadline passes, the Pod is looked up
in the cluster, so that neither a lagging watch nor an unavailable API server causes errors.
"""

import asyncio
import heapq
from collections.abc import Mapping

from msgspec import Struct

from webhook.controller.outcome_sender import StartOutcomeSender
from webhook.controller.reports import OVERFLOW, ControllerReports, ControllerTiming
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import OwnedPod
from webhook.core.pods.start_outcome import StartOutcome, find_cause, is_gated, judge_start, read_created_us
from webhook.core.policy_fields import OutcomeSource
from webhook.ports import Clock, PodWatch

STARTS_MAX = 100_000
"""Pods that are tracked at one time: it bounds memory. Beyond it new ones have no outcome."""


class _Start(Struct, gc=False):
    """A Pod from its creation to `due_us`. `since_us` is 0 while it has a scheduling gate."""

    service: str
    namespace: str
    name: str
    since_us: int = 0
    due_us: int = 0
    is_settled: bool = False


class StartTracker:
    """A `PodObserver`. Remembers Pods with an outcome until their deadline, so that none has two."""

    def __init__(
        self,
        watch: PodWatch,
        outcomes: StartOutcomeSender,
        clock: Clock,
        reports: ControllerReports,
        timing: ControllerTiming,
    ) -> None:
        self._watch = watch
        self._outcome_sender = outcomes
        self._clock = clock
        self._reports = reports
        self._timing = timing
        self._deadlines_us: Mapping[str, int] = {}
        """By service whose breaker uses start outcomes."""
        self._pods: dict[str, _Start] = {}
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._pods)

    # --- events of the watch ---

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        deadlines_us = _list_deadlines_us(compiled)
        if deadlines_us == self._deadlines_us:
            return
        self._deadlines_us = deadlines_us
        self._pods = {uid: pod for uid, pod in self._pods.items() if pod.service in deadlines_us}
        self._due = []
        for uid, pod in self._pods.items():
            self._wait_for(uid, pod)

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        self._update(pod, found, is_listed=True)

    def on_list_complete(self) -> None:
        """Do nothing: each Pod of a list is judged by itself."""

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        self._update(pod, found, is_listed=False)

    def on_deleted(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def _update(self, pod: Pod, found: OwnedPod | None, *, is_listed: bool) -> None:
        uid = pod.metadata.uid
        start = self._find_start(pod, found)
        if start is None or start.is_settled:
            return
        if not start.since_us:
            if is_gated(pod):
                return
            start.since_us = self._clock.now_us()
            self._wait_for(uid, start)
        result = judge_start(pod, start.since_us, self._deadlines_us[start.service], self._clock.now_us())
        if result is not None and is_listed:
            start.is_settled = True
        elif result is not None:
            self._settle(uid, start, result)

    def _find_start(self, pod: Pod, found: OwnedPod | None) -> _Start | None:
        """Return a Pod's start; None where no breaker uses it, or it began too long ago."""
        uid = pod.metadata.uid
        if found is None or found.service not in self._deadlines_us:
            self._pods.pop(uid, None)
            return None
        start = self._pods.get(uid)
        if start is None:
            return self._track(pod, found)
        if start.service != found.service:
            start.service = found.service
            self._wait_for(uid, start)
        return start

    def _track(self, pod: Pod, found: OwnedPod) -> _Start | None:
        # A Pod without a creation time, which no API server sends, counts as too old.
        since_us = 0 if is_gated(pod) else read_created_us(pod) or 1
        if since_us and self._clock.now_us() - since_us >= self._deadlines_us[found.service]:
            return None
        if len(self._pods) >= STARTS_MAX:
            self._reports.on_start_dropped(found.service, OVERFLOW)
            return None
        start = self._pods[pod.metadata.uid] = _Start(found.service, found.namespace, found.name, since_us)
        self._wait_for(pod.metadata.uid, start)
        return start

    def _settle(self, uid: str, start: _Start, started: StartOutcome) -> None:
        start.is_settled = True
        if started.result is not None:
            self._outcome_sender.enqueue(start.service, uid, started.result, started.latency_us)

    # --- deadlines ---

    async def run(self) -> None:
        """Check deadlines until cancelled."""
        while True:
            await asyncio.sleep(self._timing.round_seconds)
            await self.round()

    async def round(self) -> None:
        """Look up Pods whose deadline has passed, oldest first, within the bounds of one round."""
        gate = asyncio.Semaphore(self._timing.concurrent_lookups_max)
        await asyncio.gather(*(self._look_up(uid, start, gate) for uid, start in self._take_overdue()))

    def _wait_for(self, uid: str, start: _Start) -> None:
        if start.since_us:
            self._wait_until(start.since_us + self._deadlines_us[start.service], uid, start)

    def _wait_until(self, due_us: int, uid: str, start: _Start) -> None:
        start.due_us = due_us
        heapq.heappush(self._due, (due_us, uid))

    def _take_overdue(self) -> list[tuple[str, _Start]]:
        now_us = self._clock.now_us()
        found: list[tuple[str, _Start]] = []
        while self._due and self._due[0][0] < now_us and len(found) < self._timing.lookups_per_round_max:
            due_us, uid = heapq.heappop(self._due)
            start = self._pods.get(uid)
            if start is None or start.due_us != due_us:
                continue  # it was deleted, or has another deadline
            if start.is_settled:
                del self._pods[uid]
            else:
                found.append((uid, start))
        return found

    async def _look_up(self, uid: str, start: _Start, gate: asyncio.Semaphore) -> None:
        """Look up a Pod that the watch has not shown as Ready in time."""
        due_us = start.due_us
        async with gate:
            found = await self._watch.find(start.namespace, start.name)
        if self._pods.get(uid) is not start or start.due_us != due_us:
            return  # meanwhile it was deleted, or has a later deadline under a new policy
        if start.is_settled:
            del self._pods[uid]
        elif found is None:
            self._wait_until(self._clock.now_us() + int(self._timing.retry_seconds_max * 1_000_000), uid, start)
        else:
            del self._pods[uid]
            if found.pod is not None and found.pod.metadata.uid == uid:
                self._settle(uid, start, self._judge(found.pod, start))

    def _judge(self, pod: Pod, start: _Start) -> StartOutcome:
        now_us = self._clock.now_us()
        in_time = judge_start(pod, start.since_us, self._deadlines_us[start.service], now_us)
        return in_time or StartOutcome(find_cause(pod), now_us - start.since_us)


def _list_deadlines_us(compiled: CompiledPolicy | None) -> dict[str, int]:
    """Return startDeadline of each service whose breaker uses start outcomes."""
    found = {}
    for name, service in compiled.services.items() if compiled is not None else ():
        outcomes = service.breaker.outcomes if service.breaker is not None else None
        is_used = outcomes is not None and outcomes.source is OutcomeSource.POD_START
        if outcomes is not None and is_used and compiled is not None and compiled.plans[name].breaker is not None:
            found[name] = outcomes.start_deadline.us
    return found
