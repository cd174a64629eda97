"""Breakers while the store gives no answer: by the same rules as there, from how each was last known, in this replica.

An OPEN one stays so until its time is over; then this replica lets in its part of the probes, ceil(probes / replicas).
What it decides here is offered to the store that is back, as an account of a replica that was alone: see
`core/breaker/forks.py`. Refusals by a share are no quota events: a share is not the
limit, and many replicas' shares are exhausted before it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from webhook.core import breaker as machine
from webhook.core.breaker import BreakerPlan, BreakerView, State, Transition
from webhook.core.breaker.outcome import Outcomes
from webhook.core.breaker.record import FORCED, Around, Lease, Record, Step
from webhook.core.quota import Acquire, CounterPlan
from webhook.store.backlog import ServiceKey

_OPENED = frozenset({State.OPEN, State.HALF_OPEN})


class LocalBreakerDecision(NamedTuple):
    """Whether a breaker lets a Pod in, and how it stands."""

    admits: bool
    view: BreakerView


class _LocalBreaker(NamedTuple):
    """A breaker here: under the plan of its last move, and the last decision of the store that it goes on from."""

    plan: CounterPlan
    record: Record
    fork: int

    def account(self, view: BreakerView) -> BreakerView:
        """Say of a view of it how much was decided here."""
        return replace(view, alone=max(0, view.decided - self.fork))


class LocalBreakers:
    """Time is the store's, in microseconds, as near as it is known here. `last` says how a breaker was last known.

    Transitions are kept until somebody takes them: not every answer has room for them.
    """

    def __init__(self, last: Callable[[CounterPlan], BreakerView | None], replicas: int, late_us: int) -> None:
        self._last = last
        self._replicas = replicas
        self._around = Around(late_us, self._opened)
        self._guarded: tuple[CounterPlan, ...] = ()
        """Those whose breakers breakerGuard counts."""
        self._records: dict[ServiceKey, _LocalBreaker] = {}
        self._moves: list[Transition] = []

    def __bool__(self) -> bool:
        return bool(self._records)

    def share(self, replicas: int) -> None:
        """Share probes among so many replicas from now on."""
        self._replicas = replicas

    def judge(self, request: Acquire, now_us: int) -> LocalBreakerDecision | None:
        """Say how the breaker stands to a new Pod; None where there is none."""
        breaker = request.plan.breaker
        if breaker is None:
            return None
        record = self._moved(request.plan, now_us)
        mine = self._mine(breaker)
        admits = machine.admits(record, mine, now_us, request.event_source, self._around)
        return LocalBreakerDecision(admits or breaker.degrades, machine.shown(record, mine, now_us))

    def admitted(self, request: Acquire, now_us: int) -> None:
        """Let a Pod that came in be a probe, if one is wanted."""
        breaker = request.plan.breaker
        if breaker is not None:
            record, uid, source = self._moved(request.plan, now_us), request.uid, request.event_source
            step = machine.take_probe(record, self._mine(breaker), now_us, uid, source, self._around)
            self._keep(request.plan, step)

    def give_back(self, plan: CounterPlan, uid: str) -> None:
        """Free the place of a probe whose Pod never came to be."""
        if plan.key in self._records:
            known = self._records[plan.key]
            self._records[plan.key] = known._replace(plan=plan, record=machine.give_back_probe(known.record, uid))

    def hear(self, plan: CounterPlan, outcomes: Sequence[Outcomes], now_us: int) -> None:
        """Take how requests and Pods fared. Who took part in failures is not known here."""
        if plan.breaker is None:
            return
        mine = self._mine(plan.breaker)
        for heard in outcomes:
            record = self._moved(plan, now_us)
            self._keep(plan, machine.hear(record, mine, now_us, heard, around=self._around))

    def pass_time(self, plans: Sequence[CounterPlan], now_us: int) -> None:
        """Do what the time alone brings about; forget the breakers that the policy has taken away."""
        self._guarded = tuple(plan for plan in plans if plan.breaker is not None and plan.breaker.open_max is not None)
        named = {plan.key: plan for plan in plans if plan.breaker is not None}
        self._records = {key: known for key, known in self._records.items() if key in named}
        for key in self._records:
            self._moved(named[key], now_us)

    def view(self, plan: CounterPlan, now_us: int) -> BreakerView | None:
        """Return how a breaker stands here; None where the store alone knows."""
        known = self._known(plan)
        if known is None or plan.breaker is None:
            return None
        return known.account(machine.view(known.record, self._mine(plan.breaker), now_us, self._around))

    async def tell(
        self, key: ServiceKey, offer: Callable[[CounterPlan, BreakerView], Awaitable[None]], now_us: int
    ) -> None:
        """Offer the store what a breaker has come to here, and let it alone know from then on."""
        known = self._records.get(key)
        if known is None or known.plan.breaker is None:
            return
        by_itself = replace(self._mine(known.plan.breaker), forcing=None)  # what is by hand is for who leads to tell
        await offer(known.plan, known.account(machine.view(known.record, by_itself, now_us, self._around)))
        self._records.pop(key, None)

    def take_moves(self) -> tuple[Transition, ...]:
        """Return the transitions that nobody has taken yet."""
        moves, self._moves = tuple(self._moves), []
        return moves

    def _opened(self) -> int:
        """Count the open ones that breakerGuard counts, as they moved last, here or in the store."""
        return sum([self._state(plan) in _OPENED for plan in self._guarded])

    def _state(self, plan: CounterPlan) -> State | None:
        known, last = self._known(plan), self._last(plan)
        if known is not None:
            return known.record.state
        return None if last is None else last.state

    def _known(self, plan: CounterPlan) -> _LocalBreaker | None:
        """Return how a breaker stands here; None where it is not known here, or what was heard of the store holds."""
        known, last = self._records.get(plan.key), self._last(plan)
        if known is None or plan.breaker is None or last is None or last.decided <= known.fork:
            return known
        here = known.account(machine.shown(known.record, replace(plan.breaker, forcing=None), 0))
        return known if machine.holds(here, machine.from_view(plan.service, plan.breaker, last)) else None

    def _mine(self, plan: BreakerPlan) -> BreakerPlan:
        """Return a plan with this replica's part of the probes."""
        return replace(plan, probes=-(-plan.probes // self._replicas))

    def _moved(self, plan: CounterPlan, now_us: int) -> Record:
        """Return the record, which is begun where there is none, as the time has left it."""
        breaker = plan.breaker
        assert breaker is not None  # noqa: S101  who calls has looked
        known = self._known(plan)
        if known is None:
            record = self._begun(plan, breaker, now_us)
            self._records[plan.key] = known = _LocalBreaker(plan, record, record.decided)
        return self._keep(plan, machine.advance(known.record, self._mine(breaker), now_us, self._around))

    def _begun(self, plan: CounterPlan, breaker: BreakerPlan, now_us: int) -> Record:
        """Begin where the breaker was last known; probes that were under way hold their places until they run out.

        What is by hand is for our own plan to say: nobody can write meanwhile that a hand has let go.
        """
        view = self._last(plan)
        if view is None or view.state in FORCED:
            fresh = Record(plan.service)
            return fresh if view is None else replace(fresh, generation=view.generation, passed=view.passed)
        record, expires_us = machine.from_view(plan.service, breaker, view), now_us + breaker.probe_timeout_us
        leases = [Lease("", expires_us, view.generation) for _ in range(view.probes_leased)]  # each goes by itself
        return replace(record, leases=tuple(leases))

    def _keep(self, plan: CounterPlan, step: Step) -> Record:
        self._records[plan.key] = self._records[plan.key]._replace(plan=plan, record=step.record)
        self._moves += step.transitions
        return step.record
