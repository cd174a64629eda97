"""Cells: the parts of a page that change while somebody looks at it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

CELL_ATTRIBUTES = frozenset({"data-state", "data-until", "hidden", "max", "points", "title", "value", "width"})
"""Attributes that a cell may set; the script of the page sets no others."""


class LiveCell(Struct, frozen=True, omit_defaults=True):
    """The text of one element (None: it has none of its own), and its attributes; None removes one."""

    text: str | None = None
    attributes: Mapping[str, str | None] = {}


Cells = Mapping[str, LiveCell]


class View(Protocol):
    """What a page shows. Its JSON form is the answer of the page's address below /api/v1."""

    @property
    def time(self) -> str:
        """When it was true, by the clock of the server: countdowns go on from there."""
        ...

    def list_cells(self) -> Cells:
        """Return the cells by key. The template and the live updates both show these."""
        ...

    def list_order(self) -> Iterable[str]:
        """Return the names of what the page lists, in its order: the page tells when that has changed."""
        ...


def format_countdown(seconds: int) -> str:
    """Return a time that is left, in the form in which the page's script continues it: 1h05m, 2m09s, 45s."""
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds % 60:02d}s" if minutes else f"{seconds}s"


def find_changed_cells(before: Cells, after: Cells) -> dict[str, LiveCell]:
    return {key: cell for key, cell in after.items() if before.get(key) != cell}
