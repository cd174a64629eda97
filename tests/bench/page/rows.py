"""Rows of comparisons, as they are in a file of results."""

from collections.abc import Sequence
from typing import Any

from tests.bench.servers import OWN

Json = dict[str, Any]
USUAL: Json = {
    "pod_bytes": 6_000,
    "own_images": False,
    "new_connections": False,
    "connections": 16,
    "containers": 3,
    "services": 0,
    "windows": 1,
    "rate": 0,
}
"""The scenario in which a row is unless it says otherwise."""


def row(results: Json, part: str, case: str, server: str = OWN, **special: object) -> Json | None:
    """Return the row of a server in a scenario, or None."""
    wanted = {**USUAL, **special, "case": case, "server": server}
    rows = results.get(part, {}).get("figures", {}).get("rows", [])
    return next((row for row in rows if all(row[name] == value for name, value in wanted.items())), None)


def ratio(found: Json | None, name: str = "times_unit") -> str:
    """Return a ratio with its extremes, or a hyphen."""
    if found is None or found[name] is None:
        return "-"
    spread = found[name]
    return f"{spread['median']:.2f} ({spread['low']:.2f}-{spread['high']:.2f})"


def render_table(head: list[str], lines: list[list[str]]) -> str:
    """Return a table."""
    first, *rest = (f"| {' | '.join(cells)} |" for cells in (head, *lines))
    return "\n".join([first, f"|{'---|' * len(head)}", *rest])


def pivot(corner: str, cells: Sequence[tuple[str, str, str]]) -> str:
    """Return a table of cells with the names of their row and column, both in the order in which they appear."""
    columns = list(dict.fromkeys(column for _, column, _ in cells))
    found = {(line, column): text for line, column, text in cells}
    lines = list(dict.fromkeys(line for line, _, _ in cells))
    return render_table(
        [corner, *columns], [[line, *(found.get((line, column), "-") for column in columns)] for line in lines]
    )
