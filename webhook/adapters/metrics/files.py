"""Metrics of watched files: loads, and whether the current content is in use."""

from collections.abc import Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.families import FAILURE, SUCCESS, Family


class FileTotals:
    """Totals and times by the name of a file, or of files that belong together."""

    def __init__(self) -> None:
        self._loads = Totals(families.FILE_RELOADS)
        self.totals = (self._loads,)
        self._loaded_seconds: dict[str, float] = {}
        self._good: dict[str, bool] = {}

    def read(self, name: str, at_seconds: float, *, is_good: bool) -> None:
        """Count a load, at the start or after a change."""
        self._loads.add(name, FAILURE, count=not is_good)  # from 0 on, so that the first failure is an increase
        self._good[name] = is_good
        if is_good:
            self._loads.add(name, SUCCESS)
            self._loaded_seconds[name] = at_seconds

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        return [
            (families.FILE_LOADED, [((name,), at) for name, at in self._loaded_seconds.items()]),
            (families.FILE_GOOD, [((name,), int(is_good)) for name, is_good in self._good.items()]),
        ]
