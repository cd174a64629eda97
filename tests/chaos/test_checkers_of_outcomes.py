"""Checker of the causes of trips: a trip without a cause is told, and a cause without a trip."""

from typing import Any

import pytest

from tests.chaos.built_history import START, BuiltHistory, build_limit_row
from tests.chaos.checkers import check
from tests.chaos.checkers.log_lines import format_moment
from tests.chaos.history import UNKNOWN


def list_told(built: BuiltHistory) -> list[str]:
    return [str(violation) for violation in check(built.build())]


def test_a_trip_without_a_cause_and_a_cause_without_a_trip_are_told() -> None:
    built = BuiltHistory()
    built.report(1, 0, 2)
    built.move(5, "CLOSED", "OPEN", 1)
    [told] = list_told(built)
    assert told == (
        "breakers: api: failures before it opened: 0, expected at least 4 within 2 s;"
        f" at {format_moment(START + 5)}; no fault"
    )
    silent = BuiltHistory()
    for tenth in range(80):
        silent.report(5 + tenth / 10, 2, 2)
    [told] = list_told(silent)
    assert "breakers: api: all outcomes failed for 7.9 s: it did not open, expected OPEN after 2 s" in told


def fail_from(failing: float, *, tripped_at: float, until: float = 20, opens: int = 1) -> BuiltHistory:
    """Return a history in which service api succeeds until a moment, then fails, and opens."""
    built = BuiltHistory()
    for tenth in range(1, 10 * round(until)):
        at = tenth / 10
        built.report(at, 0 if at < failing else 2, 2)
    built.move(tripped_at + 0.3, "CLOSED", "OPEN", opens)
    breaker = {"state": "OPEN", "generation": opens, "trippedAt": format_moment(START + tripped_at)}
    built.show(tripped_at + 1, {"name": "api", "breaker": breaker})
    return built


def test_a_trip_after_enough_intervals_has_no_violation() -> None:
    assert list_told(fail_from(12.0, tripped_at=14)) == []
    assert list_told(fail_from(11.9, tripped_at=14)) == []


@pytest.mark.parametrize("failing", [12.4, 13.0])
def test_an_interval_of_successes_that_opened_a_breaker_is_told(failing: float) -> None:
    told = [line for line in list_told(fail_from(failing, tripped_at=14)) if "interval 1 of 2 that opened it" in line]
    assert len(told) == 1
    end = format_moment(START + 13)
    assert told[0].startswith("breakers: api: interval 1 of 2 that opened it: at most ")
    assert f"outcomes failed, expected 95% of 2 or more by {end}; at " in told[0]


def test_an_interval_without_failures_that_opened_a_breaker_is_told() -> None:
    built = BuiltHistory()
    built.report(6.9, 4, 4)
    built.move(7.3, "CLOSED", "OPEN", 1)
    built.show(8, {"name": "api", "breaker": {"state": "OPEN", "trippedAt": format_moment(START + 7)}})
    assert any("interval 1 of 2 that opened it: at most 0 of 0 outcomes failed" in line for line in list_told(built))


def test_outcomes_without_an_answer_may_be_the_cause() -> None:
    built = BuiltHistory()
    for at in (5.5, 6.5):
        built.report(at, 2, 2, outcome=UNKNOWN)
    built.move(7.3, "CLOSED", "OPEN", 1)
    built.show(8, {"name": "api", "breaker": {"state": "OPEN", "trippedAt": format_moment(START + 7)}})
    assert not [line for line in list_told(built) if line.startswith("breakers: ")]


@pytest.mark.parametrize(
    "excuse",
    [
        lambda built: built.hurt("kill", "server-2", 12, 12.5),
        lambda built: built.move(12.6, "HALF_OPEN", "CLOSED", 3),
        lambda built: built.report(12.8, 0, 2, seconds=0.2),
    ],
    ids=["a server was killed", "the breaker was not CLOSED", "answers are slow"],
)
def test_successes_that_may_not_have_been_counted_are_no_violation(excuse: Any) -> None:
    built = fail_from(12.7, tripped_at=14, opens=4)
    excuse(built)
    assert not [line for line in list_told(built) if "interval" in line]


def test_denials_that_open_no_breaker_are_told() -> None:
    built = BuiltHistory()
    built.admit("a", 1, "noisy")
    row = build_limit_row(1, hard=1, name="noisy")
    for number in range(2):
        built.review(f"d{number}", 2 + number, "Deny", "noisy", codes=["QuotaExceeded"], limits=[row])
    [told] = list_told(built)
    assert "breakers: noisy: 2 denials within 10 s: it did not open, expected OPEN by 2" in told
    built.move(3.1, "CLOSED", "OPEN", 1, "noisy")
    assert list_told(built) == []


def test_denials_may_be_unknown_of_a_server_that_was_killed() -> None:
    built = BuiltHistory()
    built.admit("a", 1, "noisy")
    row = build_limit_row(1, hard=1, name="noisy")
    built.review("d", 2, "Deny", "noisy", codes=["QuotaExceeded"], limits=[row])
    built.move(3.1, "CLOSED", "OPEN", 1, "noisy")
    [told] = list_told(built)
    assert "breakers: noisy: denials within 10 s before it opened: 1, expected at least 2" in told
    built.hurt("kill", "server-2", 2.5, 4)
    assert list_told(built) == []
