"""Gauges of the process: readiness, leadership, and when it last reviewed anything."""

from collections.abc import Iterable

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row
from webhook.adapters.metrics.families import Family


class ProcessHealth:
    """Readiness and leadership, set before a scrape. None, without a series, before they are set."""

    def __init__(self) -> None:
        self._ready: bool | None = None
        self._leads: bool | None = None

    def update(self, *, ready: bool, leads: bool | None) -> None:
        """Set whether the process is ready, and whether it holds the Lease; None if it needs none."""
        self._ready, self._leads = ready, leads

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        yield families.READY, [] if self._ready is None else [((), float(self._ready))]
        yield families.LEADER, [] if self._leads is None else [((), float(self._leads))]
