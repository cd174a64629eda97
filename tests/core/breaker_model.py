"""A breaker that is easy to believe: it ticks every single microsecond, and counts by looking through whole lists."""

from dataclasses import dataclass, field

from webhook.core.breaker import BreakerPlan, ErrorRatePlan, LatencyPlan, QuotaEventPlan, State


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


@dataclass
class Model:
    plan: BreakerPlan
    now_us: int = 0
    state: State = State.CLOSED
    generation: int = 0
    since_us: int = 0
    open_until_us: int = 0
    outcomes: list[tuple[int, bool, int]] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    leases: list[tuple[str, int]] = field(default_factory=list)
    successes: int = 0
    moves: list[tuple[State, State, int]] = field(default_factory=list)

    def pass_time(self, to_us: int) -> None:
        while self.now_us < to_us:
            self.now_us += 1
            if self.state is State.CLOSED and (self._errors_trip() or self._latency_trips()):
                self._enter(State.OPEN)
            if self.state is State.OPEN and self.now_us == self.open_until_us:
                self._enter(State.HALF_OPEN)

    def _enter(self, state: State) -> None:
        self.moves.append((self.state, state, self.now_us))
        self.state, self.generation, self.since_us = state, self.generation + 1, self.now_us
        self.open_until_us = self.now_us + self.plan.open_for_us if state is State.OPEN else 0
        self.outcomes, self.events, self.leases, self.successes = [], [], [], 0

    def _intervals(self, length_us: int, consecutive: int) -> list[list[tuple[int, bool, int]]]:
        """Return the outcomes of each of the last complete intervals; none where now is no boundary."""
        if self.now_us % length_us:
            return [[]]
        edges = [self.now_us - back * length_us for back in range(consecutive + 1)]
        return [[one for one in self.outcomes if edges[i + 1] <= one[0] < edges[i]] for i in range(consecutive)]

    def _errors_trip(self) -> bool:
        rule = self.plan.error_rate
        return rule is not None and all(
            len(seen) >= rule.minimum and sum(not ok for _, ok, _ in seen) / len(seen) >= rule.percent / 100
            for seen in self._intervals(rule.interval_us, rule.consecutive)
        )

    def _latency_trips(self) -> bool:
        rule = self.plan.latency
        return rule is not None and all(
            len(seen) >= rule.minimum and sum(latency for _, _, latency in seen) / len(seen) > rule.mean_us
            for seen in self._intervals(rule.interval_us, rule.consecutive)
        )

    def live(self) -> list[tuple[str, int]]:
        return [lease for lease in self.leases if self.now_us < lease[1]]

    def admits(self) -> bool:
        return self.state is State.CLOSED or (
            self.state is State.HALF_OPEN and self.successes + len(self.live()) < self.plan.probes
        )

    def charge(self, uid: str) -> None:
        """Let a Pod in, if the breaker lets it."""
        if self.state is State.HALF_OPEN and self.admits():
            if self.plan.has_outcomes:
                self.leases.append((uid, self.now_us + self.plan.probe_timeout_us))
            else:
                self._succeed()

    def _succeed(self) -> None:
        self.successes += 1
        if self.successes == self.plan.probes:
            self._enter(State.CLOSED)

    def outcome(self, *, ok: bool, latency_us: int, uid: str | None, generation: int | None) -> None:
        if not self.plan.has_outcomes or generation not in {None, self.generation}:
            return
        if self.state is State.CLOSED:
            self.outcomes.append((self.now_us, ok, latency_us))
        waiting = [lease for lease in self.live() if uid in {None, lease[0]}]
        if self.state is State.HALF_OPEN and waiting:
            self.leases.remove(waiting[0])
            if ok:
                self._succeed()
            else:
                self._enter(State.OPEN)

    def quota_event(self, source: str) -> None:
        rule = self.plan.quota
        if self.state is not State.CLOSED or rule is None:
            return
        recent = [(at, who) for at, who in self.events if at > self.now_us - rule.within_us]
        if not rule.by_controller or source not in {who for _, who in recent}:
            self.events.append((self.now_us, source))
            if len(recent) + 1 >= rule.count:
                self._enter(State.OPEN)
