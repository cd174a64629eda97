"""When schedules are in force, against a calendar that looks at every minute."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import reset_tzpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import examples
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy.schedules import ScheduleState, find_state
from webhook.core.policy_fields import Day, Schedule
from webhook.core.time_zones import UnknownZoneError, find_zone, list_offsets, list_zones

DAYS = [str(day) for day in Day]
MINUTE_US = 60_000_000
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


def schedule(begin: str, end: str, days: str = "Mon-Sun", zone: str = "Europe/Berlin", name: str = "night") -> Schedule:
    first, _, last = days.partition("-")
    chosen = tuple(Day)[DAYS.index(first) : DAYS.index(last or first) + 1]
    return Schedule(name, begin, end, zone, chosen, factor=Quantity.parse("3"))


def minutes(time_of_day: str) -> int:
    return int(time_of_day[:2]) * 60 + int(time_of_day[3:])


def list_local_minutes(found: Schedule) -> frozenset[int]:
    """Return every minute of the local week in which a schedule is in force."""
    begin, end = minutes(found.begin), minutes(found.end)
    length = end - begin if end > begin else end - begin + 1440
    starts = (list(Day).index(day) * 1440 + begin for day in found.days)
    return frozenset((start + minute) % 10080 for start in starts for minute in range(length))


def walk_minutes(schedules: tuple[Schedule, ...], begin: datetime, end: datetime) -> Iterator[tuple[int, str]]:
    """Yield each minute at which another schedule comes into force, and its name, by looking at all of them."""
    tables = [(found.name, find_zone(found.time_zone), list_local_minutes(found)) for found in schedules]
    former, at, step = None, begin, timedelta(minutes=1)
    while at < end:
        now = ""
        for name, zone, table in tables:
            local = at.astimezone(zone)
            if local.weekday() * 1440 + local.hour * 60 + local.minute in table:
                now = name
                break
        if now != former:
            former = now
            yield round(at.timestamp()) * 1_000_000, now
        at += step


def walk_changes(schedules: tuple[Schedule, ...], begin: datetime, end: datetime) -> Iterator[tuple[int, str]]:
    """Yield the same by the next change of each state."""
    at_us, end_us = round(begin.timestamp()) * 1_000_000, round(end.timestamp()) * 1_000_000
    while at_us < end_us:
        state = find_state(schedules, at_us)
        yield at_us, state.current.name if state.current else ""
        if state.changes_at_us is None:
            return
        assert find_state(schedules, state.changes_at_us - 1).current == state.current
        at_us = state.changes_at_us


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_of_changes_is_exact_to_the_minute(zone: str) -> None:
    schedules = (
        schedule("22:00", "06:00", "Mon-Fri", zone),
        schedule("01:30", "02:30", "Sun", zone, "early"),  # the clocks of these zones change on Sundays
        schedule("12:00", "24:00", "Sat", zone, "weekend"),
    )
    year = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    assert list(walk_changes(schedules, *year)) == list(walk_minutes(schedules, *year))


def test_a_night_is_an_hour_shorter_in_spring_and_longer_in_autumn() -> None:
    changes = list(
        walk_changes((schedule("22:00", "06:00"),), datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    )
    nights = [(end - begin) // MINUTE_US for (begin, name), (end, _) in pairwise(changes) if name == "night"]
    assert sorted(set(nights[1:])) == [420, 480, 540], "the first one had begun before"
    assert (nights[1:].count(420), nights[1:].count(540)) == (1, 1)


times = st.integers(0, 1439).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
periods = st.tuples(times, times, st.sampled_from(["Mon", "Sun", "Sat-Sun", "Mon-Fri", "Mon-Sun"]))


@examples(60)
@given(
    st.lists(periods.filter(lambda found: found[0] != found[1]), min_size=1, max_size=3),
    st.sampled_from([*ZONES, "Asia/Kathmandu", "Africa/Casablanca", "Pacific/Chatham", "UTC"]),
    st.sampled_from(["2026-03-27", "2026-10-23", "2026-10-30", "2026-03-06", "2026-02-13", "2026-06-01"]),
)
def test_any_schedules_change_when_the_local_clock_says_so(
    found: list[tuple[str, str, str]], zone: str, day: str
) -> None:
    schedules = tuple(schedule(begin, end, days, zone, f"s{number}") for number, (begin, end, days) in enumerate(found))
    begin = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    span = begin, begin + timedelta(days=5)
    assert list(walk_changes(schedules, *span)) == list(walk_minutes(schedules, *span))


def at(moment: str, *schedules: Schedule) -> ScheduleState:
    return find_state(schedules, parse_microseconds(moment))


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("2026-11-30T23:00:00Z", "night, x3, until 06:00 Europe/Berlin"),
        ("2026-11-30T12:00:00Z", "none until Mon 22:00 Europe/Berlin, then night, x3"),
    ],
)
def test_a_state_says_until_when_it_holds(moment: str, text: str) -> None:
    assert str(at(moment, schedule("22:00", "06:00"))) == text


def test_an_end_on_another_day_has_its_weekday() -> None:
    weekend = schedule("00:00", "24:00", "Sat-Sun")
    assert str(at("2026-11-28T12:00:00Z", weekend)) == "night, x3, until Mon 00:00 Europe/Berlin"
    always = schedule("00:00", "24:00")
    assert str(at("2026-11-28T12:00:00Z", always)) == "night, x3, always"


def test_one_schedule_may_follow_another_without_a_gap() -> None:
    both = schedule("22:00", "06:00"), schedule("06:00", "08:00", name="morning")
    state = at("2026-11-30T23:00:00Z", *both)
    assert (state.current, state.upcoming) == both


def test_zones_are_those_of_the_package_and_not_of_the_machine(tmp_path: Path) -> None:
    machine = tmp_path / "Europe" / "Berlin"
    machine.parent.mkdir()
    machine.write_bytes(b"no time zone")
    reset_tzpath(to=[str(tmp_path)])
    find_zone.cache_clear()
    try:
        assert datetime(2026, 7, 1, tzinfo=find_zone("Europe/Berlin")).utcoffset() == timedelta(hours=2)
    finally:
        reset_tzpath()


def test_offsets_of_a_zone_are_those_of_its_summer_and_winter() -> None:
    assert list_offsets("Europe/Berlin") == {timedelta(hours=1), timedelta(hours=2)}
    assert list_offsets("UTC") == {timedelta()}


@pytest.mark.parametrize("name", ["Europe/Berln", "", "../zones", "/etc/localtime", "berlin", "zones"])
def test_other_names_are_no_zones(name: str) -> None:
    assert name not in list_zones()
    with pytest.raises(UnknownZoneError):
        find_zone(name)
