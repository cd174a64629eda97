"""The runner of golden reviews: results equal those in the files, or are written there again."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def compare(found: T, read: Callable[[], T], write: Callable[[T], object], *, refresh: bool) -> None:
    """Compare a result with its golden part; `--refresh-goldens` writes it first: read the difference."""
    if refresh:
        write(found)
    assert found == read()
