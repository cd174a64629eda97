"""Controller of a replay: the real pod tracker, senders and drift repair, run after each event over virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from webhook.controller.drift_repair import DriftRepair
from webhook.controller.outcome_sender import StartOutcomeSender
from webhook.controller.pod_lifecycle import PodTracker
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.core.breaker import Transition
from webhook.core.breaker.outcome_types import Settlement
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod, PodStatus
from webhook.core.pods.start_outcome import StartResult
from webhook.ports import Clock, NamespaceLabels
from webhook.replay.store_outage import ReplayStore


class ReplayController:
    """Watches the Pods that the replay has admitted. While the store is down, sightings and outcomes are queued."""

    def __init__(
        self,
        store: ReplayStore,
        is_down: Callable[[], bool],
        clock: Clock,
        policy: Callable[[], CompiledPolicy],
        namespaces: NamespaceLabels,
        on_transition: Callable[[Transition], None],
    ) -> None:
        self._is_down = is_down
        self._pods: dict[str, Pod] = {}
        self._settlement: str | None = None
        reports, timing = self._make_reports(on_transition), ControllerTiming()
        self._tracker = PodTracker(policy, namespaces, clock, lambda: None, reports)
        self._sightings = SightingSender(self._tracker, store, clock, reports, timing)
        self._drift_repair = DriftRepair(self._tracker, self._sightings, store, clock, reports, timing)
        self._outcomes = StartOutcomeSender(store, clock, policy, reports, timing)

    async def report_admission(self, uid: str, pod: Mapping[str, Any]) -> None:
        """Report a Pod that was admitted or resized, as the API server stores it.

        It has no creation time: admission has charged it, so the store must not charge it again.
        """
        stored = Pod.from_document(pod)
        metadata = replace(stored.metadata, uid=uid, creation_timestamp=None, deletion_timestamp=None)
        self._pods[uid] = replace(stored, metadata=metadata, status=PodStatus())
        await self._tracker.on_changed(self._pods[uid], gone=False)
        await self._send()

    async def report_deletion(self, uid: str) -> None:
        """Report the deletion of a Pod."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            await self._tracker.on_changed(pod, gone=True)
            await self._send()

    async def report_start(self, service: str, uid: str, *, ok: bool, latency_us: int) -> str | None:
        """Report the outcome of a Pod's start; return why the store dropped it, None if it did not."""
        self._settlement = None
        self._outcomes.enqueue(service, uid, StartResult.OK if ok else StartResult.FAILED, latency_us)
        await self._send()
        return self._settlement

    async def round(self) -> None:
        """Run what the controller does each second."""
        if self._tracker.needs_new_list():
            await self.list_all()
        self._tracker.enqueue_ended()
        await self._send()
        await self._while_sending(self._drift_repair.round)

    async def list_all(self) -> None:
        """List all Pods again, as after a change of the policy, and send what differs."""
        await self._tracker.on_list_begun()
        await self._tracker.on_listed(tuple(self._pods.values()))
        await self._tracker.on_list_complete()
        await self._send()
        for _ in range(2):  # the watch of a replay has no lag: correct a surplus at once
            await self._while_sending(self._drift_repair.repair_all)

    async def _send(self) -> None:
        if self._is_down():
            return
        while await self._sightings.send() or await self._outcomes.send():
            pass

    async def _while_sending(self, repair: Callable[[], Awaitable[None]]) -> None:
        """Run drift repair and the sender concurrently: repair waits until its corrections are sent."""
        if self._is_down():
            return
        sending = asyncio.create_task(self._sightings.run())
        try:
            await repair()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _make_reports(self, on_transition: Callable[[Transition], None]) -> ControllerReports:
        def on_start_dropped(_: str, settlement: str) -> None:
            self._settlement = settlement

        return ControllerReports(
            on_refunded=_ignore,
            on_unproven=_ignore,
            on_charged_afterwards=_ignore,
            on_raised=_ignore,
            on_label_ignored=_ignore,
            on_drift=_ignore,
            on_pool_drift=_ignore,
            on_watched=_ignore,
            on_started=_ignore,
            on_start_dropped=on_start_dropped,
            on_quota_events_suppressed=_ignore,
            on_transition=on_transition,
        )


def is_unknown(settlement: str | None) -> bool:
    """Return whether the store dropped an outcome because it did not know the Pod."""
    return settlement == Settlement.UNKNOWN


def _ignore(*_: object) -> None:
    """Ignore a finding: the output of the replay shows its effect."""
