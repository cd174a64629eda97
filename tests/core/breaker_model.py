"""A simple model of a breaker: it ticks every microsecond, and counts by scanning whole lists."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from webhook.core.breaker import BreakerPlan, BreakerView, ErrorRatePlan, Forcing, LatencyPlan, QuotaEventPlan, State
from webhook.core.breaker.outcome_types import Outcomes

FORCED = {State.FORCED_OPEN, State.FORCED_CLOSED}
SHUT = [State.CLOSED, State.HALF_OPEN, State.OPEN, State.FORCED_CLOSED, State.FORCED_OPEN]
"""Of two accounts of one generation the one further back holds."""

HELD, EXPIRED = "held", "expired"
"""What is told beside changes of state."""

STORE = "the store"
_decisions = count()

Decision = tuple[str, int]
"""By whom, and a number that no other has."""

Move = tuple[State, State, int, str]
"""From, to, when, and HELD or EXPIRED where the state stayed."""


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
    fed = error_rate is not None or latency is not None if has_outcomes is None else has_outcomes
    return BreakerPlan(fed, error_rate, latency, quota, open_for_us, probes, probe_timeout_us)


class Had(NamedTuple):
    """What was heard at one time of one moment; `source` is whose it was."""

    at_us: int
    outcomes: int
    failed: int
    latency_us: int
    source: str


class Held(NamedTuple):
    """A lease."""

    uid: str
    expires_us: int
    generation: int


@dataclass
class Model:
    """`late_us` and `opened` are what `Around` tells the breaker."""

    plan: BreakerPlan
    now_us: int = 0
    late_us: int = 0
    opened: int = 0
    state: State = State.CLOSED
    generation: int = 0
    since_us: int = 0
    open_until_us: int = 0
    of_errors: list[Had] = field(default_factory=list)
    of_latency: list[Had] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    leases: list[Held] = field(default_factory=list)
    successes: int = 0
    early: int = 0
    failed: set[str] = field(default_factory=set)
    tripped_at_us: int = 0
    reset_us: int = 0
    asked_us: int = 0
    excused: dict[str, int] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    judged_us: int = 0
    """Up to here no interval has an end that was not looked at."""
    decided: int = 0
    """The generation of its newest decision: of the newest move that time alone does not bring about."""
    line: tuple[Decision, ...] = ()
    """All of them, as no number tells them."""
    name: str = STORE
    """Who decides here: the store, or a replica that is alone."""

    # Time

    def pass_time(self, to_us: int) -> None:
        while self.now_us < to_us:
            self.now_us += 1
            self.settle()

    def settle(self) -> None:
        """Do what is due now."""
        if self.state in FORCED and self.now_us >= self.open_until_us:
            self._enter(State.CLOSED, self.open_until_us, is_due=True)
        if self.hand() is not None:
            return  # frozen
        while self.judged_us < self.now_us - self.late_us:
            self.judged_us += 1
            self._judge(self.judged_us)
        if self.state is State.OPEN:
            self._expire(min(self.now_us, self.open_until_us))
            if self.now_us >= self.open_until_us:
                self._enter(State.HALF_OPEN, self.open_until_us, is_due=True)
        self._expire(self.now_us)

    def forcing(self) -> Forcing | None:
        forcing = self.plan.forcing
        return forcing if forcing is not None and self.now_us < forcing.until_us else None

    def hand(self) -> State | None:
        """Return the state that a hand holds it in."""
        forcing = self.forcing()
        return forcing.state if forcing is not None else self.state if self.state in FORCED else None

    def _judge(self, at_us: int) -> None:
        """Look whether an interval ends here that trips it."""
        errors, latency = self.plan.error_rate, self.plan.latency
        if errors is not None and self.state is State.CLOSED and at_us % errors.interval_us == 0:
            rows = _rows(self.of_errors, at_us, errors.interval_us, errors.consecutive)
            if all(_errors_crossed(errors, row) for row in rows):
                self._trip(at_us, [had.source for row in rows for had in row if had.failed])
        if latency is not None and self.state is State.CLOSED and at_us % latency.interval_us == 0:
            rows = _rows(self.of_latency, at_us, latency.interval_us, latency.consecutive)
            if all(_latency_crossed(latency, row) for row in rows):
                slow = [had for row in rows for had in row if had.latency_us > latency.mean_us * had.outcomes]
                self._trip(at_us, [had.source for had in slow])

    def _trip(self, at_us: int, sources: Iterable[str]) -> None:
        if self.plan.open_max is not None and self.opened >= self.plan.open_max:
            self.moves.append((State.CLOSED, State.CLOSED, at_us, HELD))
            self._forget()
            return
        self._enter(State.OPEN, at_us, known(sources))
        self.tripped_at_us = at_us

    def _enter(self, state: State, at_us: int, failed: Iterable[str] = (), *, is_due: bool = False) -> None:
        before = self.state, self.leases, self.failed
        self.moves.append((self.state, state, at_us, ""))
        self.state, self.generation, self.since_us = state, self.generation + 1, at_us
        if not is_due:
            self.decided, self.line = self.generation, (*self.line, (self.name, next(_decisions)))
        self.open_until_us = at_us + self.plan.open_for_us if state is State.OPEN else 0
        self.leases, self.successes, self.early, self.failed = [], 0, 0, set(failed)
        if state is State.HALF_OPEN:  # early probes go on, and who failed is not forgotten
            _, self.leases, self.failed = before
        self._forget()

    def _forget(self) -> None:
        self.of_errors, self.of_latency, self.events = [], [], []

    def _expire(self, up_to_us: int) -> None:
        for lease in [lease for lease in self.leases if lease.expires_us <= up_to_us]:
            self.leases.remove(lease)
            self.moves.append((self.state, self.state, lease.expires_us, EXPIRED))

    # Who comes in

    def early_left(self) -> int:
        return self.plan.probes - self.early if self.state is State.OPEN and self.failed else 0

    def admits(self, source: str = "") -> bool:
        held = self.hand()
        if held is not None:
            return held is State.FORCED_CLOSED
        if self.state is State.OPEN:
            return self.early_left() > 0 and source.startswith("controller:") and source not in self.failed
        return self.state is State.CLOSED or self.successes + len(self.leases) < self.plan.probes

    def charge(self, uid: str, source: str = "") -> bool:
        """Let a Pod in, if the breaker lets it; whether it is a probe."""
        if self.hand() is not None or self.state is State.CLOSED or not self.admits(source):
            return False
        self.early += self.state is State.OPEN
        if self.plan.has_outcomes:
            self.leases.append(Held(uid, self.now_us + self.plan.probe_timeout_us, self.generation))
        else:
            self._succeed()
        return True

    def give_back(self, uid: str) -> None:
        for lease in [lease for lease in self.leases if lease.uid == uid and lease.expires_us > self.now_us]:
            self.leases.remove(lease)
            self.early -= self.state is State.OPEN

    def _succeed(self) -> None:
        self.successes += 1
        if self.successes == self.plan.probes:
            self._enter(State.CLOSED, self.now_us)

    # What it hears

    def record_outcomes(self, reported: Outcomes, source: str = "") -> bool:
        """Take outcomes; whether they changed anything."""
        at_us = self.now_us - max(0, reported.age_us)
        if not self.plan.has_outcomes or self.hand() is not None:
            return False
        if self.state is State.CLOSED:
            is_stale = at_us < max(self.since_us, self.reset_us) or reported.generation not in {None, self.generation}
            return not is_stale and self._count(reported, at_us, source)
        settled = [self._settle(reported, at_us, source, ok=False) for _ in range(reported.failed)]
        settled += [self._settle(reported, at_us, source, ok=True) for _ in range(reported.succeeded)]
        return any(settled)

    def _count(self, reported: Outcomes, at_us: int, source: str) -> bool:
        """Note it with each rule that has not judged the interval yet."""
        had = Had(at_us, reported.succeeded + reported.failed, reported.failed, reported.latency_us, source)
        counted = False
        for rule, noted in ((self.plan.error_rate, self.of_errors), (self.plan.latency, self.of_latency)):
            if rule is not None and (at_us // rule.interval_us + 1) * rule.interval_us > self.now_us - self.late_us:
                noted.append(had)
                counted = True
        return counted

    def _settle(self, reported: Outcomes, at_us: int, source: str, *, ok: bool) -> bool:
        if reported.uid is None:
            is_ours = self.state is State.HALF_OPEN and at_us >= self.since_us
            waiting = self.leases if is_ours and reported.generation in {None, self.generation} else []
        else:
            mine = [lease for lease in self.leases if lease.uid == reported.uid][:1]
            waiting = [lease for lease in mine if reported.generation in {None, lease.generation}]
        if not waiting or self.state not in {State.OPEN, State.HALF_OPEN}:
            return False
        self.leases.remove(waiting[0])
        if ok:
            self._succeed()
        elif self.state is State.HALF_OPEN:
            self._enter(State.OPEN, self.now_us, known({*self.failed, source}) if self.failed else ())
        return True

    def quota_event(self, source: str) -> None:
        rule = self.plan.quota
        if self.state is not State.CLOSED or rule is None or self.hand() is not None:
            return
        if any(self.now_us < self.excused.get(who, 0) for who in (source, "*")):
            return
        recent = [(at, who) for at, who in self.events if at > self.now_us - rule.within_us]
        if not rule.by_controller or source not in {who for _, who in recent}:
            self.events.append((self.now_us, source))
            if len(recent) + 1 >= rule.count:
                self._trip(self.now_us, [who for _, who in recent] + [source])

    # What is done to it

    def apply_override(self, asked_us: int = 0) -> None:
        forcing = self.forcing()
        if forcing is not None:
            if self.state is not forcing.state:
                self._enter(forcing.state, self.now_us)
            self.open_until_us = forcing.until_us
        elif self.state in FORCED:
            self._enter(State.CLOSED, self.now_us)
        reset_us = min(asked_us, self.now_us)
        if asked_us > self.asked_us and reset_us > self.since_us and self.state not in FORCED:
            self.asked_us, self.reset_us = asked_us, reset_us
            if self.state is State.CLOSED:
                self._forget()
            else:
                self._enter(State.CLOSED, self.now_us)

    def suppress_quota_events(self, sources: Sequence[str], for_us: int) -> None:
        live = {who: until_us for who, until_us in self.excused.items() if until_us > self.now_us}
        self.excused = {**live, **dict.fromkeys(sources, self.now_us + for_us)}
        if len(self.excused) > 64:
            self.excused = {"*": self.now_us + for_us}
        self.events = [(at, who) for at, who in self.events if who not in sources]

    def propose(self, view: BreakerView) -> None:
        """Take an account of the store, which may have lost it."""
        mine = self.decided, self.generation, SHUT.index(self.state)
        if not self._undoes(view) and (view.decided, view.generation, SHUT.index(view.state)) > mine:
            generation = max(view.generation, self.generation)
            self._take(view, generation)
            self.decided, self.line = generation - view.passed, ((STORE, next(_decisions)),)
        else:
            self.generation = max(self.generation, view.generation + (view.generation > self.generation))

    def _undoes(self, view: BreakerView) -> bool:
        """Whether it is from before a reset, or does not know of a trip that holds here."""
        is_opened = view.state in {State.OPEN, State.HALF_OPEN}
        is_new = self.state in {State.OPEN, State.HALF_OPEN} and view.tripped_at_us < self.tripped_at_us
        return (is_opened and view.since_us < self.reset_us) or (is_new and view.state not in FORCED)

    def cut_off(self, name: str) -> "Model":
        """Return what a replica goes on from that hears of the store no more: what was seen of it."""
        mine = deepcopy(self)
        mine.name, mine.reset_us, mine.excused = name, 0, {}
        if self.hand() is not None:  # it may let go meanwhile
            mine.state, mine.since_us, mine.open_until_us, mine.tripped_at_us = State.CLOSED, 0, 0, 0
            mine.successes = mine.early = 0
            mine.leases = []
        mine.leases = [Held("", self.now_us + self.plan.probe_timeout_us, self.generation) for _ in mine.leases]
        mine.failed = mine.failed if self.early_left() else set()
        mine.asked_us, mine.moves = 0, []
        mine._forget()
        return mine

    def heal(self, other: "Model") -> None:
        """Hear what a replica that was alone has decided: by who decided what, and after which decision."""
        fork = next(
            (at for at, (one, two) in enumerate(zip(self.line, other.line, strict=False)) if one != two),
            min(len(self.line), len(other.line)),
        )
        here, there = self.line[fork:], other.line[fork:]
        if not there:
            if not here and other.generation > self.generation:  # time has passed there, which a hand holds up here
                self._take(other.view(), other.generation)
            return
        view, is_decided_here = other.view(), any(who == STORE for who, _ in here)
        is_reset = view.state in {State.OPEN, State.HALF_OPEN} and view.since_us < self.reset_us
        mine = SHUT.index(self.state), self.tripped_at_us, self.since_us
        is_more_shut = not here or (SHUT.index(view.state), view.tripped_at_us, view.since_us) > mine
        holds = self.state not in FORCED and not is_reset and not is_decided_here and is_more_shut
        if holds:
            shift = max(0, self.generation + 1 - other.decided)
            self._take(view, other.generation + shift)
            self.decided, self.line = other.decided + shift, other.line
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
        forcing, early = self.forcing(), self.early_left()
        if forcing is not None:
            since_us = self.since_us if self.state is forcing.state else self.now_us
            return BreakerView(
                forcing.state, self.generation, since_us, forcing.until_us, tripped_at_us=self.tripped_at_us
            )
        return BreakerView(
            self.state,
            self.generation,
            self.since_us,
            self.open_until_us,
            "",
            len(self.leases),
            self.successes,
            self.tripped_at_us,
            "",
            early,
            tuple(sorted(self.failed)) if early else (),
        )


def known(sources: Iterable[str]) -> set[str]:
    """Return who had failed; nobody where somebody is not known, or where they are too many to keep."""
    found = set(sources)
    return set() if "" in found or len(found) > 16 else found


def _rows(reported: list[Had], now_us: int, length_us: int, consecutive: int) -> list[list[Had]]:
    """Return what was had in each of the last complete intervals."""
    edges = [now_us - back * length_us for back in range(consecutive + 1)]
    return [[had for had in reported if edges[i + 1] <= had.at_us < edges[i]] for i in range(consecutive)]


def _errors_crossed(rule: ErrorRatePlan, row: list[Had]) -> bool:
    outcomes, failed = sum(had.outcomes for had in row), sum(had.failed for had in row)
    return outcomes >= rule.minimum and failed / outcomes >= rule.percent / 100


def _latency_crossed(rule: LatencyPlan, row: list[Had]) -> bool:
    outcomes, latency_us = sum(had.outcomes for had in row), sum(had.latency_us for had in row)
    return outcomes >= rule.minimum and latency_us / outcomes > rule.mean_us
