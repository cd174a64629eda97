"""A simple model of a breaker: it ticks every microsecond, and counts by scanning whole lists."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from webhook.core.breaker import BreakerPlan, BreakerView, ErrorRatePlan, Forcing, LatencyPlan, QuotaEventPlan, State
from webhook.core.breaker.outcome_types import Outcomes

FORCED = {State.FORCED_OPEN, State.FORCED_CLOSED}
PRECEDENCE = [State.CLOSED, State.HALF_OPEN, State.OPEN, State.FORCED_CLOSED, State.FORCED_OPEN]
"""Of two views of one generation, the one later in this list applies."""

HELD, EXPIRED = "held", "expired"
"""What is reported besides changes of state."""

STORE = "the store"
_decision_numbers = count()

Decision = tuple[str, int]
"""Who decided, and a unique number."""

Move = tuple[State, State, int, str]
"""Old state, new state, time, and HELD or EXPIRED if the state did not change."""


def plan_of(
    *,
    error_rate: ErrorRatePlan | None = None,
    latency: LatencyPlan | None = None,
    quota: QuotaEventPlan | None = None,
    open_for_us: int = 100,
    probes: int = 2,
    probe_timeout_us: int = 30,
    has_outcomes: bool | None = None,
) -> BreakerPlan:
    with_outcomes = error_rate is not None or latency is not None if has_outcomes is None else has_outcomes
    return BreakerPlan(with_outcomes, error_rate, latency, quota, open_for_us, probes, probe_timeout_us)


class ReportedOutcomes(NamedTuple):
    """Outcomes of one report, at the time of the outcomes, from one source."""

    at_us: int
    outcomes: int
    failed: int
    latency_us: int
    source: str


class ModelLease(NamedTuple):
    """A lease."""

    uid: str
    expires_us: int
    generation: int


@dataclass
class Model:
    """`late_us` and `opened` correspond to `BreakerEnvironment`."""

    plan: BreakerPlan
    now_us: int = 0
    late_us: int = 0
    opened: int = 0
    state: State = State.CLOSED
    generation: int = 0
    since_us: int = 0
    open_until_us: int = 0
    error_reports: list[ReportedOutcomes] = field(default_factory=list)
    latency_reports: list[ReportedOutcomes] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    leases: list[ModelLease] = field(default_factory=list)
    successes: int = 0
    early: int = 0
    failed: set[str] = field(default_factory=set)
    tripped_at_us: int = 0
    reset_us: int = 0
    asked_reset_us: int = 0
    suppressed_until_us: dict[str, int] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    evaluated_us: int = 0
    """All intervals that end up to this time have been evaluated."""
    decided: int = 0
    """The generation of the newest decision: the newest transition that is not due to time alone."""
    decisions: tuple[Decision, ...] = ()
    """All decisions."""
    name: str = STORE
    """Who decides: the store, or an isolated replica."""

    # Time

    def pass_time(self, to_us: int) -> None:
        while self.now_us < to_us:
            self.now_us += 1
            self.settle()

    def settle(self) -> None:
        """Apply the transitions that are due now."""
        if self.state in FORCED and self.now_us >= self.open_until_us:
            self._enter(State.CLOSED, self.open_until_us, is_due=True)
        if self.find_manual_state() is not None:
            return  # frozen
        while self.evaluated_us < self.now_us - self.late_us:
            self.evaluated_us += 1
            self._evaluate(self.evaluated_us)
        if self.state is State.OPEN:
            self._expire(min(self.now_us, self.open_until_us))
            if self.now_us >= self.open_until_us:
                self._enter(State.HALF_OPEN, self.open_until_us, is_due=True)
        self._expire(self.now_us)

    def find_forcing(self) -> Forcing | None:
        forcing = self.plan.forcing
        return forcing if forcing is not None and self.now_us < forcing.until_us else None

    def find_manual_state(self) -> State | None:
        """Return the state that an override forces."""
        forcing = self.find_forcing()
        return forcing.state if forcing is not None else self.state if self.state in FORCED else None

    def _evaluate(self, at_us: int) -> None:
        """Trip if an interval that ends here crossed a rule."""
        errors, latency = self.plan.error_rate, self.plan.latency
        if errors is not None and self.state is State.CLOSED and at_us % errors.interval_us == 0:
            rows = _list_intervals(self.error_reports, at_us, errors.interval_us, errors.consecutive)
            if all(_has_crossed_errors(errors, row) for row in rows):
                self._trip(at_us, [report.source for row in rows for report in row if report.failed])
        if latency is not None and self.state is State.CLOSED and at_us % latency.interval_us == 0:
            rows = _list_intervals(self.latency_reports, at_us, latency.interval_us, latency.consecutive)
            if all(_has_crossed_latency(latency, row) for row in rows):
                slow = [
                    report for row in rows for report in row if report.latency_us > latency.mean_us * report.outcomes
                ]
                self._trip(at_us, [report.source for report in slow])

    def _trip(self, at_us: int, sources: Iterable[str]) -> None:
        if self.plan.open_max is not None and self.opened >= self.plan.open_max:
            self.moves.append((State.CLOSED, State.CLOSED, at_us, HELD))
            self._forget()
            return
        self._enter(State.OPEN, at_us, keep_known_sources(sources))
        self.tripped_at_us = at_us

    def _enter(self, state: State, at_us: int, failed: Iterable[str] = (), *, is_due: bool = False) -> None:
        before = self.state, self.leases, self.failed
        self.moves.append((self.state, state, at_us, ""))
        self.state, self.generation, self.since_us = state, self.generation + 1, at_us
        if not is_due:
            self.decided, self.decisions = self.generation, (*self.decisions, (self.name, next(_decision_numbers)))
        self.open_until_us = at_us + self.plan.open_for_us if state is State.OPEN else 0
        self.leases, self.successes, self.early, self.failed = [], 0, 0, set(failed)
        if state is State.HALF_OPEN:  # early probes keep their leases, and failed sources are kept
            _, self.leases, self.failed = before
        self._forget()

    def _forget(self) -> None:
        self.error_reports, self.latency_reports, self.events = [], [], []

    def _expire(self, up_to_us: int) -> None:
        for lease in [lease for lease in self.leases if lease.expires_us <= up_to_us]:
            self.leases.remove(lease)
            self.moves.append((self.state, self.state, lease.expires_us, EXPIRED))

    # Admission

    def count_early_left(self) -> int:
        return self.plan.probes - self.early if self.state is State.OPEN and self.failed else 0

    def can_admit(self, source: str = "") -> bool:
        held = self.find_manual_state()
        if held is not None:
            return held is State.FORCED_CLOSED
        if self.state is State.OPEN:
            return self.count_early_left() > 0 and source.startswith("controller:") and source not in self.failed
        return self.state is State.CLOSED or self.successes + len(self.leases) < self.plan.probes

    def charge(self, uid: str, source: str = "") -> bool:
        """Charge a Pod if the breaker admits it; return whether it is a probe."""
        if self.find_manual_state() is not None or self.state is State.CLOSED or not self.can_admit(source):
            return False
        self.early += self.state is State.OPEN
        if self.plan.has_outcomes:
            self.leases.append(ModelLease(uid, self.now_us + self.plan.probe_timeout_us, self.generation))
        else:
            self._count_success()
        return True

    def give_back(self, uid: str) -> None:
        for lease in [lease for lease in self.leases if lease.uid == uid and lease.expires_us > self.now_us]:
            self.leases.remove(lease)
            self.early -= self.state is State.OPEN

    def _count_success(self) -> None:
        self.successes += 1
        if self.successes == self.plan.probes:
            self._enter(State.CLOSED, self.now_us)

    # Outcomes

    def record_outcomes(self, reported: Outcomes, source: str = "") -> bool:
        """Record outcomes; return whether they changed the breaker."""
        at_us = self.now_us - max(0, reported.age_us)
        if not self.plan.has_outcomes or self.find_manual_state() is not None:
            return False
        if self.state is State.CLOSED:
            is_stale = at_us < max(self.since_us, self.reset_us) or reported.generation not in {None, self.generation}
            return not is_stale and self._count(reported, at_us, source)
        settled = [self._settle_lease(reported, at_us, source, ok=False) for _ in range(reported.failed)]
        settled += [self._settle_lease(reported, at_us, source, ok=True) for _ in range(reported.succeeded)]
        return any(settled)

    def _count(self, reported: Outcomes, at_us: int, source: str) -> bool:
        """Add the outcomes to each rule that has not evaluated their interval yet."""
        report = ReportedOutcomes(
            at_us, reported.succeeded + reported.failed, reported.failed, reported.latency_us, source
        )
        counted = False
        for rule, reports in ((self.plan.error_rate, self.error_reports), (self.plan.latency, self.latency_reports)):
            if rule is not None and (at_us // rule.interval_us + 1) * rule.interval_us > self.now_us - self.late_us:
                reports.append(report)
                counted = True
        return counted

    def _settle_lease(self, reported: Outcomes, at_us: int, source: str, *, ok: bool) -> bool:
        if reported.uid is None:
            is_countable = self.state is State.HALF_OPEN and at_us >= self.since_us
            leases = self.leases if is_countable and reported.generation in {None, self.generation} else []
        else:
            matching = [lease for lease in self.leases if lease.uid == reported.uid][:1]
            leases = [lease for lease in matching if reported.generation in {None, lease.generation}]
        if not leases or self.state not in {State.OPEN, State.HALF_OPEN}:
            return False
        self.leases.remove(leases[0])
        if ok:
            self._count_success()
        elif self.state is State.HALF_OPEN:
            self._enter(State.OPEN, self.now_us, keep_known_sources({*self.failed, source}) if self.failed else ())
        return True

    def record_quota_event(self, source: str) -> None:
        rule = self.plan.quota
        if self.state is not State.CLOSED or rule is None or self.find_manual_state() is not None:
            return
        if any(self.now_us < self.suppressed_until_us.get(name, 0) for name in (source, "*")):
            return
        recent = [(at, name) for at, name in self.events if at > self.now_us - rule.within_us]
        if not rule.by_controller or source not in {name for _, name in recent}:
            self.events.append((self.now_us, source))
            if len(recent) + 1 >= rule.count:
                self._trip(self.now_us, [name for _, name in recent] + [source])

    # Overrides, suppressions, and views of other replicas

    def apply_override(self, asked_us: int = 0) -> None:
        forcing = self.find_forcing()
        if forcing is not None:
            if self.state is not forcing.state:
                self._enter(forcing.state, self.now_us)
            self.open_until_us = forcing.until_us
        elif self.state in FORCED:
            self._enter(State.CLOSED, self.now_us)
        reset_us = min(asked_us, self.now_us)
        if asked_us > self.asked_reset_us and reset_us > self.since_us and self.state not in FORCED:
            self.asked_reset_us, self.reset_us = asked_us, reset_us
            if self.state is State.CLOSED:
                self._forget()
            else:
                self._enter(State.CLOSED, self.now_us)

    def suppress_quota_events(self, sources: Sequence[str], for_us: int) -> None:
        live = {name: until_us for name, until_us in self.suppressed_until_us.items() if until_us > self.now_us}
        self.suppressed_until_us = {**live, **dict.fromkeys(sources, self.now_us + for_us)}
        if len(self.suppressed_until_us) > 64:
            self.suppressed_until_us = {"*": self.now_us + for_us}
        self.events = [(at, name) for at, name in self.events if name not in sources]

    def propose(self, view: BreakerView) -> None:
        """Apply a view that may be newer, because the store may have lost its record."""
        rank = self.decided, self.generation, PRECEDENCE.index(self.state)
        if not self._is_undoing(view) and (view.decided, view.generation, PRECEDENCE.index(view.state)) > rank:
            generation = max(view.generation, self.generation)
            self._take(view, generation)
            self.decided, self.decisions = generation - view.passed, ((STORE, next(_decision_numbers)),)
        else:
            self.generation = max(self.generation, view.generation + (view.generation > self.generation))

    def _is_undoing(self, view: BreakerView) -> bool:
        """Return whether a view is older than a reset or than a trip of this breaker."""
        is_opened = view.state in {State.OPEN, State.HALF_OPEN}
        is_new = self.state in {State.OPEN, State.HALF_OPEN} and view.tripped_at_us < self.tripped_at_us
        return (is_opened and view.since_us < self.reset_us) or (is_new and view.state not in FORCED)

    def cut_off(self, name: str) -> "Model":
        """Return the model of a replica that loses the store, from the last view that it had."""
        model = deepcopy(self)
        model.name, model.reset_us, model.suppressed_until_us = name, 0, {}
        if self.find_manual_state() is not None:  # the forcing may end meanwhile
            model.state, model.since_us, model.open_until_us, model.tripped_at_us = State.CLOSED, 0, 0, 0
            model.successes = model.early = 0
            model.leases = []
        model.leases = [ModelLease("", self.now_us + self.plan.probe_timeout_us, self.generation) for _ in model.leases]
        model.failed = model.failed if self.count_early_left() else set()
        model.asked_reset_us, model.moves = 0, []
        model._forget()
        return model

    def heal(self, other: "Model") -> None:
        """Merge the decisions of a replica that was isolated, from the first one that differs."""
        fork = next(
            (at for at, (one, two) in enumerate(zip(self.decisions, other.decisions, strict=False)) if one != two),
            min(len(self.decisions), len(other.decisions)),
        )
        own_decisions, other_decisions = self.decisions[fork:], other.decisions[fork:]
        if not other_decisions:
            # Time passed there, while a forcing suspended it here.
            if not own_decisions and other.generation > self.generation:
                self._take(other.view(), other.generation)
            return
        view, is_decided_here = other.view(), any(name == STORE for name, _ in own_decisions)
        is_reset = view.state in {State.OPEN, State.HALF_OPEN} and view.since_us < self.reset_us
        rank = PRECEDENCE.index(self.state), self.tripped_at_us, self.since_us
        has_precedence = not own_decisions or (PRECEDENCE.index(view.state), view.tripped_at_us, view.since_us) > rank
        holds = self.state not in FORCED and not is_reset and not is_decided_here and has_precedence
        if holds:
            shift = max(0, self.generation + 1 - other.decided)
            self._take(view, other.generation + shift)
            self.decided, self.decisions = other.decided + shift, other.decisions
        elif view.generation > self.generation or (
            view.generation == self.generation
            and (is_decided_here or (view.state, view.since_us) != (self.state, self.since_us))
        ):
            self.generation = view.generation + 1

    def _take(self, view: BreakerView, generation: int) -> None:
        self.state, self.generation, self.since_us = view.state, generation, view.since_us
        self.open_until_us, self.successes, self.leases = view.open_until_us, view.probes_succeeded, []
        self.early = self.plan.probes - view.early if view.state is State.OPEN else 0
        self.failed, self.tripped_at_us = set(view.failed), view.tripped_at_us
        self._forget()
        self.settle()

    def view(self) -> BreakerView:
        """Return what callers see, without words; `failed` is sorted."""
        forcing, early = self.find_forcing(), self.count_early_left()
        if forcing is not None:
            since_us = self.since_us if self.state is forcing.state else self.now_us
            return BreakerView(
                forcing.state, self.generation, since_us, forcing.until_us, tripped_at_us=self.tripped_at_us
            )
        return BreakerView(
            self.state,
            self.generation,
            self.since_us,
            open_until_us=self.open_until_us,
            reason="",
            probes_leased=len(self.leases),
            probes_succeeded=self.successes,
            tripped_at_us=self.tripped_at_us,
            tripped_by="",
            early=early,
            failed=tuple(sorted(self.failed)) if early else (),
        )


def keep_known_sources(sources: Iterable[str]) -> set[str]:
    """Return the failed sources: none if one of them is unknown, or if they are too many."""
    found = set(sources)
    return set() if "" in found or len(found) > 16 else found


def _list_intervals(
    reported: list[ReportedOutcomes], now_us: int, length_us: int, consecutive: int
) -> list[list[ReportedOutcomes]]:
    """Return the reports in each of the last complete intervals."""
    edges = [now_us - back * length_us for back in range(consecutive + 1)]
    return [[report for report in reported if edges[i + 1] <= report.at_us < edges[i]] for i in range(consecutive)]


def _has_crossed_errors(rule: ErrorRatePlan, row: list[ReportedOutcomes]) -> bool:
    outcomes, failed = sum(report.outcomes for report in row), sum(report.failed for report in row)
    return outcomes >= rule.minimum and failed / outcomes >= rule.percent / 100


def _has_crossed_latency(rule: LatencyPlan, row: list[ReportedOutcomes]) -> bool:
    outcomes, latency_us = sum(report.outcomes for report in row), sum(report.latency_us for report in row)
    return outcomes >= rule.minimum and latency_us / outcomes > rule.mean_us
