"""What answers and pings tell of the API server."""

import asyncio

import pytest

from tests.controller.release.queue_simulation import SECOND_US, FakeGates
from webhook.adapters.clocks import VirtualClock
from webhook.controller.release.observed_gates import ObservedGates
from webhook.errors import GateError


class _PingedGates(FakeGates):
    """Each ping takes `ping_us`."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.ping_us, self.is_away, self.pings = 0, False, 0

    async def is_reachable(self) -> bool:
        self.pings += 1
        self._clock.set(self._clock.now_us() + self.ping_us)
        return not self.is_away


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100 * SECOND_US)


@pytest.fixture
def inner(clock: VirtualClock) -> _PingedGates:
    return _PingedGates(clock)


@pytest.fixture
def gates(inner: _PingedGates, clock: VirtualClock) -> ObservedGates:
    return ObservedGates(inner, clock.now_us)


async def fail(gates: ObservedGates, inner: FakeGates) -> None:
    inner.trouble = 1
    with pytest.raises(GateError):
        await gates.remove("shop", "a", "a")


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_call_without_an_answer_is_in_doubt_until_a_ping_has_one(
    gates: ObservedGates, inner: _PingedGates, clock: VirtualClock
) -> None:
    await fail(gates, inner)
    assert gates.is_in_doubt
    await settle()
    assert (gates.is_in_doubt, gates.answered_us, gates.take_recovery()) == (False, clock.now_us(), False)


async def test_a_refusal_is_an_answer(gates: ObservedGates, inner: _PingedGates, clock: VirtualClock) -> None:
    inner.refused.add("a")
    with pytest.raises(GateError):
        await gates.delete("shop", "a", "a")
    assert (gates.is_in_doubt, gates.answered_us, inner.pings) == (False, clock.now_us(), 0)


async def test_a_late_ping_is_no_sign_that_others_are_answered(
    gates: ObservedGates, inner: _PingedGates, clock: VirtualClock
) -> None:
    """But nobody is held for it: where all answers take so long, calls are answered, too."""
    inner.ping_us = SECOND_US // 2
    await fail(gates, inner)
    await settle()
    assert (gates.is_in_doubt, gates.answered_us, gates.stalled_us) == (False, 0, clock.now_us())
    assert not gates.take_recovery()


async def test_the_api_server_recovers_with_the_first_answer_after_a_ping_without_one(
    gates: ObservedGates, inner: _PingedGates, clock: VirtualClock
) -> None:
    inner.is_away = True
    await fail(gates, inner)
    await settle()
    assert (gates.is_in_doubt, gates.recovered_us) == (True, 0)
    inner.is_away = False
    clock.set(clock.now_us() + SECOND_US)
    gates.ping()
    await settle()
    assert (gates.is_in_doubt, gates.recovered_us) == (False, clock.now_us())
    assert (gates.take_recovery(), gates.take_recovery()) == (True, False)


async def test_an_api_server_that_is_away_is_pinged_five_times_a_second(
    gates: ObservedGates, inner: _PingedGates, clock: VirtualClock
) -> None:
    inner.is_away = True
    await fail(gates, inner)
    for _ in range(100):
        clock.set(clock.now_us() + SECOND_US // 100)
        gates.ping()
        await settle()
    assert 5 <= inner.pings <= 6
