"""Gauges of the process: readiness, leadership and overload."""

from collections.abc import Iterable, Mapping

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row
from webhook.adapters.metrics.families import Family
from webhook.core.overload import OverloadCause
from webhook.ports import PartialObserver


class ProcessHealth(PartialObserver):
    """Readiness and leadership, set before a scrape, and the causes of an overload. None: without a series."""

    def __init__(self, overload: Mapping[OverloadCause, str] | None) -> None:
        self._overload = overload
        self._ready: bool | None = None
        self._leads: bool | None = None

    def overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:  # noqa: ARG002  the log tells when it began
        self._overload = now

    def update(self, *, ready: bool, leads: bool | None) -> None:
        """Set whether the process is ready, and whether it holds the Lease; None if it needs none."""
        self._ready, self._leads = ready, leads

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        yield families.READY, [] if self._ready is None else [((), float(self._ready))]
        causes = () if self._overload is None else OverloadCause
        yield families.OVERLOAD, [((cause,), float(cause in (self._overload or ()))) for cause in causes]
        yield families.LEADER, [] if self._leads is None else [((), float(self._leads))]
