"""Whose handshake comes next: by a clock that stands still until a test moves it."""

from collections.abc import Callable
from itertools import count

import pytest

from webhook.server import handshake_throttle
from webhook.server.handshake_throttle import HandshakeThrottle


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> HandshakeThrottle[str]:
    """Return one whose credit is spent."""
    pace: HandshakeThrottle[str] = HandshakeThrottle(clock)
    for number in range(handshake_throttle._AT_ONCE):
        pace.come(f"early {number}", "stranger")
        assert pace.take() == f"early {number}"
    return pace


def turn(clock: Clock, pace: HandshakeThrottle[str]) -> str | None:
    """Let a credit come."""
    clock.seconds += pace.seconds_to_wait() or 0
    return pace.take()


def test_without_credit_nobody_has_a_turn_until_time_brings_it(clock: Clock, pace: HandshakeThrottle[str]) -> None:
    pace.come("a", "stranger")
    pace.come("b", "stranger")
    assert pace.take() is None
    assert pace.seconds_to_wait() == pytest.approx(1 / handshake_throttle._A_SECOND)
    assert turn(clock, pace) == "a"
    assert pace.take() is None
    assert turn(clock, pace) == "b"
    assert pace.seconds_to_wait() is None


def test_an_hour_of_rest_brings_no_more_than_there_is_at_once(clock: Clock, pace: HandshakeThrottle[str]) -> None:
    clock.seconds += 3600
    for number in range(handshake_throttle._AT_ONCE + 1):
        pace.come(str(number), "stranger")
        if number < handshake_throttle._AT_ONCE:
            assert pace.take() == str(number)
    assert pace.take() is None


def test_a_newcomer_that_was_worth_it_gives_its_credit_back(pace: HandshakeThrottle[str]) -> None:
    pace.come("a", "stranger")
    pace.worth("friend")
    assert pace.take() == "a"


def test_who_comes_from_an_address_that_was_worth_it_goes_first(clock: Clock, pace: HandshakeThrottle[str]) -> None:
    pace.worth("friend")
    pace.come("spends what was given back", "stranger")
    assert pace.take() is not None
    for number in range(handshake_throttle._STRANGERS_MAX - 1):
        pace.come(str(number), "stranger")
    pace.come("good", "friend")
    assert turn(clock, pace) == "good"
    assert turn(clock, pace) == "0"


def test_however_many_friends_come_strangers_have_a_part_of_the_turns(
    clock: Clock, pace: HandshakeThrottle[str]
) -> None:
    pace.worth("friend")
    pace.come("stranger", "stranger")
    pace.take()
    names = count()
    pace.come("waits", "stranger")
    served = []
    for _ in range(handshake_throttle._STRANGERS_PART):
        pace.come(f"friend {next(names)}", "friend")
        served.append(turn(clock, pace))
    assert served.count("waits") == 1


def test_of_too_many_strangers_the_oldest_makes_room(pace: HandshakeThrottle[str]) -> None:
    for number in range(handshake_throttle._STRANGERS_MAX):
        assert pace.come(str(number), "stranger") is None
    assert pace.come("newcomer", "stranger") == "0"
    assert pace.waiting == handshake_throttle._STRANGERS_MAX


def test_a_good_address_comes_with_all_that_it_has_and_sends_nobody_away(
    clock: Clock, pace: HandshakeThrottle[str]
) -> None:
    """When certificates change, all connections of a caller are dialled anew at one time."""
    pace.worth("friend")
    pace.come("spends what was given back", "stranger")
    assert pace.take() is not None
    for number in range(handshake_throttle._STRANGERS_MAX):
        pace.come(f"stranger {number}", "stranger")
    friends = [f"friend {number}" for number in range(2 * handshake_throttle._STRANGERS_MAX)]
    assert [pace.come(friend, "friend") for friend in friends] == [None] * len(friends)
    clock.seconds += 3600
    assert pace.take() == friends[0]


def test_who_leaves_the_line_has_no_turn(clock: Clock, pace: HandshakeThrottle[str]) -> None:
    for name in ("a", "b"):
        pace.come(name, "stranger")
    pace.leave("a")
    pace.leave("who was never there")
    assert turn(clock, pace) == "b"


def _addresses(first: int) -> Callable[[], str]:
    numbers = count(first)
    return lambda: f"10.0.0.{next(numbers)}"


def test_of_addresses_that_were_worth_it_the_latest_are_kept(clock: Clock, pace: HandshakeThrottle[str]) -> None:
    pace.worth("forgotten")
    address = _addresses(0)
    for _ in range(handshake_throttle._ADDRESSES_KEPT):
        pace.worth(address())
    while pace.waiting < handshake_throttle._STRANGERS_MAX:
        pace.come(f"stranger {pace.waiting}", "forgotten")
    pace.come("good", "10.0.0.0")
    assert turn(clock, pace) == "good"
