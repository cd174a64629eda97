"""Time that was seen: what it does not contain is named."""

from datetime import UTC, datetime

import pytest

from webhook.core.suggestion.seen_time import SeenTime

NIGHT, DAY = "no whole night (00:00-06:00 UTC): no nightly batch", "no whole day"
WEEKEND, WORKING, WEEK, MONTH = "no weekend", "no working day", "no whole week", "no month end: no monthly job"


def between(first: str, last: str) -> SeenTime:
    first_us, last_us = (
        round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**6 for text in (first, last)
    )
    return SeenTime(first_us, last_us, is_dated=True)


@pytest.mark.parametrize(
    ("first", "last", "duration", "unseen"),
    [
        ("2026-11-24T09:00", "2026-11-24T13:00", "4 hours", [NIGHT, DAY, WEEKEND, MONTH]),
        ("2026-11-24T00:02", "2026-11-24T23:58", "24 hours", [WEEKEND, MONTH]),
        ("2026-11-24T22:00", "2026-11-25T07:00", "9 hours", [DAY, WEEKEND, MONTH]),
        ("2026-11-28T08:00", "2026-11-29T12:00", "28 hours", [WORKING, MONTH]),
        ("2026-11-26T08:00", "2026-11-30T12:00", "4 days", [WEEK]),
        ("2026-11-02T08:00", "2026-11-10T12:00", "8 days", [MONTH]),
        ("2026-11-01T00:00", "2026-11-30T23:00", "30 days", []),
        ("2026-11-24T09:00", "2026-11-24T09:25", "25 minutes", [NIGHT, DAY, WEEKEND, MONTH]),
    ],
)
def test_what_is_missing_is_named(first: str, last: str, duration: str, unseen: list[str]) -> None:
    time = between(first, last)
    assert time.format_duration() == duration
    assert time.list_unseen() == unseen


def test_seconds_of_a_record_without_a_date_are_no_times_of_day() -> None:
    time = SeenTime(0, 3_600_000_000, is_dated=False)
    assert time.format_moment(90_000_000) == "second 90"
    assert time.list_unseen() == [
        "less than a day: perhaps no nightly batch",
        "times of day are unknown: whether nights, weekends and month ends were seen",
    ]
