"""Time zones by IANA name, from the package tzdata: all processes have the same rules, whatever their machines have."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

_PACKAGE = "tzdata"
_OFFSETS_FROM, _OFFSETS_TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
_OFFSETS_STEP = timedelta(days=7)


class UnknownZoneError(ValueError):
    """No time zone of this name is known."""


@cache
def list_zones() -> frozenset[str]:
    """Return the names of all time zones."""
    return frozenset(files(_PACKAGE).joinpath("zones").read_text(encoding="utf-8").split())


@cache
def find_zone(name: str) -> ZoneInfo:
    """Return the time zone of this name. UnknownZoneError: there is none."""
    if name not in list_zones():
        raise UnknownZoneError(name)
    with files(_PACKAGE).joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)


@cache
def list_offsets(name: str) -> frozenset[timedelta]:
    """Return the offsets from UTC that a zone has in these decades, by its rules of today."""
    zone = find_zone(name)
    return frozenset(offset for at in _iterate_weeks() if (offset := at.astimezone(zone).utcoffset()) is not None)


def _iterate_weeks() -> Iterator[datetime]:
    at = _OFFSETS_FROM
    while at < _OFFSETS_TO:
        yield at
        at += _OFFSETS_STEP
