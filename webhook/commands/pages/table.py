"""Tables and durations as text for a terminal."""

from collections.abc import Iterable, Sequence

import click


def format_table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Yield the lines of a table; colour codes do not count towards the width of a column."""
    widths = [max(len(click.unstyle(row[column])) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def format_duration(seconds: int) -> str:
    """Return a duration in Go's format, without zero parts: 2m31s, 1h, 45s."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"
