"""Redis' time between its answers, of which some are late."""

import pytest

from webhook.adapters.redis_store.store_clock import StoreClock

SECOND_US = 1_000_000
AHEAD_US = 7_000 * SECOND_US


class HandClock:
    def __init__(self) -> None:
        self.us = 100 * SECOND_US

    def now_us(self) -> int:
        return self.us


@pytest.fixture
def own() -> HandClock:
    return HandClock()


@pytest.fixture
def clock(own: HandClock) -> StoreClock:
    return StoreClock(own, None)


def answer(clock: StoreClock, own: HandClock, late_us: int, step_us: int = 0) -> int:
    """Take an answer that was sent before; return by how much the clock is behind Redis'."""
    clock.learn(own.us + AHEAD_US + step_us - late_us)
    return own.us + AHEAD_US + step_us - clock.now_us()


def test_late_answer_does_not_put_the_clock_back(own: HandClock, clock: StoreClock) -> None:
    assert answer(clock, own, 300) == 300
    assert answer(clock, own, 400_000) == 300
    assert answer(clock, own, 200) == 200
    assert clock.earliest_us() == clock.now_us()
    answer(clock, own, 400_000)
    assert own.us + AHEAD_US - clock.earliest_us() == 400_000, "as the last answer says"


def test_promptest_answer_of_the_last_seconds_counts(own: HandClock, clock: StoreClock) -> None:
    behind_us = []
    for second in range(60):
        own.us += SECOND_US
        behind_us.append(answer(clock, own, 200 if second % 8 == 0 else 400_000))
    assert set(behind_us) == {200}


def test_slower_network_is_noticed_after_a_while(own: HandClock, clock: StoreClock) -> None:
    answer(clock, own, 200)
    behind_us = []
    for _ in range(30):
        own.us += SECOND_US
        behind_us.append(answer(clock, own, 5_000))
    assert behind_us[8:] != [200] * 22
    assert behind_us[20:] == [5_000] * 10


def test_clock_that_was_set_is_followed_at_once(own: HandClock, clock: StoreClock) -> None:
    answer(clock, own, 200)
    assert answer(clock, own, 200, 600 * SECOND_US) == 200
    assert answer(clock, own, 300, 0) == 300
    assert answer(clock, own, 200, -600 * SECOND_US) == 200


def test_replay_has_its_own_time(own: HandClock) -> None:
    clock = StoreClock(own, lambda: 5)
    clock.learn(9)
    assert (clock.now_us(), clock.earliest_us(), clock.get_replay_time()) == (5, 5, 5)
