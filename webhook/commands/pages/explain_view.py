"""Views of an explanation: remarks in a diff, and lines under the stages."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

import click

from webhook.commands.pages.diff import DiffRemark
from webhook.commands.simulator import Admission
from webhook.core.admission.decision import Decision, Half
from webhook.core.patch import format_pointer
from webhook.core.placement import SERVICE_LABEL
from webhook.core.plain_text import escape_line
from webhook.core.rule_notes import Act, Note
from webhook.core.rule_notes.explain import format_owed, is_last_step

_COLOURS = {Act.WROTE: "green", Act.LEFT: "red"}
_LABEL = format_pointer("metadata", "labels", SERVICE_LABEL)
_MARGIN = len("#     + ")
_ROOM_MIN = 20


def build_remarks(admission: Admission, notes: Sequence[Note]) -> list[DiffRemark]:
    """Return a remark for each change of the Pod."""
    if admission.mutated.service is None:
        text = "no service owns this Pod"
        return [DiffRemark(_LABEL, is_removal=True, short=text, long=f"{text}, and the label must not claim one")]
    return [
        DiffRemark(mark.pointer, mark.is_removal, note.rule, f"{note.rule}: {mark.words}" if mark.words else note.rule)
        for note in notes
        for mark in note.marks
    ]


def describe_dependences(decision: Decision) -> Iterator[str]:
    """Yield the labels that a verdict depends on: they are unknown before the Pod exists, or differ between Pods."""
    for dependence in decision.depends_on:
        asked = (
            f", if its podSelector fits the Pod's label {', '.join(dependence.labels)}"
            if dependence.labels
            else " otherwise"
        )
        owner = f"service {dependence.service}" if dependence.service else "no service"
        yield f"{owner} owns the Pod{asked}{' (denied)' * dependence.denied}"


def format_stages(admission: Admission, notes: Sequence[Note], width: int | None) -> str:
    """Return the finding of each stage as comments, with the notes under the rewriting and checking stages."""
    lines: list[str] = []
    for decision in (admission.mutated, admission.validated):
        for index, step in enumerate(decision.steps):
            is_listed = bool(notes) and step.found == ", ".join(operation.path for operation in decision.patch)
            found = f"{len(decision.patch)} operations" if is_listed else step.found
            lines += wrap_lines(f"#   {decision.half:8} {step.stage:8} ", found, width)
            if notes and is_last_step(decision, index):
                lines += (
                    _format_rewrite_notes(notes, width)
                    if decision.half is Half.MUTATE
                    else _format_check_notes(notes, width)
                )
    return "".join(f"{line}\n" for line in lines)


def _format_rewrite_notes(notes: Sequence[Note], width: int | None) -> Iterator[str]:
    column = _compute_column(notes, width)
    for note in notes:
        text = note.words or ", ".join(_shorten_place(mark.place) for mark in note.marks)
        lines = _format_note(note.act, note.rule, column, text, width)
        yield from (click.style(line, fg=_COLOURS.get(note.act), dim=note.act not in _COLOURS) for line in lines)


def _compute_column(notes: Sequence[Note], width: int | None) -> int:
    """Return the width of the column of rule names: at most half of a terminal."""
    longest = max((len(note.rule) for note in notes), default=0)
    return longest if width is None else min(longest, max(width // 2 - _MARGIN, _ROOM_MIN))


def _format_note(act: Act, rule: str, column: int, text: str, width: int | None) -> list[str]:
    if len(rule) <= column:
        return wrap_lines(f"#     {act} {rule:{column}}  ", text, width)
    return [f"#     {act} {rule}", *wrap_lines("#".ljust(column + _MARGIN + 2), text, width)]


def _shorten_place(place: str) -> str:
    return place.replace("DuringSchedulingIgnoredDuringExecution", "...")


def _format_check_notes(notes: Sequence[Note], width: int | None) -> Iterator[str]:
    checked = [note for note in notes if note.is_checked]
    broken = [note for note in checked if note.owed]
    column = _compute_column(broken, width)
    for note in broken:
        lines = _format_note(Act.LEFT, note.rule, column, format_owed(note), width)
        yield from (click.style(line, fg=_COLOURS[Act.LEFT]) for line in lines)
    wishes = sum(note.is_wish for note in notes)
    more = f"; not checked, being wishes: {wishes}" if wishes else ""
    held = len(checked) - len(broken)
    if checked:
        how_many = f"{held} of {len(checked)} rules hold" if broken else f"all {held} rules hold"
        if len(checked) == 1:
            how_many = "the one rule does not hold" if broken else "the one rule holds"
        yield click.style(f"#     = {how_many}{more}", dim=True)


def wrap_lines(head: str, text: str, width: int | None) -> list[str]:
    """Break a text at the terminal's width, each further line under the first."""
    head, text = escape_line(head), escape_line(text)
    room = None if width is None else max(width - len(head), _ROOM_MIN)
    lines = [text] if room is None else wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    indent = "#".ljust(len(head))
    return [(head if index == 0 else indent) + line for index, line in enumerate(lines)]
