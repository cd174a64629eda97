"""Metrics of the controller's comparison of the store with the cluster: refunds, late charges, drift."""

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
