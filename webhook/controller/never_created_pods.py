"""Never created Pods: finds Pods that were charged and never created, and refunds them.

A Pod that was charged and not seen for 60 s is looked up in the cluster. If it does not exist, it was never created, or
was created and deleted while the watch lags. So it is refunded once the watch has reached the version of that lookup
and still has not shown it: at once where Pods change, otherwise with the next bookmark, within about a minute. A Pod
that was charged before the watch was complete is not refunded: it may have existed. After the store has lost data,
which is noticed within two seconds, neither is a Pod that was charged before this controller led: replicas charge it
again, and only the former leader knew whether it had existed.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from webhook.controller.pod_lifecycle import PodTracker
from webhook.controller.reports import NAME_TAKEN, NEVER_CREATED, ControllerReports, ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.core.breaker import BreakerOwner
from webhook.core.pods.ownership import OwnedPod
from webhook.core.quota import CounterPlan, UnseenPod
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger, PodWatch

_SECOND_US = 1_000_000


class Absence(NamedTuple):
    """A lookup that did not find a Pod: its version, the cause for the metric, and when it was."""

    version: int
    cause: str
    at_us: int


class Refunds:
    """Lookups are bounded, at one time and in one round; the oldest charges are first."""

    def __init__(
        self,
        tracker: PodTracker,
        sighting_sender: SightingSender,
        watch: PodWatch,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        timing: ControllerTiming,
    ) -> None:
        self._tracker = tracker
        self._unknown = sighting_sender.unknown
        self._watch = watch
        self._ledger = ledger
        self._clock = clock
        self._reports = reports
        self._timing = timing
        self._absences: dict[str, dict[str, Absence]] = {}
        """By tag and uid."""
        self._first = 0

    async def run(self) -> None:
        """Run rounds until cancelled."""
        while True:
            tags = await self.round()
            await asyncio.sleep(max(self._timing.round_seconds, tags * self._timing.tag_seconds))

    async def round(self) -> int:
        """Process each tag once; return the number of tags."""
        compiled = self._tracker.compiled
        if compiled is None or self._tracker.listed_turn is None or self._watch.continuity is None:
            return 0  # existing Pods are not known yet
        tags = {plan.tag: plan for plan in compiled.plans.values()}
        self._absences = {tag: absences for tag, absences in self._absences.items() if tag in tags}
        remaining, self._first = self._timing.lookups_per_round_max, self._first + 1
        first = self._first % len(tags)  # rotate which tag is first
        for plan in (*tags.values(), *tags.values())[first : first + len(tags)]:
            try:
                remaining -= await self._refund_tag(plan, remaining)
            except StoreUnavailableError:
                continue  # already reported; the next round retries
        return len(tags)

    async def _refund_tag(self, plan: CounterPlan, looks_max: int) -> int:
        """Process one tag; return the number of lookups."""
        age_us = int(self._timing.overdue_seconds * _SECOND_US)
        waiting = await self._ledger.list_overdue(plan, age_us, self._timing.overdue_max)
        waiting = await self._release_tokens(plan, waiting)
        known = self._absences.pop(plan.tag, {})
        absences = self._absences[plan.tag] = {pod.uid: known[pod.uid] for pod in waiting if pod.uid in known}
        await self._give_up(plan, [pod for pod in waiting if not self._is_seen(pod) and not self._is_provable(pod)])
        await self._resend_seen(plan, [pod.uid for pod in waiting if self._is_seen(pod)])
        asked = [pod for pod in waiting if pod.uid not in absences and self._may_be_absent(pod)][:looks_max]
        gate = asyncio.Semaphore(self._timing.concurrent_lookups_max)
        await asyncio.gather(*(self._look_up(plan, pod, gate) for pod in asked))
        for pod in waiting:
            absence = absences.get(pod.uid)
            if absence is None or not self._is_confirmed(absence):
                continue
            # Checked again: meanwhile the watch may have shown it, or restarted.
            if self._may_be_absent(pod) and await self._ledger.refund(plan, pod.uid):
                self._reports.on_refunded(pod.service or plan.service, pod, absence.cause)
        return len(asked)

    def _is_confirmed(self, absence: Absence) -> bool:
        """Return whether the watch has reached a lookup, and a loss of the store before it has been noticed."""
        reached, age_us = self._watch.continuity, self._clock.now_us() - absence.at_us
        return (
            reached is not None
            and reached.version >= absence.version
            and age_us >= self._timing.loss_seconds * _SECOND_US
        )

    async def _release_tokens(self, plan: CounterPlan, waiting: Sequence[UnseenPod]) -> list[UnseenPod]:
        """Return the Pods. Probes' tokens of variants are charged by claims, and expire if their Pods say nothing."""
        tokens = [found.uid for found in waiting if BreakerOwner.parse(found.service).variant]
        if tokens:
            await self._ledger.stop_waiting(plan, tokens)
        return [found for found in waiting if found.uid not in tokens]

    def _is_seen(self, pod: UnseenPod) -> bool:
        return pod.uid in self._tracker.index or pod.uid in self._tracker.pending

    def _is_provable(self, pod: UnseenPod) -> bool:
        """Return whether the watch would have shown the Pod if it had been created."""
        reached = self._watch.continuity
        if not pod.name or reached is None:
            return False
        since_us = max(reached.since_us, self._tracker.index.forgotten_until_us)
        return self._clock.now_us() - pod.age_us >= since_us + self._timing.skew_seconds * _SECOND_US

    def _may_be_absent(self, pod: UnseenPod) -> bool:
        return self._is_provable(pod) and not self._is_seen(pod)

    async def _give_up(self, plan: CounterPlan, unproven: Sequence[UnseenPod]) -> None:
        if unproven and self._watch.continuity is not None:
            await self._ledger.stop_waiting(plan, [pod.uid for pod in unproven])
            for pod in unproven:
                self._reports.on_unproven(pod.service or plan.service)

    async def _resend_seen(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        """Send existing Pods again; let the store forget those that are deleted or another service's."""
        forgotten = []
        for uid in uids:
            found = self._tracker.index.get(uid)
            if found is not None and self._is_charged_by(found, plan) and uid not in self._unknown:
                self._tracker.enqueue(uid, found)
            elif uid not in self._tracker.pending:
                forgotten.append(uid)
        if forgotten:
            await self._ledger.stop_waiting(plan, forgotten)

    def _is_charged_by(self, found: OwnedPod, plan: CounterPlan) -> bool:
        compiled = self._tracker.compiled
        of = compiled.plans.get(found.service) if compiled is not None else None
        return of is not None and of.tag == plan.tag

    async def _look_up(self, plan: CounterPlan, pod: UnseenPod, gate: asyncio.Semaphore) -> None:
        """Look up a Pod in the cluster by name."""
        async with gate:
            found = await self._watch.find(pod.namespace, pod.name)
        if found is None:
            return
        if found.pod is None or found.pod.metadata.uid != pod.uid:
            cause = NEVER_CREATED if found.pod is None else NAME_TAKEN
            self._absences[plan.tag][pod.uid] = Absence(found.version, cause, self._clock.now_us())
            return
        owned = await self._tracker.find_owner(found.pod)
        if owned is not None and self._is_charged_by(owned, plan):
            self._tracker.enqueue_from_lookup(pod.uid, owned, found.version)
        else:
            await self._ledger.stop_waiting(plan, [pod.uid])
