"""The breaker's transition table: each transition has an example, and there are no others."""

from collections.abc import Callable

import pytest

from tests.core.breakers import (
    SECOND_US,
    VARIANT,
    WITHOUT_OUTCOMES,
    Breaker,
    build_open_breaker,
    build_probing_breaker,
)
from webhook.core.breaker import TRANSITIONS, State, Transition, TransitionCause

LATER_US = 10 * SECOND_US
FORCED_UNTIL_US = 1000 * SECOND_US

Example = Callable[[], Transition]


def build_closed() -> Breaker:
    return Breaker()


def build_half_open() -> Breaker:
    return build_probing_breaker()[0]


def build_forced_open() -> Breaker:
    return force(build_closed(), State.FORCED_OPEN)


def build_forced_closed() -> Breaker:
    return force(build_closed(), State.FORCED_CLOSED)


def force(breaker: Breaker, state: State | None) -> Breaker:
    breaker.force(state, FORCED_UNTIL_US)
    breaker.apply_override(breaker.record.since_us + 1)
    return breaker


def run_probes(breaker: Breaker, *, ok: bool) -> Transition:
    now_us = breaker.record.since_us
    for uid in "xyz":
        breaker.charge(now_us, uid, f"new-{uid}")
        breaker.record_outcome(now_us, ok=ok, uid=uid)
    return breaker.moves[-1]


def make_forcing(make: Callable[[], Breaker], state: State | None) -> Example:
    return lambda: force(make(), state).moves[-1]


def reset(make: Callable[[], Breaker]) -> Transition:
    breaker = make()
    now_us = breaker.record.since_us + 1
    breaker.apply_override(now_us, now_us)
    return breaker.moves[-1]


def build_slow() -> Breaker:
    breaker = Breaker()
    for second in range(5):
        breaker.record_outcome(second * SECOND_US, ok=True, latency_us=2 * SECOND_US + 1)
    breaker.find_state(5 * SECOND_US)
    return breaker


def build_failing() -> Breaker:
    breaker = Breaker()
    for second in range(3):
        breaker.record_good_and_bad(second * SECOND_US, good=0, bad=10)
    breaker.find_state(3 * SECOND_US)
    return breaker


def build_unschedulable() -> Breaker:
    breaker = Breaker(VARIANT)
    breaker.record_good_and_bad(0, good=999, bad=3)
    breaker.find_state(SECOND_US)
    return breaker


EXAMPLES: dict[tuple[State, TransitionCause], Example] = {
    (State.CLOSED, TransitionCause.ERROR_RATE): lambda: build_failing().moves[-1],
    (State.CLOSED, TransitionCause.LATENCY): lambda: build_slow().moves[-1],
    (State.CLOSED, TransitionCause.QUOTA_EXCEEDED): lambda: build_open_breaker().moves[-1],
    (State.CLOSED, TransitionCause.UNSCHEDULABLE): lambda: build_unschedulable().moves[-1],
    (State.OPEN, TransitionCause.OPEN_FOR_PASSED): lambda: build_probing_breaker()[0].moves[-1],
    (State.OPEN, TransitionCause.PROBES_SUCCEEDED): lambda: run_probes(build_open_breaker(), ok=True),
    (State.HALF_OPEN, TransitionCause.PROBES_SUCCEEDED): lambda: run_probes(build_half_open(), ok=True),
    (State.HALF_OPEN, TransitionCause.PROBE_FAILED): lambda: run_probes(build_half_open(), ok=False),
    (State.OPEN, TransitionCause.RESET): lambda: reset(build_open_breaker),
    (State.HALF_OPEN, TransitionCause.RESET): lambda: reset(build_half_open),
    (State.CLOSED, TransitionCause.FORCED_OPEN): make_forcing(build_closed, State.FORCED_OPEN),
    (State.OPEN, TransitionCause.FORCED_OPEN): make_forcing(build_open_breaker, State.FORCED_OPEN),
    (State.HALF_OPEN, TransitionCause.FORCED_OPEN): make_forcing(build_half_open, State.FORCED_OPEN),
    (State.FORCED_CLOSED, TransitionCause.FORCED_OPEN): make_forcing(build_forced_closed, State.FORCED_OPEN),
    (State.CLOSED, TransitionCause.FORCED_CLOSED): make_forcing(build_closed, State.FORCED_CLOSED),
    (State.OPEN, TransitionCause.FORCED_CLOSED): make_forcing(build_open_breaker, State.FORCED_CLOSED),
    (State.HALF_OPEN, TransitionCause.FORCED_CLOSED): make_forcing(build_half_open, State.FORCED_CLOSED),
    (State.FORCED_OPEN, TransitionCause.FORCED_CLOSED): make_forcing(build_forced_open, State.FORCED_CLOSED),
    (State.FORCED_OPEN, TransitionCause.RELEASED): make_forcing(build_forced_open, None),
    (State.FORCED_CLOSED, TransitionCause.RELEASED): make_forcing(build_forced_closed, None),
}


def test_each_transition_has_an_example() -> None:
    assert EXAMPLES.keys() == TRANSITIONS.keys()


@pytest.mark.parametrize(("state", "cause"), TRANSITIONS)
def test_example_makes_its_transition(state: State, cause: TransitionCause) -> None:
    move = EXAMPLES[state, cause]()
    assert (move.old, move.new, move.cause) == (state, TRANSITIONS[state, cause], cause)
    assert move.is_change


@pytest.mark.parametrize(
    "make", [build_closed, build_open_breaker, build_half_open, build_forced_open, build_forced_closed]
)
def test_each_state_can_be_left_for_closed(make: Callable[[], Breaker]) -> None:
    breaker = make()
    breaker.force(None)
    breaker.apply_override(LATER_US + FORCED_UNTIL_US, LATER_US + FORCED_UNTIL_US)
    assert breaker.record.state is State.CLOSED


def test_forced_state_ends_at_its_time() -> None:
    for make in (build_forced_open, build_forced_closed):
        breaker = make()
        assert breaker.find_state(FORCED_UNTIL_US - 1) is not State.CLOSED
        assert breaker.find_state(FORCED_UNTIL_US + LATER_US) is State.CLOSED
        assert (breaker.moves[-1].at_us, breaker.moves[-1].reason) == (FORCED_UNTIL_US, "until has passed")


def test_charged_early_probe_is_a_success_without_outcomes() -> None:
    breaker = build_open_breaker(WITHOUT_OUTCOMES)
    assert [breaker.charge(LATER_US, uid, uid) for uid in "xa"] == [True, False]
    assert breaker.record.state is State.OPEN
    assert breaker.charge(LATER_US, "y", "x")
    assert breaker.record.state is State.CLOSED
    assert breaker.moves[-1].reason == "2 early probes succeeded"
