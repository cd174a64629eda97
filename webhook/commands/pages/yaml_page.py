"""Objects as YAML, and coloured diffs of two objects with remarks."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click

from webhook.commands.pages.diff import DiffRemark, Row, build_rows
from webhook.core.plain_text import escape_line

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_REMARK_COLUMN_MAX = 64
"""Remarks beside longer lines follow directly, so that they do not shift the column of the other remarks."""


def format_diff(
    before: dict[str, Any],
    after: dict[str, Any],
    name: str,
    remarks: Sequence[DiffRemark] = (),
    width: int | None = None,
) -> str:
    """Return a unified diff of two objects as YAML, empty if they are equal.

    `width` is that of the terminal; None: lines may have any length. Colours are removed if the output is no terminal.
    """
    found = build_rows(before, after, remarks)
    if not found:
        return ""
    name = escape_line(name)
    head = [click.style(f"--- {name}", bold=True), click.style(f"+++ {name} (rewritten)", bold=True)]
    return "".join(f"{line}\n" for line in (*head, *_format_lines(found, width)))


def _format_lines(found: Sequence[Row], width: int | None) -> Iterator[str]:
    for is_head, group in groupby(found, lambda row: row.mark == "@"):
        hunk = list(group)
        ends = [len(row.text) + 1 for row in hunk if row.remarks]
        column = max((end for end in ends if end <= _REMARK_COLUMN_MAX), default=0) + 2
        for row in hunk:
            text = row.text if is_head else row.mark + row.text
            coloured = click.style(text, fg=_COLOURS[row.mark]) if row.mark in _COLOURS else text
            yield from _add_remarks(row, coloured, column, width) if row.remarks else (coloured,)


def _add_remarks(row: Row, coloured: str, column: int, width: int | None) -> Iterator[str]:
    """Put remarks beside a line if they fit, shortened if necessary; else above it."""
    end = len(row.text) + 1
    remarks = [
        "# " + escape_line(", ".join(dict.fromkeys(texts)))
        for texts in ([remark.long for remark in row.remarks], [remark.short for remark in row.remarks])
    ]
    for remark in remarks:
        for start in (max(column, end + 2), end + 2):
            if width is None or start + len(remark) <= width:
                yield coloured + " " * (start - end) + click.style(remark, dim=True)
                return
    yield click.style(f" {remarks[-1]}", dim=True)
    yield coloured
