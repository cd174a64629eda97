"""Views of an explanation: remarks in a diff, and lines under the stages."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

import click

from webhook.commands.pages.diff import DiffRemark
from webhook.commands.simulator import Admission
from webhook.core.admission.decision import Decision, Half
from webhook.core.patch import pointer
from webhook.core.placement import SERVICE_LABEL
from webhook.core.plain_text import printable
from webhook.core.rule_notes import Act, Note
from webhook.core.rule_notes.explain import ends_notes, owed_text

_COLOURS = {Act.WROTE: "green", Act.LEFT: "red"}
_LABEL = pointer("metadata", "labels", SERVICE_LABEL)
_MARGIN = len("#     + ")
_NARROWEST = 20


def remarks(admission: Admission, notes: Sequence[Note]) -> list[DiffRemark]:
    """Return a remark for each change of the Pod."""
    if admission.mutated.service is None:
        text = "no service owns this Pod"
        return [DiffRemark(_LABEL, is_removal=True, short=text, long=f"{text}, and the label must not claim one")]
    return [
        DiffRemark(mark.pointer, mark.is_removal, note.rule, f"{note.rule}: {mark.words}" if mark.words else note.rule)
        for note in notes
        for mark in note.marks
    ]


def dependences(decision: Decision) -> Iterator[str]:
    """Yield the labels that a verdict depends on: they are unknown before the Pod exists, or differ between Pods."""
    for dependence in decision.depends_on:
        asked = (
            f", if its podSelector fits the Pod's label {', '.join(dependence.labels)}"
            if dependence.labels
            else " otherwise"
        )
        owner = f"service {dependence.service}" if dependence.service else "no service"
        yield f"{owner} owns the Pod{asked}{' (denied)' * dependence.denied}"


def stages(admission: Admission, notes: Sequence[Note], width: int | None) -> str:
    """Return the finding of each stage as comments, with the notes under the rewriting and checking stages."""
    lines: list[str] = []
    for decision in (admission.mutated, admission.validated):
        for index, step in enumerate(decision.steps):
            is_listed = bool(notes) and step.found == ", ".join(operation.path for operation in decision.patch)
            found = f"{len(decision.patch)} operations" if is_listed else step.found
            lines += filled(f"#   {decision.half:8} {step.stage:8} ", found, width)
            if notes and ends_notes(decision, index):
                lines += _under_rewrite(notes, width) if decision.half is Half.MUTATE else _under_check(notes, width)
    return "".join(f"{line}\n" for line in lines)


def _under_rewrite(notes: Sequence[Note], width: int | None) -> Iterator[str]:
    column = _column(notes, width)
    for note in notes:
        text = note.words or ", ".join(_short(mark.place) for mark in note.marks)
        lines = _beside(note.act, note.rule, column, text, width)
        yield from (click.style(line, fg=_COLOURS.get(note.act), dim=note.act not in _COLOURS) for line in lines)


def _column(notes: Sequence[Note], width: int | None) -> int:
    """Return the width of the column of rule names: at most half of a terminal."""
    longest = max((len(note.rule) for note in notes), default=0)
    return longest if width is None else min(longest, max(width // 2 - _MARGIN, _NARROWEST))


def _beside(act: Act, rule: str, column: int, text: str, width: int | None) -> list[str]:
    if len(rule) <= column:
        return filled(f"#     {act} {rule:{column}}  ", text, width)
    return [f"#     {act} {rule}", *filled("#".ljust(column + _MARGIN + 2), text, width)]


def _short(place: str) -> str:
    return place.replace("DuringSchedulingIgnoredDuringExecution", "...")


def _under_check(notes: Sequence[Note], width: int | None) -> Iterator[str]:
    checked = [note for note in notes if note.is_checked]
    broken = [note for note in checked if note.owed]
    column = _column(broken, width)
    for note in broken:
        lines = _beside(Act.LEFT, note.rule, column, owed_text(note), width)
        yield from (click.style(line, fg=_COLOURS[Act.LEFT]) for line in lines)
    wishes = sum(note.is_wish for note in notes)
    more = f"; not checked, being wishes: {wishes}" if wishes else ""
    held = len(checked) - len(broken)
    if checked:
        how_many = f"{held} of {len(checked)} rules hold" if broken else f"all {held} rules hold"
        if len(checked) == 1:
            how_many = "the one rule does not hold" if broken else "the one rule holds"
        yield click.style(f"#     = {how_many}{more}", dim=True)


def filled(head: str, text: str, width: int | None) -> list[str]:
    """Break a text at the terminal's width, each further line under the first."""
    head, text = printable(head), printable(text)
    room = None if width is None else max(width - len(head), _NARROWEST)
    lines = [text] if room is None else wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    indent = "#".ljust(len(head))
    return [(head if index == 0 else indent) + line for index, line in enumerate(lines)]
