"""Changes: which of many named things have changed since a version. Calls keep what they found of the others."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

_NAMES_MIN = 1024


class ChangeLog:
    """Names in the order of their changes; the oldest ones are dropped."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._first = 0

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._first + len(self._names)

    def record(self, names: Iterable[str], count: int) -> None:
        """Record that these have changed, of so many that there are."""
        if len(self._names) >= max(_NAMES_MIN, 4 * count):
            self._first += len(self._names)
            self._names.clear()
        self._names.extend(names)

    def since(self, version: int) -> AbstractSet[str] | None:
        """Return what has changed since a version; None: that is not known any more."""
        return None if version < self._first else set(self._names[version - self._first :])
