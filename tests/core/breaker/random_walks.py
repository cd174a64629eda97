"""Helpers of the `random_walks` tests that other tests use, too."""

from typing import Any, NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.breaker_model import EXPIRED, HELD, Model, Move, plan_of
from tests.core.breakers import Breaker, name_source
from webhook.core import breaker as machine
from webhook.core.breaker import (
    BreakerPlan,
    BreakerView,
    ErrorRatePlan,
    LatencyPlan,
    QuotaEventPlan,
    State,
    Transition,
    UnschedulablePlan,
)
from webhook.core.breaker.manual import EXCUSED_US
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.breaker.record import BreakerEnvironment

plans = st.builds(
    plan_of,
    error_rate=st.none()
    | st.builds(ErrorRatePlan, st.sampled_from([50, 100]), st.just(10), st.integers(1, 3), st.integers(1, 2))
    | st.builds(UnschedulablePlan, st.just(1), st.just(10), st.just(1), st.just(1), st.just(300)),
    latency=st.none()
    | st.builds(LatencyPlan, st.just(5), st.sampled_from([10, 15]), st.integers(1, 3), st.integers(1, 2)),
    quota=st.none() | st.builds(QuotaEventPlan, st.integers(1, 3), st.just(25), st.booleans()),
    open_for_us=st.sampled_from([1, 10, 40]),
    probes=st.integers(1, 3),
    probe_timeout_us=st.sampled_from([1, 20]),
)


Operation = tuple[Any, ...]
"""What happens to a breaker: a name, and arguments."""


class Pair(NamedTuple):
    """A breaker and its model."""

    breaker: Breaker
    model: Model

    @classmethod
    def from_plan(cls, plan: BreakerPlan, late_us: int) -> "Pair":
        model = Model(plan, late_us=late_us)
        return cls(Breaker(plan, environment=BreakerEnvironment(late_us, lambda: model.opened)), model)

    def apply(self, operation: Operation) -> None:
        """Apply an operation to breaker and model, at the time of the model."""
        breaker, model, now_us = self.breaker, self.model, self.model.now_us
        match operation:
            case ("record_outcomes", (good, bad), latency_us, uid, offset, age_us, source):
                generation = None if offset is None else model.generation + offset
                reported = Outcomes(good, bad, latency_us, uid, generation, age_us)
                before = breaker.find_state(now_us) and breaker.record
                breaker.record_outcomes(now_us, reported, source)
                assert model.record_outcomes(reported, name_source(source)) is (breaker.record is not before)
            case ("refused", source):
                breaker.record_quota_event(now_us, source)
                model.record_quota_event(name_source(source))
            case ("charge", uid, source):
                assert machine.can_admit(
                    breaker.record, breaker.plan, now_us, name_source(source), breaker.environment
                ) is model.can_admit(name_source(source))
                breaker.charge(now_us, uid, source)
                model.charge(uid, name_source(source))
            case ("give back", uid):
                breaker.give_back(now_us, uid)
                model.give_back(uid)
            case _:
                self._apply_manual(operation)

    def _apply_manual(self, operation: Operation) -> None:
        breaker, model, now_us = self.breaker, self.model, self.model.now_us
        match operation:
            case ("force", state, for_us):
                breaker.force(state, now_us + for_us)
                model.plan = breaker.plan
                model.settle()
            case ("by hand", ago_us):
                reset_us = 0 if ago_us is None else now_us + ago_us
                breaker.apply_override(now_us, reset_us)
                model.apply_override(reset_us)
            case ("suppress_quota_events", suppressed):
                breaker.suppress_quota_events(now_us, *suppressed)
                model.suppress_quota_events([name_source(source) for source in suppressed], EXCUSED_US)
            case ("propose", state, ahead, until_us, failed):
                view = build_offered_view(state, max(0, model.generation + ahead), now_us, until_us, tuple(failed))
                breaker.propose(view)
                model.propose(view)
            case (_, open_max, opened):
                breaker.plan = model.plan = replace(model.plan, open_max=open_max)
                model.opened = opened


def build_offered_view(
    state: State, generation: int, now_us: int, until_us: int, failed: tuple[str, ...]
) -> BreakerView:
    """Return a view that a replica could propose."""
    is_open = state is State.OPEN
    return BreakerView(
        state,
        generation,
        max(0, now_us - 2),
        max(0, now_us + until_us) if is_open or state is State.FORCED_OPEN else 0,
        "remembered",
        tripped_at_us=max(0, now_us - 9),
        tripped_by="a trip",
        early=1 if is_open and failed else 0,
        failed=failed if is_open else (),
    )


def strip_view(view: BreakerView) -> BreakerView:
    """Return a view as the model shows it: without reasons and lineage, and with sorted sources."""
    return replace(view, reason="", tripped_by="", failed=tuple(sorted(view.failed)), passed=0, alone=0)


def convert_transition(move: Transition) -> Move:
    kind = "" if move.is_change else HELD if move.is_held_back else EXPIRED
    assert move.reason.startswith(machine.HELD) == (kind == HELD)
    assert (move.reason == machine.EXPIRED) == (kind == EXPIRED)
    return move.old, move.new, move.at_us, kind
