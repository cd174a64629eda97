"""The breaker's transition table: each row occurs, and nothing else does."""

from collections.abc import Callable

import pytest

from tests.core.breakers import SECOND_US, WITHOUT_OUTCOMES, Breaker, probing, tripped
from webhook.core.breaker import TRANSITIONS, State, Transition, TransitionCause

LATER_US = 10 * SECOND_US
HAND_US = 1000 * SECOND_US

Example = Callable[[], Transition]


def closed() -> Breaker:
    return Breaker()


def half_open() -> Breaker:
    return probing()[0]


def held_open() -> Breaker:
    return hand(closed(), State.FORCED_OPEN)


def held_closed() -> Breaker:
    return hand(closed(), State.FORCED_CLOSED)


def hand(breaker: Breaker, state: State | None) -> Breaker:
    breaker.force(state, HAND_US)
    breaker.apply_override(breaker.record.since_us + 1)
    return breaker


def probed(breaker: Breaker, *, ok: bool) -> Transition:
    now_us = breaker.record.since_us
    for uid in "xyz":
        breaker.charge(now_us, uid, f"new-{uid}")
        breaker.outcome(now_us, ok=ok, uid=uid)
    return breaker.moves[-1]


def forcing(make: Callable[[], Breaker], state: State | None) -> Example:
    return lambda: hand(make(), state).moves[-1]


def reset(make: Callable[[], Breaker]) -> Transition:
    breaker = make()
    now_us = breaker.record.since_us + 1
    breaker.apply_override(now_us, now_us)
    return breaker.moves[-1]


def slow() -> Breaker:
    breaker = Breaker()
    for second in range(5):
        breaker.outcome(second * SECOND_US, ok=True, latency_us=2 * SECOND_US + 1)
    breaker.at(5 * SECOND_US)
    return breaker


def failing() -> Breaker:
    breaker = Breaker()
    for second in range(3):
        breaker.outcomes(second * SECOND_US, good=0, bad=10)
    breaker.at(3 * SECOND_US)
    return breaker


EXAMPLES: dict[tuple[State, TransitionCause], Example] = {
    (State.CLOSED, TransitionCause.ERROR_RATE): lambda: failing().moves[-1],
    (State.CLOSED, TransitionCause.LATENCY): lambda: slow().moves[-1],
    (State.CLOSED, TransitionCause.QUOTA_EXCEEDED): lambda: tripped().moves[-1],
    (State.OPEN, TransitionCause.OPEN_FOR_PASSED): lambda: probing()[0].moves[-1],
    (State.OPEN, TransitionCause.PROBES_SUCCEEDED): lambda: probed(tripped(), ok=True),
    (State.HALF_OPEN, TransitionCause.PROBES_SUCCEEDED): lambda: probed(half_open(), ok=True),
    (State.HALF_OPEN, TransitionCause.PROBE_FAILED): lambda: probed(half_open(), ok=False),
    (State.OPEN, TransitionCause.RESET): lambda: reset(tripped),
    (State.HALF_OPEN, TransitionCause.RESET): lambda: reset(half_open),
    (State.CLOSED, TransitionCause.FORCED_OPEN): forcing(closed, State.FORCED_OPEN),
    (State.OPEN, TransitionCause.FORCED_OPEN): forcing(tripped, State.FORCED_OPEN),
    (State.HALF_OPEN, TransitionCause.FORCED_OPEN): forcing(half_open, State.FORCED_OPEN),
    (State.FORCED_CLOSED, TransitionCause.FORCED_OPEN): forcing(held_closed, State.FORCED_OPEN),
    (State.CLOSED, TransitionCause.FORCED_CLOSED): forcing(closed, State.FORCED_CLOSED),
    (State.OPEN, TransitionCause.FORCED_CLOSED): forcing(tripped, State.FORCED_CLOSED),
    (State.HALF_OPEN, TransitionCause.FORCED_CLOSED): forcing(half_open, State.FORCED_CLOSED),
    (State.FORCED_OPEN, TransitionCause.FORCED_CLOSED): forcing(held_open, State.FORCED_CLOSED),
    (State.FORCED_OPEN, TransitionCause.RELEASED): forcing(held_open, None),
    (State.FORCED_CLOSED, TransitionCause.RELEASED): forcing(held_closed, None),
}


def test_every_row_has_an_example_and_no_example_is_of_another_law() -> None:
    assert EXAMPLES.keys() == TRANSITIONS.keys()


@pytest.mark.parametrize(("state", "cause"), TRANSITIONS)
def test_every_row_of_the_law_happens(state: State, cause: TransitionCause) -> None:
    move = EXAMPLES[state, cause]()
    assert (move.old, move.new, move.cause) == (state, TRANSITIONS[state, cause], cause)
    assert move.is_change


@pytest.mark.parametrize("make", [closed, tripped, half_open, held_open, held_closed])
def test_each_state_can_be_left_for_closed(make: Callable[[], Breaker]) -> None:
    breaker = make()
    breaker.force(None)
    breaker.apply_override(LATER_US + HAND_US, LATER_US + HAND_US)
    assert breaker.record.state is State.CLOSED


def test_a_state_that_is_held_ends_by_time_alone() -> None:
    for make in (held_open, held_closed):
        breaker = make()
        assert breaker.at(HAND_US - 1) is not State.CLOSED
        assert breaker.at(HAND_US + LATER_US) is State.CLOSED
        assert (breaker.moves[-1].at_us, breaker.moves[-1].reason) == (HAND_US, "until has passed")


def test_without_outcomes_an_early_probe_that_is_charged_is_a_success() -> None:
    breaker = tripped(WITHOUT_OUTCOMES)
    assert [breaker.charge(LATER_US, uid, uid) for uid in "xa"] == [True, False]
    assert breaker.record.state is State.OPEN
    assert breaker.charge(LATER_US, "y", "x")
    assert breaker.record.state is State.CLOSED
    assert breaker.moves[-1].reason == "2 early probes succeeded"
