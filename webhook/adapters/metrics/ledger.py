"""Metrics of the controller: its comparison of the store with the cluster, and the release of waiting Pods."""

from collections.abc import Iterable, Mapping

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.families import Family


class PodLedgerHealth:
    """Totals and gauges of the leader; other replicas export none. `service` is "" for one that left the policy."""

    def __init__(self) -> None:
        self._refunds = Totals(families.REFUNDS)
        self._unproven = Totals(families.REFUNDS_UNPROVEN)
        self._afterwards = Totals(families.CHARGED_AFTERWARDS)
        self._raised = Totals(families.RAISED_AFTERWARDS)
        self._labels = Totals(families.LABELS_IGNORED)
        self._excused = Totals(families.BREAKER_EXCUSED)
        self._woken = Totals(families.CONTROLLERS_WOKEN)
        charges = self._refunds, self._unproven, self._afterwards, self._raised
        self.totals = (*charges, self._labels, self._excused, self._woken)
        self._held: Mapping[str, int] = {}
        self._drift: dict[str, float] = {}
        self._watched: int | None = None

    def refunded(self, service: str, cause: str) -> None:
        self._refunds.add(service, cause)

    def unproven(self, service: str) -> None:
        self._unproven.add(service)

    def charged_afterwards(self, service: str) -> None:
        self._afterwards.add(service)

    def raised(self, service: str) -> None:
        self._raised.add(service)

    def label_ignored(self) -> None:
        self._labels.add()

    def excused(self, service: str, count: int) -> None:
        self._excused.add(service, count=count)

    def woken(self, service: str, result: str) -> None:
        self._woken.add(service, result)

    def held(self, controllers: Mapping[str, int]) -> None:
        """Set how many controllers are held, by service."""
        self._held = controllers

    def drifted(self, service: str, count: int) -> None:
        # Replaced, never changed in place: a scrape may be reading it.
        self._drift = {**self._drift, service: float(count)}

    def watched(self, count: int | None) -> None:
        """Set how many Pods of services exist; None if this process no longer watches them."""
        self._watched = count
        if count is None:
            self._drift = {}

    def keep(self, services: frozenset[str]) -> None:
        """Remove the gauges of services that are gone; `Metrics` handles the counters."""
        self._drift = {service: count for service, count in self._drift.items() if service in services}
        self._held = {service: count for service, count in self._held.items() if service in services}

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        yield families.STANDING_DRIFT, [((service,), count) for service, count in self._drift.items()]
        yield families.HELD_CONTROLLERS, [((service,), float(count)) for service, count in self._held.items()]
        yield families.WATCHED_PODS, [] if self._watched is None else [((), float(self._watched))]


class QueueMetrics:
    """Totals and gauges of the leader; other replicas export none."""

    def __init__(self) -> None:
        self._released = Totals(families.QUEUE_RELEASED)
        self._expired = Totals(families.QUEUE_EXPIRED)
        self._waited = Totals(families.QUEUE_WAIT)
        self.totals = (self._released, self._expired, self._waited)
        self._waiting: Mapping[str, int] = {}

    def released(self, service: str, seconds: float) -> None:
        self._released.add(service)
        self._waited.add(service, count=round(seconds))

    def expired(self, service: str, seconds: float) -> None:
        self._expired.add(service)
        self._waited.add(service, count=round(seconds))

    def waiting(self, counts: Mapping[str, int]) -> None:
        """Set how many Pods of each service wait: replaced, never changed in place."""
        self._waiting = counts

    def keep(self, services: frozenset[str]) -> None:
        """Remove the gauges of services that are gone; `Metrics` handles the counters."""
        self._waiting = {service: count for service, count in self._waiting.items() if service in services}

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        yield families.QUEUE_PODS, [((service,), float(count)) for service, count in self._waiting.items()]
