import pytest

from webhook.core.kubernetes.timestamps import format_rfc3339, parse_microseconds


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-12-01T04:00:00Z", 1_796_097_600_000_000),
        ("2026-12-01T04:00:00.000001Z", 1_796_097_600_000_001),
        ("2026-12-01T04:00:00-01:30", 1_796_103_000_000_000),
    ],
)
def test_a_time_is_read_to_the_microsecond(text: str, us: int) -> None:
    assert parse_microseconds(text) == us


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-12-01", "2026-12-01T04:00:00", "2026-12-01 04:00:00Z", "20261201T040000Z"),
        *("2026-12-01T24:00:01Z", "2026-02-29T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59"),
        *("2026-12-01T04:00:00+99:00", "２026-12-01T04:00:00Z"),  # noqa: RUF001  a full-width digit
    ],
)
def test_invalid_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write one such as 2026-12-01T04:00:00Z"):
        parse_microseconds(text)


def test_time_is_formatted_in_seconds_rounded_up() -> None:
    assert format_rfc3339(1_796_097_600_000_000) == "2026-12-01T04:00:00Z"
    assert format_rfc3339(1_796_097_600_000_001) == "2026-12-01T04:00:01Z"
