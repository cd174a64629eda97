"""A breaker under test: its record and all its transitions."""

from msgspec.structs import replace

from webhook.core import breaker as machine
from webhook.core.breaker import (
    BreakerPlan,
    BreakerStep,
    BreakerView,
    ErrorRatePlan,
    Forcing,
    LatencyPlan,
    QuotaEventPlan,
    Record,
    State,
    Transition,
)
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.record import ALONE, BreakerEnvironment
from webhook.core.kubernetes.quantity import Duration
from webhook.core.policy_fields import Shares, Variant

SECOND_US = 1_000_000
ERRORS = ErrorRatePlan(percent=95, interval_us=SECOND_US, consecutive=3, minimum=10)
SLOW = LatencyPlan(mean_us=2 * SECOND_US, interval_us=SECOND_US, consecutive=5, minimum=1)
QUOTA_EVENTS = QuotaEventPlan(count=3, within_us=60 * SECOND_US, by_controller=True)
USUAL = BreakerPlan(
    has_outcomes=True,
    error_rate=ERRORS,
    latency=SLOW,
    quota=QUOTA_EVENTS,
    open_for_us=180 * SECOND_US,
    probes=3,
    probe_timeout_us=300 * SECOND_US,
)
WITHOUT_OUTCOMES = BreakerPlan(
    has_outcomes=False,
    error_rate=None,
    latency=None,
    quota=QUOTA_EVENTS,
    open_for_us=180 * SECOND_US,
    probes=2,
    probe_timeout_us=300 * SECOND_US,
)
VARIANT = BreakerPlan.for_variant(
    Shares(
        (Variant("spot", 1), Variant("on-demand", 1)),
        unschedulable_for=Duration.parse("5m"),
        open_for=Duration.parse("3m"),
    )
)


class Breaker:
    """A breaker and its transitions. Source "a" means "controller:a", and "" an unknown source."""

    def __init__(
        self, plan: BreakerPlan = USUAL, record: Record | None = None, environment: BreakerEnvironment = ALONE
    ) -> None:
        self.plan = plan
        self.record = record or Record("payment-api")
        self.environment = environment
        self.moves: list[Transition] = []

    def _take(self, step: BreakerStep) -> None:
        self.record = step.record
        self.moves += step.transitions

    def find_state(self, now_us: int) -> State:
        self._take(machine.advance(self.record, self.plan, now_us, self.environment))
        return self.record.state

    def view(self, now_us: int) -> BreakerView:
        return machine.view(self.record, self.plan, now_us, self.environment)

    def record_outcomes(self, now_us: int, reported: Outcomes, source: str = "") -> None:
        self._take(
            machine.record_outcomes(self.record, self.plan, now_us, reported, name_source(source), self.environment)
        )

    def record_good_and_bad(self, now_us: int, good: int, bad: int = 0, latency_us: int = 0, source: str = "") -> None:
        for ok in [True] * good + [False] * bad:
            self.record_outcome(now_us, ok=ok, latency_us=latency_us, source=source)

    def record_outcome(
        self,
        now_us: int,
        *,
        ok: bool,
        uid: str | None = None,
        generation: int | None = None,
        latency_us: int = 0,
        source: str = "",
    ) -> None:
        self.record_outcomes(
            now_us, Outcomes.from_single(ok=ok, latency_us=latency_us, uid=uid, generation=generation), source
        )

    def record_quota_event(self, now_us: int, source: str) -> None:
        self._take(machine.record_quota_event(self.record, self.plan, now_us, name_source(source), self.environment))

    def charge(self, now_us: int, uid: str, source: str = "") -> bool:
        """Charge a Pod if the breaker admits it."""
        self.find_state(now_us)
        admitted = machine.can_admit(self.record, self.plan, now_us, name_source(source), self.environment)
        if admitted:
            self._take(machine.take_probe(self.record, self.plan, now_us, uid, name_source(source), self.environment))
        return admitted

    def give_back(self, now_us: int, uid: str) -> None:
        self.record = machine.give_back_probe(self.record, uid, now_us)

    def force(self, state: State | None, until_us: int = 0, reason: str = "INC-1") -> None:
        """Change the plan, without applying it to the record."""
        self.plan = replace(self.plan, forcing=Forcing(state, until_us, reason) if state is not None else None)

    def apply_override(self, now_us: int, reset_us: int = 0) -> State:
        self._take(machine.apply_override(self.record, self.plan, now_us, reset_us, self.environment))
        return self.record.state

    def suppress_quota_events(self, now_us: int, *sources: str) -> None:
        self.record = machine.suppress_quota_events(self.record, [name_source(source) for source in sources], now_us)

    def propose(self, view: BreakerView) -> None:
        self.record = machine.apply_proposal(self.record, self.plan, view)


def name_source(source: str) -> str:
    return source if ":" in source or not source else f"controller:{source}"


def build_open_breaker(plan: BreakerPlan = USUAL, at_us: int = SECOND_US) -> Breaker:
    """Return a breaker in OPEN, by quota events of controllers a, b and c."""
    breaker = Breaker(plan)
    for source in "abc":
        breaker.record_quota_event(at_us, source)
    assert breaker.record.state is State.OPEN
    return breaker


def build_probing_breaker(plan: BreakerPlan = USUAL) -> tuple[Breaker, int]:
    """Return a breaker in HALF_OPEN, and the time of that transition."""
    breaker = build_open_breaker(plan)
    now_us = breaker.record.open_until_us
    assert breaker.find_state(now_us) is State.HALF_OPEN
    return breaker, now_us
