"""Pages of quota events, compared with one list of all of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.breaker import quota_events
from webhook.core.breaker.quota_events import NO_EVENTS, QuotaEvent

SOURCES = st.sampled_from("abcdefgh")
STEPS = st.one_of(
    st.tuples(st.just("adding"), st.integers(-3, 9), SOURCES),
    st.tuples(st.just("adding"), st.integers(-3, 9), SOURCES),
    st.tuples(st.just("after"), st.integers(0, 30)),
    st.tuples(st.just("without"), st.lists(SOURCES, max_size=3)),
)


@given(st.lists(STEPS, max_size=60))
def test_pages_hold_what_a_list_would_hold(steps: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(quota_events, "_PAGE_MAX", 3)
        events, expected, now_us = NO_EVENTS, list[QuotaEvent](), 0
        for step in steps:
            match step:
                case ("adding", passed_us, source):
                    now_us += passed_us  # the clock may step back
                    events = events.add(QuotaEvent(now_us, source))
                    expected = [*expected, QuotaEvent(now_us, source)]
                case ("after", ago_us):
                    events = events.select_after(now_us - ago_us)
                    expected = [event for event in expected if event.at_us > now_us - ago_us]
                case ("without", sources):
                    events = events.drop_sources(sources)
                    expected = [event for event in expected if event.source not in sources]
            assert [*events] == expected
            assert len(events) == len(expected)
            assert {source for source in "abcdefgh" if events.has_source(source)} == {
                event.source for event in expected
            }


def test_one_more_event_leaves_full_pages_as_they_are() -> None:
    events = NO_EVENTS
    for number in range(100):
        events = events.add(QuotaEvent(number, f"s{number}"))
    more = events.select_after(0).add(QuotaEvent(100, "a"))
    assert [page for page in more.pages if any(page is other for other in events.pages)] == list(events.pages[1:-1])
    assert events.select_after(-1) is events
    assert events.drop_sources(["a"]) is events
