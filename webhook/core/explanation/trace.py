"""Trace of a review: the finding of each stage of both halves, with those of each policy entry below its stage."""

from collections.abc import Iterator, Sequence

from webhook.core.admission.decision import Decision, Half
from webhook.core.explanation.explain import Note


def trace(decisions: Sequence[Decision], notes: Sequence[Note]) -> list[dict[str, str]]:
    """Return the findings in order, the notes after those of the rewriting and checking stages."""
    found = []
    for decision in decisions:
        for index, step in enumerate(decision.steps):
            found.append({"half": decision.half, "stage": step.stage, "found": step.found})
            if ends_notes(decision, index):
                text = _notes_of_rewrite(notes) if decision.half is Half.MUTATE else _checked(notes)
                found += [{"half": decision.half, "stage": step.stage, "found": one} for one in text]
    return [{key: str(value) for key, value in entry.items()} for entry in found]


def ends_notes(decision: Decision, index: int) -> bool:
    """Return whether a step is the last of the stage that notes belong to."""
    stage = "rewrite" if decision.half is Half.MUTATE else "check"
    steps = decision.steps
    return steps[index].stage == stage and (index + 1 == len(steps) or steps[index + 1].stage != stage)


def owed_text(note: Note) -> str:
    return ", ".join(f"{lack.code} at {lack.field}" for lack in note.owed)


def _notes_of_rewrite(notes: Sequence[Note]) -> Iterator[str]:
    for note in notes:
        places = ", ".join(mark.place for mark in note.marks)
        yield ": ".join(part for part in (note.rule, note.words, places) if part)


def _checked(notes: Sequence[Note]) -> Iterator[str]:
    for note in notes:
        if note.is_checked:
            yield f"{note.rule}: {owed_text(note) or 'holds'}"
