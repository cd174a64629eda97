"""Controller: all reconciliation loops of the leader."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from webhook.controller.counter_resets import CounterResets
from webhook.controller.disruption_exemptions import DisruptionExemptions
from webhook.controller.drift_repair import DriftRepair
from webhook.controller.never_created_pods import Refunds
from webhook.controller.outcome_sender import StartOutcomeSender
from webhook.controller.pod_lifecycle import PodObserver, PodTracker
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.controller.start_tracker import StartTracker
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides import WindowReset
from webhook.ports import BreakerLedger, Clock, Continuity, NamespaceLabels, PodLedger, PodWatch


class Controller:
    """Created for each term of leadership: knowledge from an earlier term may be outdated."""

    def __init__(  # noqa: PLR0913  the ports that it connects
        self,
        watch: PodWatch,
        ledger: PodLedger,
        breakers: BreakerLedger,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        namespaces: NamespaceLabels,
        reports: ControllerReports,
        *,
        resets: Callable[[], Iterable[WindowReset]] = lambda: (),
        extra_loops: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
        observers: Iterable[PodObserver] = (),
        timing: ControllerTiming = ControllerTiming(),  # noqa: B008  frozen
    ) -> None:
        self._watch = watch
        self._ledger = ledger
        self._clock = clock
        self._policy = policy
        self._resets = CounterResets(ledger, lambda: self._tracker.compiled, resets, round_seconds=timing.round_seconds)
        self._extra_loops = tuple(extra_loops)
        """Other loops that only the leader runs."""
        self._timing = timing
        self._outcome_sender = StartOutcomeSender(breakers, clock, lambda: self._tracker.compiled, reports, timing)
        self._start_tracker = StartTracker(watch, self._outcome_sender, clock, reports, timing)
        self._disruptions = DisruptionExemptions(breakers, clock, lambda: self._tracker.compiled, reports, timing)
        seen_by: tuple[PodObserver, ...] = (self._start_tracker, self._disruptions, *observers)
        self._tracker = PodTracker(policy, namespaces, clock, lambda: watch.continuity, reports, seen_by)
        self._sighting_sender = SightingSender(self._tracker, ledger, clock, reports, timing)
        self._drift_repair = DriftRepair(self._tracker, self._sighting_sender, ledger, clock, reports, timing)
        self._refunds = Refunds(self._tracker, self._sighting_sender, watch, ledger, clock, reports, timing)
        self._relisted_us = 0
        """When the newest list was requested because the policy or labels had changed."""
        self._began_us = clock.now_us()
        self._lost_us = 0
        """When the store was last noticed to have lost data."""

    def on_lost(self) -> None:
        """Refund no Pod that was charged before this term: the store has forgotten which of them existed.

        Of those of this term only this process knows it, so that a next leader refunds none that was charged until now.
        """
        self._tracker.index.forget_before(self._began_us)
        self._lost_us = self._clock.now_us()

    def continuity(self) -> Continuity | None:
        """Return the part of the watch whose Pods have all been sent to the store: the next leader resumes after it."""
        reached = self._watch.continuity
        if reached is None or self._tracker.listed_turn is None:
            return None
        # Pods without a service are known to this process only; another policy may assign them to one.
        forgotten_us = max(self._tracker.index.forgotten_until_us, self._lost_us)
        since_us = max(reached.since_us, forgotten_us, self._relisted_us)
        return Continuity(self._tracker.pending.resume_version(reached.version), since_us)

    async def run(self) -> None:
        """Run all loops until cancelled."""
        while self._policy() is None:  # noqa: ASYNC110  the source has no event to wait for
            await asyncio.sleep(self._timing.round_seconds)  # without a policy no Pod has a service
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run(self._tracker), name="pods")
            tasks.create_task(self._disruptions.run(), name="disruptions")
            tasks.create_task(self._sighting_sender.run(), name="sightings")
            tasks.create_task(self._start_tracker.run(), name="starts")
            tasks.create_task(self._outcome_sender.run(), name="outcomes")
            tasks.create_task(self._drift_repair.run(), name="repair")
            tasks.create_task(self._refunds.run(), name="refunds")
            tasks.create_task(self._relist(), name="relisting")
            tasks.create_task(self._resets.run(), name="resets")
            for loop in self._extra_loops:
                tasks.create_task(loop(), name="extra")

    async def _relist(self) -> None:
        """Request a new list when the policy or Namespace labels may assign Pods to other services."""
        while True:
            await asyncio.sleep(self._timing.round_seconds)
            if self._tracker.listed_turn is not None and self._tracker.needs_new_list():
                self._relisted_us = self._clock.now_us()
                self._watch.list_again()
