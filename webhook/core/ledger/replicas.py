"""Among how many replicas limits are shared, now and lately: who has left may have spent its share a moment ago."""

from typing import NamedTuple


class _Former(NamedTuple):
    until_us: int
    replicas: int
    ordinal: int


class ReplicaCount:
    """How many there are, and which of them, from 0, this one is. Time in microseconds; never goes back."""

    def __init__(self, count: int = 1, ordinal: int = 0) -> None:
        self.count, self.ordinal = count, ordinal
        self._former: list[_Former] = []
        """Larger counts than those after them: the newest, and smallest, last."""

    def change(self, count: int, ordinal: int, now_us: int) -> None:
        """Take how many there are from now on."""
        former = [*self._former, _Former(now_us, self.count, self.ordinal)]
        self._former = [one for one in former if one.replicas > count]
        self.count, self.ordinal = count, ordinal

    def most_since(self, at_us: int) -> tuple[int, int]:
        """Return the largest count since then, and which of so many this one was."""
        for former in self._former:
            if former.until_us > at_us:
                return former.replicas, former.ordinal
        return self.count, self.ordinal
