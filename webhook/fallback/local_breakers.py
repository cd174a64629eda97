"""LocalBreakers: this replica's breakers while the store gives no answer, continued from their last known state.

An OPEN breaker stays open until its time is over; then this replica admits its part of the probes,
ceil(probes / replicas). Once the store answers again, the decisions are proposed to it, marked as made without it: see
`core/breaker/forks.py`. A denial by a replica's share is not a quota event: the share is not the limit, and many
replicas exhaust theirs before it is reached.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from webhook.core import breaker as machine
from webhook.core.breaker import BreakerPlan, BreakerView, State, Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.record import BreakerEnvironment, BreakerStep, ProbeLease, Record
from webhook.core.quota import Acquire, CounterPlan
from webhook.fallback.backlog import ServiceKey
from webhook.ports import CounterStore


class LocalBreakerDecision(NamedTuple):
    """Whether a breaker admits a Pod, and its view."""

    admits: bool
    view: BreakerView


class _LocalBreaker(NamedTuple):
    """A local record, the plan of its last transition, and the store's decision that it continues from."""

    plan: CounterPlan
    record: Record
    fork: int

    def account(self, view: BreakerView) -> BreakerView:
        """Add to a view how many decisions were made here."""
        return replace(view, alone=max(0, view.decided - self.fork))


class LocalBreakers:
    """Time is the store's, in microseconds, as near as it is known here. `last` returns the last known view.

    Transitions are kept until `take_moves`: not every result can carry them.
    """

    def __init__(self, last: Callable[[CounterPlan], BreakerView | None], replicas: int, late_us: int) -> None:
        self._last = last
        self._replicas = replicas
        self._environment = BreakerEnvironment(late_us, self._count_open)
        self._guarded: tuple[CounterPlan, ...] = ()
        """Plans whose breakers breakerGuard counts."""
        self.records: dict[ServiceKey, _LocalBreaker] = {}
        """Empty unless the store gave no answer lately."""
        self._moves: list[Transition] = []

    def set_replicas(self, replicas: int) -> None:
        """Divide probes among this many replicas from now on."""
        self._replicas = replicas

    def judge(self, request: Acquire, now_us: int) -> LocalBreakerDecision | None:
        """Return whether the breaker admits a new Pod; None if the service has no breaker."""
        breaker = request.plan.breaker
        if breaker is None:
            return None
        record = self._advance(request.plan, now_us)
        mine = self._divide_probes(breaker)
        admits = machine.can_admit(record, mine, now_us, request.event_source, self._environment)
        return LocalBreakerDecision(admits or breaker.degrades, machine.build_view(record, mine, now_us))

    def lease_probe(self, request: Acquire, now_us: int) -> None:
        """Make an admitted Pod a probe, if the breaker needs one."""
        breaker = request.plan.breaker
        if breaker is not None:
            record, uid, source = self._advance(request.plan, now_us), request.uid, request.event_source
            step = machine.take_probe(record, self._divide_probes(breaker), now_us, uid, source, self._environment)
            self._keep(request.plan, step)

    def give_back(self, plan: CounterPlan, uid: str, now_us: int) -> None:
        """Free the place of a probe whose Pod was not created."""
        if plan.key in self.records:
            known = self.records[plan.key]
            record = machine.give_back_probe(known.record, uid, now_us)
            self.records[plan.key] = known._replace(plan=plan, record=record)

    def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes], now_us: int) -> None:
        """Count outcomes. The sources of failures are not known here."""
        if plan.breaker is None:
            return
        mine = self._divide_probes(plan.breaker)
        for reported in outcomes:
            record = self._advance(plan, now_us)
            self._keep(plan, machine.record_outcomes(record, mine, now_us, reported, environment=self._environment))

    def pass_time(self, plans: Sequence[CounterPlan], now_us: int) -> None:
        """Make the transitions that are due by now; forget the breakers that the policy no longer has."""
        self._guarded = tuple(plan for plan in plans if plan.breaker is not None and plan.breaker.open_max is not None)
        named = {plan.key: plan for plan in plans if plan.breaker is not None}
        self.records = {key: known for key, known in self.records.items() if key in named}
        for key in self.records:
            self._advance(named[key], now_us)

    def view(self, plan: CounterPlan, now_us: int) -> BreakerView | None:
        """Return the local view of a breaker; None if the store's takes precedence."""
        known = self._find(plan)
        if known is None or plan.breaker is None:
            return None
        return known.account(machine.view(known.record, self._divide_probes(plan.breaker), now_us, self._environment))

    async def propose_to(self, store: CounterStore, key: ServiceKey) -> None:
        """Propose the local state of a breaker to the store, and forget it: the store's holds from then on."""
        known = self.records.get(key)
        if known is None or known.plan.breaker is None:
            return
        unforced = replace(
            self._divide_probes(known.plan.breaker), forcing=None
        )  # overrides are the controller's to apply
        view = machine.view(known.record, unforced, store.now_us(), self._environment)
        await store.propose(known.plan, known.account(view))
        self.records.pop(key, None)

    def take_moves(self) -> tuple[Transition, ...]:
        """Return the transitions since the last call."""
        moves, self._moves = tuple(self._moves), []
        return moves

    def _count_open(self) -> int:
        """Count the open breakers that breakerGuard counts, by their newest state here or in the store."""
        return sum([state is not None and state.is_tripped for state in map(self._find_state, self._guarded)])

    def _find_state(self, plan: CounterPlan) -> State | None:
        known, last = self._find(plan), self._last(plan)
        if known is not None:
            return known.record.state
        return None if last is None else last.state

    def _find(self, plan: CounterPlan) -> _LocalBreaker | None:
        """Return the local breaker; None if there is none, or if a newer state from the store takes precedence."""
        known, last = self.records.get(plan.key), self._last(plan)
        if known is None or plan.breaker is None or last is None or last.decided <= known.fork:
            return known
        here = known.account(machine.build_view(known.record, replace(plan.breaker, forcing=None), 0))
        return known if machine.is_winning(here, machine.from_view(plan.service, plan.breaker, last)) else None

    def _divide_probes(self, plan: BreakerPlan) -> BreakerPlan:
        """Return a plan with this replica's part of the probes."""
        return replace(plan, probes=-(-plan.probes // self._replicas))

    def _advance(self, plan: CounterPlan, now_us: int) -> Record:
        """Return the record at `now_us`; created from the last known state if there is none."""
        breaker = plan.breaker
        assert breaker is not None  # noqa: S101  every caller has checked it
        known = self._find(plan)
        if known is None:
            record = self._begin(plan, breaker, now_us)
            self.records[plan.key] = known = _LocalBreaker(plan, record, record.decided)
        return self._keep(plan, machine.advance(known.record, self._divide_probes(breaker), now_us, self._environment))

    def _begin(self, plan: CounterPlan, breaker: BreakerPlan, now_us: int) -> Record:
        """Continue from the last known state; probes under way hold their places until they time out.

        A forced state is taken from the plan alone: during an outage the store cannot record that an override ended.
        """
        view = self._last(plan)
        if view is None or view.state.is_forced:
            fresh = Record(plan.service)
            return fresh if view is None else replace(fresh, generation=view.generation, passed=view.passed)
        record, expires_us = machine.from_view(plan.service, breaker, view), now_us + breaker.probe_timeout_us
        leases = [ProbeLease("", expires_us, view.generation) for _ in range(view.probes_leased)]
        return replace(record, leases=tuple(leases))

    def _keep(self, plan: CounterPlan, step: BreakerStep) -> Record:
        self.records[plan.key] = self.records[plan.key]._replace(plan=plan, record=step.record)
        self._moves += step.transitions
        return step.record
