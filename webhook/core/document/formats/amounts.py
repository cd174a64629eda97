"""Formats of amounts and times: durations, quantities, percentages, factors, moments."""

import re
from fractions import Fraction

from webhook.core.document.formats.names import FormatError, require
from webhook.core.document.yaml.problems import find_close
from webhook.core.kubernetes.quantity import DaysError, Duration, UnreadableTextError, parse_quantity
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.time_zones import list_zones

_DURATION_US_MAX = 720 * 3_600_000_000  # 30 days, the longest window
_INTERVAL_US = (100_000, 3_600_000_000)
_SECOND_US = 1_000_000
_AMOUNT_MAX = 2**63 - 1
_PERCENT = re.compile(r"(0|[1-9]\d?|100)%")
_FACTOR = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_FACTOR_MAX = 1000
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00", re.ASCII)


def parse_duration(text: str, such_as: str = "500ms, 30s, 5m or 24h") -> int:
    """Return the microseconds; `such_as` are examples for the field."""
    try:
        us = Duration.parse(text).us
    except DaysError as error:
        raise FormatError(error.reason, error.remedy) from None
    except UnreadableTextError as error:
        raise FormatError(error.reason, f"write a number with a unit, such as {such_as}") from None
    require(us <= _DURATION_US_MAX, "longer than 720h", "write at most 720h")
    return us


def check_elapsed(text: str) -> None:
    """Check a time since the start of a sequence: a duration, or 0s."""
    if text not in {"0", "0s"}:
        parse_duration(text, "0s, 61s or 2h")


def check_interval(text: str) -> None:
    us = parse_duration(text, "500ms, 1s or 30s")
    low, high = _INTERVAL_US
    require(low <= us <= high, "an interval is 100ms to 1h", "write a duration such as 1s or 30s")


def check_window(text: str) -> None:
    us = parse_duration(text, "30s, 5m or 24h")
    require(us >= _SECOND_US, "a window is 1s to 720h", "write at least 1s")
    require(us % _SECOND_US == 0, "a window is a whole number of seconds", "round it to seconds, such as 90s")


def check_quantity(value: object) -> None:
    try:
        amount = parse_quantity(str(value))
    except UnreadableTextError as error:
        raise FormatError(error.reason, error.remedy or "write a number from 0, such as 500m, 4 or 16Gi") from None
    require(amount <= _AMOUNT_MAX, "above 2^63 - 1, the largest quantity in Kubernetes", "write a smaller amount")


def check_percent_or_count(value: str | int) -> None:
    remedy = "write a count from 0, or a percentage from 0% to 100%"
    require(
        value >= 0 if isinstance(value, int) else _PERCENT.fullmatch(value), "neither a count nor a percentage", remedy
    )


def check_percent(text: str) -> None:
    require(_PERCENT.fullmatch(text), "not a percentage", "write a percentage from 0% to 100%, such as 10%")


def check_date_time(text: str) -> None:
    try:
        parse_microseconds(text)
    except UnreadableTextError as error:
        raise FormatError(error.reason, error.remedy) from None


def check_factor(value: object) -> None:
    require(
        _FACTOR.fullmatch(str(value)) and 0 < Fraction(str(value)) <= _FACTOR_MAX,
        f"not a number above 0 and up to {_FACTOR_MAX}",
        "write one such as 0.5, 1.5 or 3",
    )


def check_time_of_day(text: str) -> None:
    remedy = 'write hours and minutes from "00:00" to "24:00", such as "06:30"'
    require(_TIME_OF_DAY.fullmatch(text), "not a time of day", remedy)


def check_time_zone(text: str) -> None:
    if text in list_zones():
        return
    meant = find_close(text, sorted(list_zones()))
    remedy = f"did you mean {meant}?" if meant else "write a name of the IANA database, such as Europe/Berlin or UTC"
    raise FormatError("no such time zone", remedy)
