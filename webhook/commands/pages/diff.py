"""Unified diff of two objects as YAML, from the changes of the objects, with a remark for each change.

A diff of the text would match equal lines of different fields, which are common in YAML.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from webhook.commands.pages.yaml_text import Span, YamlLayout
from webhook.core.rule_notes import find_changes

CONTEXT = 3


class DiffRemark(NamedTuple):
    """The remark for a change, by its pointer into the later object, or for a removal into the former."""

    pointer: str
    is_removal: bool
    short: str
    long: str


class Row(NamedTuple):
    """One line: `+`, `-`, blank, or `@` for the header of a hunk."""

    mark: str
    text: str
    remarks: tuple[DiffRemark, ...] = ()


def build_rows(before: dict[str, Any], after: dict[str, Any], remarks: Sequence[DiffRemark] = ()) -> list[Row]:
    """Return the hunks of a unified diff; empty if the objects are equal."""
    found = find_changes(before, after)
    if not found:
        return []
    old, new = YamlLayout(before), YamlLayout(after)
    swaps = {
        old.spans[change.before]: new.spans[change.after]
        for change in found
        if change.before is not None and change.after is not None
    }
    gone = _find_changed_lines(old, [change.before for change in found if change.before is not None])
    added = _find_changed_lines(new, [change.after for change in found if change.after is not None])
    lines = list(_merge(_Marked(old, gone), _Marked(new, added), swaps, _place_remarks(old, new, remarks)))
    return list(_build_hunks(lines))


def _find_changed_lines(side: YamlLayout, pointers: Sequence[str]) -> set[int]:
    return {line for pointer in pointers for line in range(*side.spans[pointer])}


class _Marked(NamedTuple):
    """The lines of one object, and the numbers of those that the other object lacks."""

    side: YamlLayout
    changed: set[int]


_Beside = dict[tuple[str, int], tuple[DiffRemark, ...]]


def _place_remarks(old: YamlLayout, new: YamlLayout, remarks: Sequence[DiffRemark]) -> _Beside:
    """Return the remarks by the first line of their change."""
    found: _Beside = {}
    for remark in remarks:
        side = old if remark.is_removal else new
        span = side.spans.get(remark.pointer)
        if span is not None:
            key = ("-" if remark.is_removal else "+", span[0])
            found[key] = (*found.get(key, ()), remark)
    return found


def _merge(old: _Marked, new: _Marked, swaps: dict[Span, Span], beside: _Beside) -> Iterator[Row]:
    """Merge both texts: unmarked lines are in both, in the same order. `swaps`: replaced spans."""

    def remove(start: int, end: int) -> Iterator[Row]:
        for line in range(start, end):
            yield Row("-", old.side.lines[line], beside.get(("-", line), ()))

    def add(start: int, end: int) -> Iterator[Row]:
        for line in range(start, end):
            yield Row("+", new.side.lines[line], beside.get(("+", line), ()))

    starts = {(was[0], now[0]): (was[1], now[1]) for was, now in swaps.items()}
    left, right, ends = 0, 0, (len(old.side.lines), len(new.side.lines))
    while (left, right) != ends:
        swap = starts.get((left, right))
        if swap is not None:
            yield from (*remove(left, swap[0]), *add(right, swap[1]))
            left, right = swap
        elif left in old.changed:
            yield from remove(left, left + 1)
            left += 1
        elif right in new.changed:
            yield from add(right, right + 1)
            right += 1
        elif old.side.lines[left] == new.side.lines[right]:
            yield Row(" ", old.side.lines[left])
            left, right = left + 1, right + 1
        else:  # an added or removed first field of a list's entry moves the dash
            yield from (*remove(left, left + 1), *add(right, right + 1))
            left, right = left + 1, right + 1


def _build_hunks(lines: Sequence[Row]) -> Iterator[Row]:
    near = {
        at
        for index, row in enumerate(lines)
        if row.mark != " "
        for at in range(max(0, index - CONTEXT), min(len(lines), index + CONTEXT + 1))
    }
    old = new = 1
    for index, row in enumerate(lines):
        if index in near:
            if index - 1 not in near:
                yield Row("@", _format_head(lines, near, index, old, new))
            yield row
        old, new = old + (row.mark != "+"), new + (row.mark != "-")


def _format_head(lines: Sequence[Row], near: set[int], start: int, old: int, new: int) -> str:
    end = start
    while end in near:
        end += 1
    olds = sum(row.mark != "+" for row in lines[start:end])
    news = sum(row.mark != "-" for row in lines[start:end])
    return f"@@ -{old},{olds} +{new},{news} @@"
