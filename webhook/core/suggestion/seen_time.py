"""Time in which requests were seen, and what such a time cannot show."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from msgspec import Struct

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_NIGHT = 6 * _HOUR
_SATURDAY = 5
_SECOND_US = 1_000_000


class SeenTime(Struct, frozen=True):
    """The first and the last request, in microseconds since the Unix epoch, or since an unknown moment."""

    first_us: int
    last_us: int
    is_dated: bool

    @property
    def duration(self) -> timedelta:
        return timedelta(microseconds=self.last_us - self.first_us)

    def format_moment(self, at_us: int) -> str:
        """Return a moment in UTC, or as seconds of the record."""
        if not self.is_dated:
            return f"second {at_us // _SECOND_US}"
        return _convert(at_us).strftime("%Y-%m-%dT%H:%M:%SZ")

    def format_duration(self) -> str:
        """Return the length of the time, in days from two days on."""
        if self.duration >= 2 * _DAY:
            return f"{round(self.duration / _DAY)} days"
        if self.duration >= _HOUR:
            return f"{round(self.duration / _HOUR)} hours"
        return f"{self.duration // timedelta(minutes=1)} minutes"

    def list_unseen(self) -> list[str]:
        """Return what the time does not contain, each with what is unknown for this reason."""
        return list(self._find_unseen())

    def _find_unseen(self) -> Iterator[str]:
        if not self.is_dated:
            if self.duration < _DAY - _HOUR:
                yield "less than a day: perhaps no nightly batch"
            yield "times of day are unknown: whether nights, weekends and month ends were seen"
            return
        first, last = _convert(self.first_us), _convert(self.last_us)
        if not _contains_night(first, last):
            yield "no whole night (00:00-06:00 UTC): no nightly batch"
        days = [first.date() + timedelta(days=number) for number in range((last.date() - first.date()).days + 1)]
        if self.duration < _DAY - _HOUR:
            yield "no whole day"
        weekdays = {day.weekday() for day in days}
        if not any(weekday >= _SATURDAY for weekday in weekdays):
            yield "no weekend"
        elif not any(weekday < _SATURDAY for weekday in weekdays):
            yield "no working day"
        elif self.duration < 7 * _DAY:
            yield "no whole week"
        if not any((day + _DAY).day == 1 for day in days):
            yield "no month end: no monthly job"


UNKNOWN_TIME = SeenTime(0, 0, is_dated=False)


def _contains_night(first: datetime, last: datetime) -> bool:
    """Return whether the time contains most of one night."""
    midnight = datetime.combine(first.date(), datetime.min.time(), UTC)
    while midnight < last:
        if min(last, midnight + _NIGHT) - max(first, midnight) >= _NIGHT - _HOUR:
            return True
        midnight += _DAY
    return False


def _convert(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / _SECOND_US, UTC)
