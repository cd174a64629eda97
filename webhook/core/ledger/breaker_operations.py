"""Atomic operations on a service's breaker, and the breaker's part in other operations.

Reference for every implementation of `ports.CounterStore` and `ports.BreakerLedger`.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core import breaker as machine
from webhook.core.breaker import BreakerStep, BreakerView, State, Transition
from webhook.core.breaker.outcome_types import Outcomes, Settlement, Start
from webhook.core.ledger import store_time
from webhook.core.ledger.tag_state import TagState
from webhook.core.quota import CounterPlan


class BreakerScript:
    """The breaker during one atomic operation: the caller writes `record` at the end. It may have no plan."""

    __slots__ = ("_at_rest", "_environment", "_now_us", "_offset_us", "_plan", "record", "transitions")

    def __init__(self, state: TagState, plan: CounterPlan, now_us: int) -> None:
        clock, breaker = state.find_clock(plan), plan.breaker
        if breaker is not None and breaker.forcing is not None:
            breaker = store_time.convert_forcing(clock, breaker)
        self._plan, self._now_us = breaker, now_us
        self._offset_us, self._environment = clock.offset_us, state.environment
        self.transitions: tuple[Transition, ...] = ()
        self._at_rest = at_rest = None if breaker is None else state.find_at_rest(plan.service, breaker, now_us)
        if at_rest is not None:
            self.record = at_rest.record
            return
        self.record = state.find_breaker(plan.service)
        if breaker is not None:
            self._move(machine.advance(self.record, breaker, now_us, self._environment))

    def _move(self, step: BreakerStep) -> None:
        self.record, transitions = step
        if transitions:
            self.transitions += transitions

    def can_admit(self, source: str) -> bool:
        plan = self._plan
        if plan is None or (plan.forcing is None and self.record.state is State.CLOSED):
            return True
        return machine.can_admit(self.record, plan, self._now_us, source, self._environment)

    def is_denying(self) -> bool:
        """Whether Pods that are not admitted are denied, if the breaker is enforced."""
        return self._plan is not None and not self._plan.degrades

    def record_quota_event(self, source: str) -> None:
        if self._plan is not None:
            self._move(machine.record_quota_event(self.record, self._plan, self._now_us, source, self._environment))

    def take_probe(self, uid: str, source: str) -> bool:
        """Make the charged Pod a probe, if one is wanted; return whether it is one."""
        before = self.record
        if self._plan is None or before.state is State.CLOSED:
            return False
        self._move(machine.take_probe(before, self._plan, self._now_us, uid, source, self._environment))
        return self.record is not before

    def record_outcomes(self, reported: Outcomes, source: str) -> bool:
        """Record outcomes; return whether they changed anything."""
        before = self.record
        if self._plan is not None:
            self._move(machine.record_outcomes(before, self._plan, self._now_us, reported, source, self._environment))
        return self.record is not before

    def apply_override(self, asked_us: int) -> None:
        if self._plan is not None:
            now_us, offset_us = self._now_us, self._offset_us
            self._move(machine.apply_override(self.record, self._plan, now_us, asked_us, self._environment, offset_us))

    def view(self) -> BreakerView | None:
        if self._at_rest is not None and self._at_rest.record is self.record:
            return self._at_rest.view
        return None if self._plan is None else machine.build_view(self.record, self._plan, self._now_us)


def record_outcomes(
    state: TagState, plan: CounterPlan, outcomes: Sequence[Outcomes], reading_us: int
) -> tuple[Transition, ...]:
    """Record outcomes of requests or Pods, in their order."""
    if plan.breaker is None or not outcomes:
        return ()
    state.record_time(reading_us)
    now_us = state.find_clock(plan).now(reading_us)
    breaker = BreakerScript(state, plan, now_us)
    for reported in outcomes:
        record = state.find_pod(reported.uid, now_us) if reported.uid is not None else None
        breaker.record_outcomes(reported, record.source if record is not None else "")
    state.move_breaker(plan, breaker.record, now_us)
    return store_time.convert_transitions(state.find_clock(plan), breaker.transitions)


def started(
    state: TagState, plan: CounterPlan, start: Start, reading_us: int
) -> tuple[Settlement, tuple[Transition, ...]]:
    """Record the outcome of a Pod's start, once. The Pod's record has its generation and source."""
    now_us = state.find_clock(plan).now(reading_us)
    record = state.find_pod(start.uid, now_us)
    if record is None or record.service != plan.service or plan.breaker is None:
        return Settlement.UNKNOWN, ()
    if record.settled:
        return Settlement.REPEATED, ()
    state.record_time(reading_us)
    state.remember(start.uid, replace(record, settled=True))
    breaker = BreakerScript(state, plan, now_us)
    reported = Outcomes(int(start.ok), int(not start.ok), start.latency_us, start.uid, record.generation, start.age_us)
    settlement = Settlement.COUNTED if breaker.record_outcomes(reported, record.source) else Settlement.STALE
    state.move_breaker(plan, breaker.record, now_us)
    return settlement, store_time.convert_transitions(state.find_clock(plan), breaker.transitions)


def suppress_quota_events(state: TagState, plan: CounterPlan, sources: Sequence[str], reading_us: int) -> None:
    """Ignore quota events of these sources for a while: they are replacing Pods that they lost."""
    if plan.breaker is not None and plan.breaker.quota is not None:
        state.record_time(reading_us)
        record = state.find_breaker(plan.service)
        state.set_breaker(machine.suppress_quota_events(record, sources, state.find_clock(plan).now(reading_us)))


def apply_override(state: TagState, plan: CounterPlan, reset_at_us: int, reading_us: int) -> tuple[Transition, ...]:
    """Enter the state that the plan forces, or leave a forced state that has ended; reset, once for each request."""
    state.record_time(reading_us)
    clock = state.find_clock(plan)
    now_us = clock.now(reading_us)
    breaker = BreakerScript(state, plan, now_us)
    breaker.apply_override(reset_at_us)
    state.move_breaker(plan, breaker.record, now_us)
    return store_time.convert_transitions(clock, breaker.transitions)


def propose(state: TagState, plan: CounterPlan, view: BreakerView, reading_us: int) -> None:
    """Take a replica's view of the breaker if it wins over the advanced record: see `core/breaker/forks.py`."""
    if plan.breaker is not None:
        state.record_time(reading_us)
        clock = state.find_clock(plan)
        known, now_us = store_time.convert_view_to_tag(clock, view), clock.now(reading_us)
        # Compare with the advanced record; the operation that stores it reports its transitions.
        due = BreakerScript(state, plan, now_us).record
        state.move_breaker(
            plan, machine.apply_proposal(state.find_breaker(plan.service), plan.breaker, known, due), now_us
        )


def tick(state: TagState, plan: CounterPlan, reading_us: int) -> tuple[Transition, ...]:
    """Apply the passage of time to a service's breaker under the current policy.

    This also observes the store's clock: with an open breaker there may be no other writes.
    """
    state.record_time(reading_us)
    clock = state.find_clock(plan)
    clock.observe(reading_us)
    now_us = clock.now(reading_us)
    breaker = BreakerScript(state, plan, now_us)
    record = machine.restart(breaker.record) if plan.breaker is None else breaker.record
    state.move_breaker(plan, record, now_us)
    return store_time.convert_transitions(clock, breaker.transitions)
