"""Page of waiting Pods: a line for each class, and a table in the order of their release."""

from collections.abc import Iterable

import click

from webhook.commands.pages.table import format_duration, format_table
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.plain_text import escape_document
from webhook.core.reporting.queue_document import QueueDocument, QueueRow, WaitCause, count_by_class

_HEADINGS = ("QUEUE", "PLACE", "CLASS", "SERVICE", "POD", "AGE", "EXPECTED", "WHY")
_WIDE_HEADINGS = ("LIFTED", "OWNER", "EXPIRES", "UID")
_COLOURS: dict[str, str] = {WaitCause.PAUSED: "yellow", WaitCause.BREAKER_OPEN: "red", WaitCause.RELEASE_FAILS: "red"}


def format_queue(document: QueueDocument, *, is_wide: bool) -> Iterable[str]:
    """Yield the lines of the page."""
    document = escape_document(document)
    for service in document.services:
        if service.paused:
            yield click.style(f"{service.service} is paused {service.paused}", fg="yellow")
        for failure in service.failing:
            count = f"{failure.pods} Pod{'s' if failure.pods > 1 else ''} of {service.service or 'no service'}"
            yield click.style(f"{count} cannot be released ({failure.reason}): {failure.why}", fg="red")
    classes = count_by_class(document.services)
    if not classes:
        yield "no Pod waits"
        return
    parts = [f"{waiting} in {name}, oldest {format_duration(age)}" for name, (waiting, age) in classes.items()]
    yield f"waiting  {'; '.join(parts)}"
    now_us = parse_microseconds(document.time)
    headings = (*_HEADINGS[:-1], *_WIDE_HEADINGS, _HEADINGS[-1]) if is_wide else _HEADINGS
    yield from format_table([headings, *(_format_cells(row, now_us, is_wide=is_wide) for row in document.pods)])
    if document.matching > len(document.pods):
        yield f"the first {len(document.pods)} of {document.matching}"


def _format_cells(row: QueueRow, now_us: int, *, is_wide: bool) -> tuple[str, ...]:
    cells = (
        row.queue,
        str(row.place),
        row.sla_class,
        row.service,
        f"{row.namespace}/{row.name}",
        format_duration(row.waiting_seconds),
        _format_time_left(row.expected_at, now_us) if row.expected_at else "unknown",
    )
    wide = (
        ("yes" if row.lifted else "no", row.owner or "-", _format_time_left(row.expires_at, now_us), row.uid)
        if is_wide
        else ()
    )
    why = f"{row.why}; {row.early_end}" if row.early_end else row.why
    return (*cells, *wide, click.style(why, fg=_COLOURS.get(row.cause)))


def _format_time_left(moment: str | None, now_us: int) -> str:
    return (
        "-"
        if moment is None
        else f"in {format_duration(max(0, -(-(parse_microseconds(moment) - now_us) // 1_000_000)))}"
    )
