"""A tag's time: monotonic, with a bounded wait for a clock that is behind."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.ledger.store_time import BEHIND_US, PATIENCE_US, TagClock

NOW_US = 1_000_000_000
HOUR_US = 3_600_000_000


def build_written_clock(at_us: int = NOW_US) -> TagClock:
    clock = TagClock()
    clock.observe(at_us)
    clock.last_us = clock.now(at_us)
    return clock


def test_new_clock_equals_the_clock_of_the_store() -> None:
    assert TagClock().now(NOW_US) == NOW_US == TagClock().convert_to_store(NOW_US)


def test_clock_stands_still_while_the_store_is_behind_the_last_write() -> None:
    clock = build_written_clock()
    assert [clock.now(NOW_US + ahead_us) for ahead_us in (-HOUR_US, -1, 0, 1)] == [NOW_US, NOW_US, NOW_US, NOW_US + 1]


def test_store_far_behind_is_followed_with_an_offset_after_patience_us() -> None:
    clock, back_us = build_written_clock(), NOW_US - HOUR_US
    for waited_us in (0, 1, PATIENCE_US - 1):
        clock.observe(back_us + waited_us)
        assert (clock.now(back_us + waited_us), clock.offset_us) == (NOW_US, 0)
    clock.observe(back_us + PATIENCE_US)
    assert [clock.now(back_us + PATIENCE_US + us) for us in (0, 5)] == [NOW_US, NOW_US + 5], "nothing is skipped"
    assert clock.convert_to_store(NOW_US) == back_us + PATIENCE_US, "what is shown is the store's own time"
    assert clock.convert_to_store(0) == 0, "0 is no time"


def test_store_slightly_behind_adds_no_offset() -> None:
    clock = build_written_clock()
    clock.observe(NOW_US - BEHIND_US)
    clock.observe(NOW_US)
    assert (clock.offset_us, clock.behind_since_us) == (0, None)


def test_store_that_catches_up_within_patience_us_adds_no_offset() -> None:
    clock, back_us = build_written_clock(), NOW_US - HOUR_US
    clock.observe(back_us)
    clock.observe(NOW_US + 5)
    assert clock.last_us == NOW_US + 5, "it does not go back behind an observed time"
    clock.observe(back_us + PATIENCE_US)
    assert clock.offset_us == 0
    clock.observe(back_us + 2 * PATIENCE_US)
    assert clock.offset_us > 0


def test_second_step_back_during_the_wait_restarts_patience_us() -> None:
    clock, back_us = build_written_clock(), NOW_US - HOUR_US
    clock.observe(back_us)
    clock.observe(back_us - HOUR_US)
    clock.observe(back_us - HOUR_US + PATIENCE_US - 1)
    assert clock.offset_us == 0
    clock.observe(back_us - HOUR_US + PATIENCE_US)
    assert clock.now(back_us - HOUR_US + PATIENCE_US) == NOW_US


@pytest.mark.parametrize("times", [1, 2, 5])
def test_each_step_back_adds_its_remaining_difference_to_the_offset(times: int) -> None:
    clock, reading_us = build_written_clock(), NOW_US
    for _ in range(times):
        reading_us -= HOUR_US
        clock.observe(reading_us)
        reading_us += PATIENCE_US
        clock.observe(reading_us)
    assert clock.offset_us == times * (HOUR_US - PATIENCE_US)


# Time that passes, the step of the store's clock, and whether the time is written.
walks = st.lists(
    st.tuples(
        st.sampled_from([0, 1, BEHIND_US, PATIENCE_US - 1, PATIENCE_US]) | st.integers(0, 2 * PATIENCE_US),
        st.sampled_from([0, 0, 0, 1, -1, -BEHIND_US, -BEHIND_US - 1, -HOUR_US, HOUR_US]),
        st.booleans(),
    ),
    max_size=40,
)


@given(walks)
def test_clock_never_precedes_a_write_nor_gains_on_the_wall_clock_and_steps(walk: Any) -> None:
    clock, reading_us, steps_us, wall_us = build_written_clock(), NOW_US, 0, NOW_US
    seen: list[tuple[int, int, int, bool]] = [(NOW_US, NOW_US, 0, True)]
    for passed_us, step_us, writes in walk:
        wall_us += passed_us
        reading_us += passed_us + step_us
        steps_us += max(0, step_us)
        before_us = clock.now(reading_us)
        clock.observe(reading_us)
        now_us = clock.now(reading_us)
        assert now_us == before_us, "observe does not change the time"
        for earlier_us, earlier_wall_us, earlier_steps_us, was_written in seen:
            assert now_us >= earlier_us or not was_written
            assert now_us - earlier_us <= wall_us - earlier_wall_us + steps_us - earlier_steps_us
        if writes:
            clock.last_us = now_us
        seen.append((now_us, wall_us, steps_us, writes))


@given(walks)
def test_clock_in_constant_use_stands_still_no_longer_than_patience_us(walk: Any) -> None:
    clock, reading_us, stalled_us = build_written_clock(), NOW_US, 0
    for passed_us, step_us, writes in walk:
        reading_us += step_us
        stalled_us = 0 if step_us else stalled_us
        for elapsed_us in range(0, passed_us, 500_000):
            before_us = clock.now(reading_us)
            reading_us += min(500_000, passed_us - elapsed_us)
            clock.observe(reading_us)
            stalled_us = stalled_us + 500_000 if clock.now(reading_us) == before_us else 0
            assert stalled_us <= PATIENCE_US + 500_000 + BEHIND_US
            if writes:
                clock.last_us = clock.now(reading_us)
