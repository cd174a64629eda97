"""Metrics of token verification keys: their number, and fetches."""

from collections.abc import Callable, Mapping, Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.families import FAILURE, SUCCESS, Family


class KeyTotals:
    """Totals and times by the source of keys."""

    def __init__(self) -> None:
        self._fetches = Totals(families.KEY_FETCHES)
        self.totals = (self._fetches,)
        self._fetched_seconds: dict[str, float] = {}
        self._counts: Callable[[], Mapping[str, int]] = dict

    def fetched(self, source: str, at_seconds: float) -> None:
        """Count a successful fetch."""
        self._fetches.add(source, SUCCESS)
        self._fetches.add(source, FAILURE, count=0)  # from 0 on, so that the first failure is an increase
        self._fetched_seconds[source] = at_seconds

    def not_fetched(self, source: str) -> None:
        """Count a failed fetch."""
        self._fetches.add(source, FAILURE)

    def watch(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Export `counts()`, by source, as the number of keys."""
        self._counts = counts

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        return [
            (families.KEYS_FETCHED, [((name,), at) for name, at in self._fetched_seconds.items()]),
            (families.KEYS, [((name,), float(count)) for name, count in self._counts().items()]),
        ]
