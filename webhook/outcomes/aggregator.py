"""Aggregator of pushed outcomes: sums them per 100 ms slot and records the sums in the store.

Summing keeps a busy gateway cheap for the store. An interval of outcomes is evaluated after its end, by the next
operation on its breaker or by `webhook.fallback.breaker_ticker`, not by the call that carries an outcome.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.outcomes import SLOT_US, PendingOutcomes, PushedOutcome, Sum, Sums
from webhook.core.policy_fields import OutcomeSource
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, CounterStore, Observer

OK, ERROR = "ok", "error"
"""Results of a request."""

DISABLED, OVERFLOW, STORE = "disabled", "overflow", "store"
"""Reasons for dropping outcomes: breaker disabled, too many pending, no response from the store."""

_BATCH_MAX = 100
"""Sums per service, and services, that are recorded together. Reviews wait for the store meanwhile."""

_US = 1_000_000

OnUndelivered = Callable[[CounterPlan, Sequence[Outcomes]], None]


@dataclass(frozen=True, slots=True)
class OutcomeReports:
    """Callbacks for numbers of outcomes: recorded (service, source, result), dropped (service, reason), or refused."""

    on_outcomes_counted: Callable[[str, str, str, int], None]
    on_outcomes_dropped: Callable[[str, str, int], None]
    on_outcomes_refused: Callable[[str, int], None]
    on_outcomes_recorded: Callable[[str, Sequence[Outcomes]], None] = lambda _service, _outcomes: None
    """Receives the outcomes that a service's breaker has recorded, as passed to the store."""


class OutcomeAggregator:
    """Records each 100 ms slot soon after its end; `on_undelivered` receives outcomes if the store does not respond."""

    def __init__(
        self,
        counters: CounterStore,
        clock: Clock,
        observer: Observer,
        reports: OutcomeReports,
        on_undelivered: OnUndelivered | None = None,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._observer = observer
        self._reports = reports
        self._on_undelivered = on_undelivered or self._drop
        self._sums = Sums()
        self._some = asyncio.Event()
        self._flushing = asyncio.Lock()

    def take(self, plan: CounterPlan, outcomes: Sequence[PushedOutcome], at_us: int) -> None:
        """Add outcomes of one service that arrived at `at_us`, to be recorded within about 100 ms."""
        if plan.breaker is None:
            self._reports.on_outcomes_dropped(plan.service, DISABLED, len(outcomes))
            return
        for dropped in self._sums.add(plan, outcomes, at_us):
            self._reports.on_outcomes_dropped(dropped.service, OVERFLOW, dropped.outcomes)
        self._some.set()

    async def run(self) -> None:
        """Record the pending sums after each slot, until cancelled."""
        while True:
            await self._some.wait()
            slot, begun_us = divmod(self._clock.now_us(), SLOT_US)
            await asyncio.sleep((SLOT_US - begun_us) / _US)
            async with self._flushing:
                while await self._record_next(max(slot + 1, self._clock.now_us() // SLOT_US)):
                    pass
                if not self._sums:
                    self._some.clear()

    async def flush(self) -> None:
        """Record all pending sums now, after a recording in progress."""
        async with self._flushing:
            while await self._record_next():
                pass

    async def _record_next(self, before_slot: int | None = None) -> bool:
        """Record the oldest sums of each service, so that none waits for a busy one; return whether there were any."""
        waiting = self._sums.take(_BATCH_MAX, before_slot)
        for start in range(0, len(waiting), _BATCH_MAX):
            await asyncio.gather(*(self._record(service) for service in waiting[start : start + _BATCH_MAX]))
        return bool(waiting)

    async def _record(self, waiting: PendingOutcomes) -> None:
        """Record one service's sums. If the store does not respond, all its pending sums are undelivered."""
        (plan, sums), now_us = waiting, self._clock.now_us()
        outcomes = [pending.build_outcomes(now_us) for pending in sums]
        try:
            transitions = await self._counters.record_outcomes(plan, outcomes)
        except StoreUnavailableError:
            self._on_undelivered(
                plan, [*outcomes, *(pending.build_outcomes(now_us) for pending in self._sums.take_service(plan))]
            )
            return
        self._report_results(plan, sums)
        self._reports.on_outcomes_recorded(plan.service, outcomes)
        for transition in transitions:
            self._observer.on_transition(transition)
        await asyncio.sleep(0)  # yield: an in-process store does not

    def _report_results(self, plan: CounterPlan, sums: Sequence[Sum]) -> None:
        for result, count in (
            (OK, sum(pending.succeeded for pending in sums)),
            (ERROR, sum(pending.failed for pending in sums)),
        ):
            if count:
                self._reports.on_outcomes_counted(plan.service, OutcomeSource.PUSHED, result, count)

    def _drop(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> None:
        self._reports.on_outcomes_dropped(
            plan.service, STORE, sum(reported.succeeded + reported.failed for reported in outcomes)
        )
