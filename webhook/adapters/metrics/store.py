"""Metrics of the shared store: availability, failures, and fallback while it does not respond."""

from collections.abc import Iterable

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.family import Family
from webhook.errors import StoreFailure, StoreFault


class StoreMetrics:
    """Totals and gauges, reported by the store and its fallback. `service` is "" for one that left the policy."""

    def __init__(self) -> None:
        # Starts at 0, so that the first failure is an increase.
        self._failures = Totals(families.STORE_FAILURES, *((fault.value,) for fault in StoreFault))
        self._losses = Totals(families.STORE_LOSSES, ())
        self._dropped = Totals(families.BOOKINGS_DROPPED, ())
        self._booked = Totals(families.BOOKED)
        self._cached = Totals(families.DENY_CACHE_HITS)
        self.totals = (self._failures, self._losses, self._booked, self._dropped, self._cached)
        self._up = True
        self._rules: dict[tuple[str, str], float] = {}

    def on_creation_failed(self, failure: StoreFailure) -> None:
        """Count a failure by its class."""
        self._failures.add((failure.fault or StoreFault.OTHER).value)

    def set_up(self, *, up: bool) -> None:
        """Set whether the store responds."""
        self._up = up

    def set_fallback(self, service: str, rule: str, *, on: bool) -> None:
        """Set whether a service is in fallback, by `rule`."""
        # Replaced, never changed in place: a scrape may be reading it.
        self._rules = {**self._rules, (service, rule): float(on)}

    def count_booked(self, service: str, cause: str, count: int) -> None:
        for _ in range(count):
            self._booked.add(service, cause)

    def count_dropped(self) -> None:
        self._dropped.add()

    def count_cached(self, service: str) -> None:
        self._cached.add(service)

    def count_loss(self) -> None:
        self._losses.add()

    def keep(self, services: frozenset[str]) -> None:
        """Remove the gauges of services that are gone; `Metrics` handles the counters."""
        self._rules = {labels: value for labels, value in self._rules.items() if labels[0] in services}

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        yield families.STORE_UP, [((), float(self._up))]
        yield families.STORE_FALLBACK, list(self._rules.items())
