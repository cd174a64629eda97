"""Rules of `quota.schedules`: names, times, effects, limits that exist, and periods that do not overlap."""

from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache
from itertools import combinations, product

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.quantity import Duration
from webhook.core.policy.schedules import WEEK_MINUTES, Period, parse_minutes
from webhook.core.policy_fields import Schedule
from webhook.core.quota import canonicalize
from webhook.core.time_zones import list_offsets

_AMOUNTS = ("hard", "windows", "standing")


def schedule_names_are_unique(service: DocumentPart) -> Iterator[Problem]:
    """`quota.schedules[].name`: each once in a service."""
    first: dict[str, DocumentPart] = {}
    for name in service.select("quota", "schedules", "*", "name"):
        there = first.setdefault(name.read(str), name)
        if there is not name:
            yield name.report(f"the same name as in line {there.node.line}", "give each schedule its own name")


def a_schedule_lasts(service: DocumentPart) -> Iterator[Problem]:
    """`quota.schedules[].from`, `to`: refuse equal times, and `from: "24:00"`."""
    for schedule in service.select("quota", "schedules", "*"):
        begin, end = schedule.get("from"), schedule.get("to")
        if begin is None or end is None:
            continue
        if begin.read(str) == "24:00":
            yield begin.report("the end of a day, at which nothing begins", 'write "00:00", and the day after in days')
        elif parse_minutes(begin.read(str)) == parse_minutes(end.read(str)):
            remedy = 'for whole days write from: "00:00" and to: "24:00"'
            yield end.report("the same time as from: it lasts no time, or a day", remedy)


def a_schedule_has_one_effect(service: DocumentPart) -> Iterator[Problem]:
    """`quota.schedules[]`: `factor`, `hard`, or `windows` and `standing`. Refuse none of them, and several."""
    for schedule in service.select("quota", "schedules", "*"):
        has = [key for key in ("factor", *_AMOUNTS) if (part := schedule.get(key)) is not None and not part.is_empty]
        if not has:
            yield schedule.report_field("changes no limit", "add factor, hard, windows or standing")
        elif len(has) > 1 and has != ["windows", "standing"]:
            remedy = "keep factor, or hard, or windows and standing"
            yield schedule.report_field(f"has {' and '.join(has)}, which exclude each other", remedy)


def a_schedule_changes_limits_of_its_quota(service: DocumentPart) -> Iterator[Problem]:
    """`quota.schedules[].hard`, `windows`, `standing`: limits that the quota also has without the schedule.

    Refuse others, because their counters would begin empty with the schedule; and a `hard` for several windows.
    """
    quota = service.get("quota")
    if quota is None or quota.get("schedules") is None:
        return
    limits = _list_limits(quota)
    if not limits:
        reason = "the quota has no limits of its own to change"
        yield quota.select("schedules")[0].report_field(reason, "add windows or standing to quota, or remove schedules")
        return
    for schedule in quota.select("schedules", "*"):
        for key in _AMOUNTS:
            yield from stop_at_invalid(_check_amounts(schedule, key, limits))


_Limits = dict[Duration | None, set[str]]
"""Canonical resources by the length of their window; None: of live Pods."""


def _list_limits(quota: DocumentPart) -> _Limits:
    limits: _Limits = {}
    for window in quota.select("windows", "*"):
        length, hard = window.get("window"), window.get("hard")
        if length is not None and hard is not None:
            limits[length.read(Duration)] = {canonicalize(resource) for resource in hard.fields()}
    for hard in quota.select("standing", "hard"):
        limits[None] = {canonicalize(resource) for resource in hard.fields()}
    return limits


def _check_amounts(schedule: DocumentPart, key: str, limits: _Limits) -> Iterator[Problem]:
    part = schedule.get(key)
    if part is None or part.is_empty:
        return
    if key == "hard":
        if len(limits) > 1:
            reason = f"the quota has {_name_all(limits)}: it does not say of which"
            yield part.report_field(reason, "write windows: [{window: .., hard: ..}] or standing: {hard: ..} instead")
        else:
            yield from _check_resources(part, *limits.items())
    elif key == "windows":
        for window in part.items():
            length, hard = window.get("window"), window.get("hard")
            if length is None or hard is None:
                continue
            if (known := limits.get(length.read(Duration))) is None:
                remedy = f"name one of its limits: {_name_all(limits)}"
                yield length.report("the quota has no window of this length", remedy)
            else:
                yield from _check_resources(hard, (length.read(Duration), known))
    elif None not in limits:
        yield part.report_field("the quota has no standing", f"name one of its limits: {_name_all(limits)}")
    else:
        for hard in part.select("hard"):
            yield from _check_resources(hard, (None, limits[None]))


def _check_resources(hard: DocumentPart, limited: tuple[Duration | None, set[str]]) -> Iterator[Problem]:
    length, known = limited
    for resource, amount in hard.fields().items():
        if canonicalize(resource) not in known:
            where = "standing" if length is None else f"the window {length}"
            reason = f"{where} of the quota does not limit it, so nothing has counted it when the schedule begins"
            yield amount.report_field(reason, "add it to the quota's own hard, or remove it here")


def _name_all(limits: _Limits) -> str:
    names = ["standing" if length is None else f"window {length}" for length in limits]
    return ", ".join(names)


def schedules_do_not_overlap(service: DocumentPart) -> Iterator[Problem]:
    """`quota.schedules[].days`, `from`, `to`, `timeZone`: at most one is in force at any time. Refuse an overlap.

    Of two zones all their offsets from UTC count, in every combination.
    """
    parts = service.select("quota", "schedules", "*")
    read = [(part, schedule, Period.from_schedule(schedule)) for part in parts for schedule in _read(part)]
    for (_, first, one), (part, second, other) in combinations(read, 2):
        if _overlap(one, other):
            shown = f"{second.begin} to {second.end} {second.time_zone}"
            reason = f"{shown} overlaps {first.name}, {first.begin} to {first.end} {first.time_zone}"
            zones = "" if one.zone == other.zone else ", both in one time zone"
            yield part.report_field(reason, f"change days, from or to so that one ends before the other begins{zones}")


def _read(part: DocumentPart) -> Iterator[Schedule]:
    schedule = part.read(Schedule)
    if schedule.begin not in {schedule.end, "24:00"}:
        yield schedule


@lru_cache(maxsize=1024)  # services mostly share their periods
def _overlap(one: Period, other: Period) -> bool:
    if one.zone == other.zone:
        return _meet(one, other, 0)
    offsets = product(list_offsets(one.zone), list_offsets(other.zone))
    return any(_meet(one, other, (ours - theirs) // timedelta(minutes=1)) for ours, theirs in offsets)


def _meet(one: Period, other: Period, ahead_minutes: int) -> bool:
    """Return whether two periods share time if the clock of the first is that far ahead."""
    for begin, end in one.list_week_minutes():
        for their_begin, their_end in other.list_week_minutes():
            for week in (-WEEK_MINUTES, 0, WEEK_MINUTES):
                shift = week - ahead_minutes
                if begin + shift < their_end and their_begin < end + shift:
                    return True
    return False
