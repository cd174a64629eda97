"""The controller as a whole: follows Pods, tells the store, repairs it, refunds; for as long as it leads."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from webhook.controller.counter_resets import CounterResets
from webhook.controller.disruption_exemptions import DisruptionExemptions
from webhook.controller.drift_repair import DriftRepair
from webhook.controller.outcome_sender import StartOutcomeSender
from webhook.controller.pod_tracker import PodTracker
from webhook.controller.refunds import Refunds
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.controller.start_tracker import StartTracker
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides import WindowReset
from webhook.ports import BreakerLedger, Clock, Continuity, NamespaceLabels, PodLedger, PodWatch


class Controller:
    """Made anew each time that it leads: what was known before may have been overtaken."""

    def __init__(  # noqa: PLR0913  the seams that it works between
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
        beside: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
        pace: ControllerTiming = ControllerTiming(),  # noqa: B008  frozen
    ) -> None:
        self._watch = watch
        self._ledger = ledger
        self._clock = clock
        self._policy = policy
        self._resets = CounterResets(ledger, lambda: self._following.compiled, resets, round_seconds=pace.round_seconds)
        self._beside = tuple(beside)
        """What else is done by nobody but who leads."""
        self._pace = pace
        self._outcomes = StartOutcomeSender(breakers, clock, lambda: self._following.compiled, reports, pace)
        self._starts = StartTracker(watch, self._outcomes, clock, reports, pace)
        self._excuses = DisruptionExemptions(breakers, clock, lambda: self._following.compiled, reports, pace)
        onlookers = self._starts, self._excuses
        self._following = PodTracker(policy, namespaces, clock, lambda: watch.continuity, reports, onlookers)
        self._telling = SightingSender(self._following, ledger, clock, reports, pace)
        self._repair = DriftRepair(self._following, self._telling, ledger, clock, reports, pace)
        self._refunds = Refunds(self._following, self._telling, watch, ledger, clock, reports, pace)
        self._judged_us = 0
        """Since when Pods are judged as they are now."""

    def continuity(self) -> Continuity | None:
        """Return what whoever leads next need not see again: all of it has been told to the store."""
        reached = self._watch.continuity
        if reached is None or self._following.listed_turn is None:
            return None
        # Who was seen and nobody's is in our memory alone: by another policy it may have been somebody's.
        since_us = max(reached.since_us, self._following.roster.forgotten_us, self._judged_us)
        return Continuity(self._following.untold.told_up_to(reached.version), since_us)

    async def run(self) -> None:
        """Do all of it until cancelled."""
        while self._policy() is None:  # noqa: ASYNC110  a source is asked, it tells nobody
            await asyncio.sleep(self._pace.round_seconds)  # whose Pods they are nobody could say
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run(self._following), name="pods")
            tasks.create_task(self._excuses.run(), name="excuses")
            tasks.create_task(self._telling.run(), name="telling")
            tasks.create_task(self._starts.run(), name="starts")
            tasks.create_task(self._outcomes.run(), name="outcomes")
            tasks.create_task(self._repair.run(), name="repair")
            tasks.create_task(self._refunds.run(), name="refunds")
            tasks.create_task(self._rejudge(), name="rejudging")
            tasks.create_task(self._resets.run(), name="resets")
            for loop in self._beside:
                tasks.create_task(loop(), name="beside")

    async def _rejudge(self) -> None:
        """List anew where Pods may be others' than they were judged to be."""
        while True:
            await asyncio.sleep(self._pace.round_seconds)
            if self._following.listed_turn is not None and self._following.is_misjudged():
                self._judged_us = self._clock.now_us()
                self._watch.list_again()
