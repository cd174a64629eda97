"""A tag's time: monotonic, with a bounded wait for a clock that is behind."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.ledger.tag_clock import BEHIND_US, PATIENCE_US, TagClock

NOW_US = 1_000_000_000
HOUR_US = 3_600_000_000


def written(at_us: int = NOW_US) -> TagClock:
    clock = TagClock()
    clock.observe(at_us)
    clock.last_us = clock.now(at_us)
    return clock


def test_a_new_one_reads_what_the_store_reads() -> None:
    assert TagClock().now(NOW_US) == NOW_US == TagClock().shown(NOW_US)


def test_it_stands_still_while_the_store_is_behind_what_was_written_and_goes_on_when_it_has_caught_up() -> None:
    clock = written()
    assert [clock.now(NOW_US + ahead_us) for ahead_us in (-HOUR_US, -1, 0, 1)] == [NOW_US, NOW_US, NOW_US, NOW_US + 1]


def test_a_store_that_stays_far_behind_is_waited_for_and_then_followed_from_where_time_stood() -> None:
    clock, back_us = written(), NOW_US - HOUR_US
    for waited_us in (0, 1, PATIENCE_US - 1):
        clock.observe(back_us + waited_us)
        assert (clock.now(back_us + waited_us), clock.offset_us) == (NOW_US, 0)
    clock.observe(back_us + PATIENCE_US)
    assert [clock.now(back_us + PATIENCE_US + us) for us in (0, 5)] == [NOW_US, NOW_US + 5], "nothing is skipped"
    assert clock.shown(NOW_US) == back_us + PATIENCE_US, "what is shown is the store's own time"
    assert clock.shown(0) == 0, "which stands for no moment"


def test_a_store_that_is_a_little_behind_is_waited_for_however_long_that_takes() -> None:
    clock = written()
    clock.observe(NOW_US - BEHIND_US)
    clock.observe(NOW_US)
    assert (clock.offset_us, clock.behind_since_us) == (0, None)


def test_a_store_that_catches_up_before_patience_ends_is_waited_for_again_the_next_time() -> None:
    clock, back_us = written(), NOW_US - HOUR_US
    clock.observe(back_us)
    clock.observe(NOW_US + 5)
    assert clock.last_us == NOW_US + 5, "it was seen there: it does not go back behind that"
    clock.observe(back_us + PATIENCE_US)
    assert clock.offset_us == 0
    clock.observe(back_us + 2 * PATIENCE_US)
    assert clock.offset_us > 0


def test_a_store_that_steps_back_again_while_it_is_waited_for_is_given_the_whole_time_once_more() -> None:
    clock, back_us = written(), NOW_US - HOUR_US
    clock.observe(back_us)
    clock.observe(back_us - HOUR_US)
    clock.observe(back_us - HOUR_US + PATIENCE_US - 1)
    assert clock.offset_us == 0
    clock.observe(back_us - HOUR_US + PATIENCE_US)
    assert clock.now(back_us - HOUR_US + PATIENCE_US) == NOW_US


@pytest.mark.parametrize("times", [1, 2, 5])
def test_each_step_back_adds_to_the_offset_what_it_took(times: int) -> None:
    clock, reading_us = written(), NOW_US
    for _ in range(times):
        reading_us -= HOUR_US
        clock.observe(reading_us)
        reading_us += PATIENCE_US
        clock.observe(reading_us)
    assert clock.offset_us == times * (HOUR_US - PATIENCE_US)


# What goes by on the wall, by how much the store's clock is stepped besides, and whether the moment is written.
walks = st.lists(
    st.tuples(
        st.sampled_from([0, 1, BEHIND_US, PATIENCE_US - 1, PATIENCE_US]) | st.integers(0, 2 * PATIENCE_US),
        st.sampled_from([0, 0, 0, 1, -1, -BEHIND_US, -BEHIND_US - 1, -HOUR_US, HOUR_US]),
        st.booleans(),
    ),
    max_size=40,
)


@given(walks)
def test_it_never_goes_back_behind_what_was_written_and_never_on_by_more_than_the_wall_and_the_steps(walk: Any) -> None:
    clock, reading_us, steps_us, wall_us = written(), NOW_US, 0, NOW_US
    seen: list[tuple[int, int, int, bool]] = [(NOW_US, NOW_US, 0, True)]
    for passed_us, step_us, writes in walk:
        wall_us += passed_us
        reading_us += passed_us + step_us
        steps_us += max(0, step_us)
        before_us = clock.now(reading_us)
        clock.observe(reading_us)
        now_us = clock.now(reading_us)
        assert now_us == before_us, "to be observed moves nothing"
        for then_us, then_wall_us, then_steps_us, was_written in seen:
            assert now_us >= then_us or not was_written
            assert now_us - then_us <= wall_us - then_wall_us + steps_us - then_steps_us
        if writes:
            clock.last_us = now_us
        seen.append((now_us, wall_us, steps_us, writes))


@given(walks)
def test_who_asks_all_the_time_waits_for_no_step_longer_than_its_patience(walk: Any) -> None:
    clock, reading_us, stood_us = written(), NOW_US, 0
    for passed_us, step_us, writes in walk:
        reading_us += step_us
        stood_us = 0 if step_us else stood_us
        for gone_us in range(0, passed_us, 500_000):
            before_us = clock.now(reading_us)
            reading_us += min(500_000, passed_us - gone_us)
            clock.observe(reading_us)
            stood_us = stood_us + 500_000 if clock.now(reading_us) == before_us else 0
            assert stood_us <= PATIENCE_US + 500_000 + BEHIND_US
            if writes:
                clock.last_us = clock.now(reading_us)
