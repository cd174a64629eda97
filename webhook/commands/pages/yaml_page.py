"""Objects as YAML, and coloured diffs of two objects with remarks."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click

from webhook.commands.pages.diff import DiffRemark, Row, rows
from webhook.core.plain_text import printable

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_FARTHEST_COLUMN = 64
"""Remarks beside longer lines follow directly, so that they do not shift the column of the other remarks."""


def as_diff(
    before: dict[str, Any],
    after: dict[str, Any],
    name: str,
    remarks: Sequence[DiffRemark] = (),
    width: int | None = None,
) -> str:
    """Return a unified diff of two objects as YAML, empty if they are equal.

    `width` is that of the terminal; None: lines may have any length. Colours are removed if the output is no terminal.
    """
    found = rows(before, after, remarks)
    if not found:
        return ""
    name = printable(name)
    head = [click.style(f"--- {name}", bold=True), click.style(f"+++ {name} (rewritten)", bold=True)]
    return "".join(f"{line}\n" for line in (*head, *_lines(found, width)))


def _lines(found: Sequence[Row], width: int | None) -> Iterator[str]:
    for is_head, group in groupby(found, lambda row: row.mark == "@"):
        hunk = list(group)
        ends = [len(row.text) + 1 for row in hunk if row.remarks]
        column = max((end for end in ends if end <= _FARTHEST_COLUMN), default=0) + 2
        for row in hunk:
            text = row.text if is_head else row.mark + row.text
            coloured = click.style(text, fg=_COLOURS[row.mark]) if row.mark in _COLOURS else text
            yield from _with_remarks(row, coloured, column, width) if row.remarks else (coloured,)


def _with_remarks(row: Row, coloured: str, column: int, width: int | None) -> Iterator[str]:
    """Put remarks beside a line if they fit, shortened if necessary; else above it."""
    end = len(row.text) + 1
    remarks = [
        "# " + printable(", ".join(dict.fromkeys(texts)))
        for texts in ([remark.long for remark in row.remarks], [remark.short for remark in row.remarks])
    ]
    for remark in remarks:
        for start in (max(column, end + 2), end + 2):
            if width is None or start + len(remark) <= width:
                yield coloured + " " * (start - end) + click.style(remark, dim=True)
                return
    yield click.style(f" {remarks[-1]}", dim=True)
    yield coloured
