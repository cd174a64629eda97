"""Order and rate of handshakes, under a manual clock."""

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
def throttle(clock: Clock) -> HandshakeThrottle[str]:
    """Return a throttle without credit."""
    throttle: HandshakeThrottle[str] = HandshakeThrottle(clock, lambda: 0.0)
    for number in range(handshake_throttle._BURST_MAX):
        throttle.enqueue(f"early {number}", "stranger")
        assert throttle.dequeue() == f"early {number}"
    return throttle


def next_turn(clock: Clock, throttle: HandshakeThrottle[str]) -> str | None:
    """Advance the clock to the next credit; return the next handshake."""
    clock.seconds += throttle.compute_wait_seconds() or 0
    return throttle.dequeue()


def test_handshake_waits_until_time_adds_credit(clock: Clock, throttle: HandshakeThrottle[str]) -> None:
    throttle.enqueue("a", "stranger")
    throttle.enqueue("b", "stranger")
    assert throttle.dequeue() is None
    assert throttle.compute_wait_seconds() == pytest.approx(1 / handshake_throttle._PER_SECOND_MAX)
    assert next_turn(clock, throttle) == "a"
    assert throttle.dequeue() is None
    assert next_turn(clock, throttle) == "b"
    assert throttle.compute_wait_seconds() is None


@pytest.mark.parametrize(("handshake_seconds", "per_second"), [(0.0, 250), (0.000_5, 250), (0.002, 75), (0.01, 15)])
def test_failing_handshakes_take_a_part_of_the_time_however_slow_the_machine_is(
    clock: Clock, handshake_seconds: float, per_second: float
) -> None:
    throttle: HandshakeThrottle[int] = HandshakeThrottle(clock, lambda: handshake_seconds)
    dequeued = 0
    for number in range(handshake_throttle._BURST_MAX):
        throttle.enqueue(number, "stranger")
        throttle.dequeue()
    while clock.seconds < 10:
        throttle.enqueue(dequeued, "stranger")
        dequeued += throttle.dequeue() is not None
        clock.seconds += 0.000_1
    assert dequeued == pytest.approx(10 * per_second, rel=0.02)


def test_idle_hour_adds_no_more_than_the_maximum_credit(clock: Clock, throttle: HandshakeThrottle[str]) -> None:
    clock.seconds += 3600
    for number in range(handshake_throttle._BURST_MAX + 1):
        throttle.enqueue(str(number), "stranger")
        if number < handshake_throttle._BURST_MAX:
            assert throttle.dequeue() == str(number)
    assert throttle.dequeue() is None


def test_credit_is_returned_when_the_address_becomes_trusted(throttle: HandshakeThrottle[str]) -> None:
    throttle.enqueue("a", "stranger")
    throttle.mark_trusted("friend")
    assert throttle.dequeue() == "a"


def test_trusted_address_is_served_first(clock: Clock, throttle: HandshakeThrottle[str]) -> None:
    throttle.mark_trusted("friend")
    throttle.enqueue("spends what was given back", "stranger")
    assert throttle.dequeue() is not None
    for number in range(handshake_throttle._UNTRUSTED_MAX - 1):
        throttle.enqueue(str(number), "stranger")
    throttle.enqueue("good", "friend")
    assert next_turn(clock, throttle) == "good"
    assert next_turn(clock, throttle) == "0"


def test_untrusted_addresses_get_their_share_of_turns_beside_trusted_ones(
    clock: Clock, throttle: HandshakeThrottle[str]
) -> None:
    throttle.mark_trusted("friend")
    throttle.enqueue("stranger", "stranger")
    throttle.dequeue()
    names = count()
    throttle.enqueue("waits", "stranger")
    served = []
    for _ in range(handshake_throttle._UNTRUSTED_EVERY):
        throttle.enqueue(f"friend {next(names)}", "friend")
        served.append(next_turn(clock, throttle))
    assert served.count("waits") == 1


def test_full_queue_of_untrusted_addresses_drops_the_oldest(throttle: HandshakeThrottle[str]) -> None:
    for number in range(handshake_throttle._UNTRUSTED_MAX):
        assert throttle.enqueue(str(number), "stranger") is None
    assert throttle.enqueue("newcomer", "stranger") == "0"
    assert throttle.waiting == handshake_throttle._UNTRUSTED_MAX


def test_many_connections_of_a_trusted_address_displace_no_other(
    clock: Clock, throttle: HandshakeThrottle[str]
) -> None:
    """When certificates change, a caller reconnects all its connections at the same time."""
    throttle.mark_trusted("friend")
    throttle.enqueue("spends what was given back", "stranger")
    assert throttle.dequeue() is not None
    for number in range(handshake_throttle._UNTRUSTED_MAX):
        throttle.enqueue(f"stranger {number}", "stranger")
    friends = [f"friend {number}" for number in range(2 * handshake_throttle._UNTRUSTED_MAX)]
    assert [throttle.enqueue(friend, "friend") for friend in friends] == [None] * len(friends)
    clock.seconds += 3600
    assert throttle.dequeue() == friends[0]


def test_connection_that_left_the_queue_gets_no_turn(clock: Clock, throttle: HandshakeThrottle[str]) -> None:
    for name in ("a", "b"):
        throttle.enqueue(name, "stranger")
    throttle.cancel("a")
    throttle.cancel("who was never there")
    assert next_turn(clock, throttle) == "b"


def _addresses(first: int) -> Callable[[], str]:
    numbers = count(first)
    return lambda: f"10.0.0.{next(numbers)}"


def test_most_recent_trusted_addresses_are_kept(clock: Clock, throttle: HandshakeThrottle[str]) -> None:
    throttle.mark_trusted("forgotten")
    address = _addresses(0)
    for _ in range(handshake_throttle._ADDRESSES_MAX):
        throttle.mark_trusted(address())
    while throttle.waiting < handshake_throttle._UNTRUSTED_MAX:
        throttle.enqueue(f"stranger {throttle.waiting}", "forgotten")
    throttle.enqueue("good", "10.0.0.0")
    assert next_turn(clock, throttle) == "good"
