"""Schedules of a quota: which one is in force at a moment, and when that changes. The first listed wins.

A schedule is in force while its zone's local time is within it. So an hour that the clock skips takes none of its time,
and one that comes twice counts twice.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from webhook.core.policy_fields import Day, Schedule
from webhook.core.time_zones import find_zone

_DAY_MINUTES = 24 * 60
WEEK_MINUTES = 7 * _DAY_MINUTES
HORIZON_DAYS = 15
"""Days that are searched for the next change. A period of one day a week can fall into a skipped hour."""
HORIZON_US = HORIZON_DAYS * 86_400_000_000

NO_SCHEDULE = "none"
_DAYS = tuple(Day)
_WEEKDAYS = tuple(str(day) for day in Day)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleState(Struct, frozen=True):
    """What the schedules of a quota say at a moment: the one in force, the next change, and what is in force then.

    Without a `changes_at_us` nothing changes within the searched days.
    """

    current: Schedule | None
    changes_at_us: int | None = None
    upcoming: Schedule | None = None

    def __str__(self) -> str:
        """Return the schedule in force and its end, in the local time of its zone."""
        if self.current is None:
            if self.changes_at_us is None or self.upcoming is None:
                return NO_SCHEDULE
            begin = format_local(self.changes_at_us, self.upcoming.time_zone)
            return f"{NO_SCHEDULE} until {begin}, then {describe(self.upcoming)}"
        if self.changes_at_us is None:
            return f"{describe(self.current)}, always"
        end = format_local(self.changes_at_us, self.current.time_zone)
        # A period ends within a day, so its own end needs no weekday.
        own = f"{self.current.end} {self.current.time_zone}"
        return f"{describe(self.current)}, until {own if end.endswith(own) else end}"


def describe(schedule: Schedule) -> str:
    """Return the name of a schedule and what it does."""
    return f"{schedule.name}, {describe_effect(schedule)}"


def describe_effect(schedule: Schedule) -> str:
    return "other limits" if schedule.factor is None else f"x{schedule.factor}"


def format_local(at_us: int, zone: str) -> str:
    """Return a moment as the local time of a zone."""
    local = (_EPOCH + at_us * _MICROSECOND).astimezone(find_zone(zone))
    return f"{_WEEKDAYS[local.weekday()]} {local:%H:%M} {zone}"


class Period(NamedTuple):
    """When a schedule is in force, in minutes of the local day; an `end` that is not after `begin` is a day later."""

    days: frozenset[int]
    begin: int
    end: int
    zone: str

    @classmethod
    def from_schedule(cls, schedule: Schedule) -> "Period":
        days = frozenset(_DAYS.index(day) for day in schedule.days)
        return cls(days, parse_minutes(schedule.begin), parse_minutes(schedule.end), schedule.time_zone)

    def includes(self, at: datetime) -> bool:
        local = at.astimezone(find_zone(self.zone))
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        return (day in self.days and minute >= self.begin) or ((day - 1) % 7 in self.days and minute < self.end)

    def list_week_minutes(self) -> list[tuple[int, int]]:
        """Return the spans in minutes of the local week; one that goes on into the next week has an end beyond it."""
        length = (self.end - self.begin) % _DAY_MINUTES or _DAY_MINUTES
        return [
            (day * _DAY_MINUTES + self.begin, day * _DAY_MINUTES + self.begin + length) for day in sorted(self.days)
        ]

    def iterate_edges(self, day: date) -> Iterator[datetime]:
        """Yield all moments of a local day at which it may begin or end, also by a change of the clock."""
        zone = find_zone(self.zone)
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001  local: the zone is added below
        for minute in (self.begin, self.end):
            for fold in (0, 1):
                local = (midnight + timedelta(minutes=minute)).replace(tzinfo=zone, fold=fold)
                yield local.astimezone(UTC)
        hours = [midnight.replace(tzinfo=UTC) + timedelta(hours=hour) for hour in range(-24, 49, 12)]
        for before, after in pairwise(hours):
            if before.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
                yield _find_clock_change(before, after, self.zone)


def parse_minutes(time_of_day: str) -> int:
    """Return the minutes since midnight of a time such as 06:30."""
    hours, minutes = time_of_day.split(":")
    return int(hours) * 60 + int(minutes)


def find_state(schedules: Sequence[Schedule], at_us: int) -> ScheduleState:
    """Return what the schedules say at a moment."""
    found = _find_change(tuple(Period.from_schedule(schedule) for schedule in schedules), at_us)
    current, upcoming = (None if index is None else schedules[index] for index in (found.current, found.upcoming))
    return ScheduleState(current, found.changes_at_us, upcoming)


class _Change(NamedTuple):
    current: int | None
    changes_at_us: int | None = None
    upcoming: int | None = None


@lru_cache(maxsize=256)  # services mostly share their periods
def _find_change(periods: tuple[Period, ...], at_us: int) -> _Change:
    at = _EPOCH + at_us * _MICROSECOND
    current = _find_index(periods, at)
    edges = {
        edge
        for period in periods
        for number in range(-1, HORIZON_DAYS + 1)
        for edge in period.iterate_edges((at + timedelta(days=number)).date())
    }
    for edge in sorted(edge for edge in edges if edge > at):
        upcoming = _find_index(periods, edge)
        if upcoming != current:
            return _Change(current, (edge - _EPOCH) // _MICROSECOND, upcoming)
    return _Change(current)


def _find_index(periods: Sequence[Period], at: datetime) -> int | None:
    return next((index for index, period in enumerate(periods) if period.includes(at)), None)


def _find_clock_change(before: datetime, after: datetime, zone: str) -> datetime:
    """Return the second between two moments at which the offset of a zone changes."""
    rules = find_zone(zone)
    first = before.astimezone(rules).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if middle.astimezone(rules).utcoffset() == first:
            before = middle
        else:
            after = middle
    return after
