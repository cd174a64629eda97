"""Number of replicas that share the limits, now and recently: a replica that left may just have spent its share."""

from typing import NamedTuple


class _Former(NamedTuple):
    until_us: int
    replicas: int
    ordinal: int


class ReplicaCount:
    """Number of replicas, and the ordinal of this one, from 0. Time is monotonic, in microseconds."""

    def __init__(self, count: int = 1, ordinal: int = 0) -> None:
        self.count, self.ordinal = count, ordinal
        self._former: list[_Former] = []
        """Former counts, oldest first, each larger than the next."""

    def change(self, count: int, ordinal: int, now_us: int) -> None:
        """Set the number of replicas from now on, and this one's ordinal."""
        former = [*self._former, _Former(now_us, self.count, self.ordinal)]
        self._former = [one for one in former if one.replicas > count]
        self.count, self.ordinal = count, ordinal

    def most_since(self, at_us: int) -> tuple[int, int]:
        """Return the largest count since a moment, and this replica's ordinal at that count."""
        for former in self._former:
            if former.until_us > at_us:
                return former.replicas, former.ordinal
        return self.count, self.ordinal
