"""Helpers of the `random_walks` tests that other tests use, too."""

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.breaker_model import EXPIRED, HELD, Move, plan_of
from webhook.core import breaker as machine
from webhook.core.breaker import (
    BreakerView,
    ErrorRatePlan,
    LatencyPlan,
    QuotaEventPlan,
    State,
    Transition,
    UnschedulablePlan,
)

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
