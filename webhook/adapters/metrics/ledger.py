"""Metrics of the controller: its comparison of the store with the cluster, and the release of waiting Pods."""

from collections.abc import Iterable, Mapping, Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import WAIT_BOUNDS_SECONDS, Durations, Row, Totals
from webhook.adapters.metrics.family import Family
from webhook.core.reporting.queue_document import QueueDepth


class PodLedgerHealth:
    """Totals and gauges of the leader; other replicas export none. `service` is "" for one that left the policy."""

    def __init__(self) -> None:
        self._refunds = Totals(families.REFUNDS)
        self._unproven = Totals(families.REFUNDS_UNPROVEN)
        self._afterwards = Totals(families.CHARGED_AFTERWARDS)
        self._raised = Totals(families.RAISED_AFTERWARDS)
        self._unjudged = Totals(families.UNJUDGED_PODS)
        self._labels = Totals(families.LABELS_IGNORED)
        self._excused = Totals(families.BREAKER_EXCUSED)
        self._woken, self._pods_woken = Totals(families.CONTROLLERS_WOKEN), Totals(families.PODS_WOKEN)
        charges = self._refunds, self._unproven, self._afterwards, self._raised
        self.totals = (*charges, self._unjudged, self._labels, self._excused, self._woken, self._pods_woken)
        self._held: Mapping[str, int] = {}
        self._drift: dict[str, float] = {}
        self._pool_drift: Mapping[str, int] = {}
        self._watched: int | None = None

    def count_refund(self, service: str, cause: str) -> None:
        self._refunds.add(service, cause)

    def count_unproven(self, service: str) -> None:
        self._unproven.add(service)

    def count_late_charge(self, service: str) -> None:
        self._afterwards.add(service)

    def count_unjudged(self, service: str) -> None:
        self._unjudged.add(service)

    def count_late_raise(self, service: str) -> None:
        self._raised.add(service)

    def count_ignored_label(self) -> None:
        self._labels.add()

    def count_excused(self, service: str, count: int) -> None:
        self._excused.add(service, count=count)

    def count_wake(self, service: str, result: str) -> None:
        self._woken.add(service, result)

    def count_pod_wake(self, result: str, count: int = 1) -> None:
        self._pods_woken.add(result, count=count)

    def set_held(self, controllers: Mapping[str, int]) -> None:
        """Set how many controllers are held, by service."""
        self._held = controllers

    def set_drift(self, service: str, count: int) -> None:
        # Replaced, never changed in place: a scrape may be reading it.
        self._drift = {**self._drift, service: float(count)}

    def set_pool_drift(self, counts: Mapping[str, int]) -> None:
        """Set by how many live Pods the store differed, by pool."""
        self._pool_drift = counts

    def set_watched(self, count: int | None) -> None:
        """Set how many Pods of services exist; None if this process no longer watches them."""
        self._watched = count
        if count is None:
            self._drift, self._pool_drift = {}, {}

    def keep(self, services: frozenset[str]) -> None:
        """Remove the gauges of services that are gone; `Metrics` handles the counters."""
        self._drift = {service: count for service, count in self._drift.items() if service in services}
        self._held = {service: count for service, count in self._held.items() if service in services}

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        yield families.STANDING_DRIFT, [((service,), count) for service, count in self._drift.items()]
        yield families.POOL_STANDING_DRIFT, [((pool,), float(count)) for pool, count in self._pool_drift.items()]
        yield families.HELD_CONTROLLERS, [((service,), float(count)) for service, count in self._held.items()]
        yield families.WATCHED_PODS, [] if self._watched is None else [((), float(self._watched))]


class QueueMetrics:
    """Totals, gauges and histograms of the leader; other replicas export none."""

    def __init__(self) -> None:
        self._released = Totals(families.QUEUE_RELEASED)
        self._expired = Totals(families.QUEUE_EXPIRED)
        self.totals = (self._released, self._expired)
        self._waiting: Mapping[str, int] = {}
        self._depths: Sequence[QueueDepth] = ()
        self._classes: dict[str, str] = {}
        self._waits: dict[str, Durations] = {}
        self._latencies: dict[str, Durations] = {}

    def count_release(self, service: str, seconds: float, latency_seconds: float) -> None:
        self._released.add(service)
        if (sla_class := self._classes.get(service)) is not None:
            self._waits[sla_class].add(round(seconds * 1e9))
            self._latencies[sla_class].add(round(latency_seconds * 1e9))

    def count_expiry(self, service: str, seconds: float) -> None:
        self._expired.add(service)
        if (sla_class := self._classes.get(service)) is not None:
            self._waits[sla_class].add(round(seconds * 1e9))

    def set_waiting(self, counts: Mapping[str, int]) -> None:
        """Set how many Pods of each service wait: replaced, never changed in place."""
        self._waiting = counts

    def set_depths(self, depths: Sequence[QueueDepth]) -> None:
        """Set the depth of each queue; its class starts at 0 in the histograms."""
        self._depths = depths
        for depth in depths:
            if not depth.sla_class:
                continue  # Pods of no service
            self._classes[depth.service] = depth.sla_class
            self._waits.setdefault(depth.sla_class, Durations(WAIT_BOUNDS_SECONDS))
            self._latencies.setdefault(depth.sla_class, Durations())

    def keep(self, services: frozenset[str]) -> None:
        """Remove the gauges of services that are gone; `Metrics` handles the counters."""
        self._waiting = {service: count for service, count in self._waiting.items() if service in services}
        self._depths = [depth for depth in self._depths if depth.service in services or not depth.sla_class]
        self._classes = {service: name for service, name in self._classes.items() if service in services}

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        depths = self._depths
        yield families.QUEUE_PODS, [((service,), float(count)) for service, count in self._waiting.items()]
        yield (
            families.QUEUE_FAILING,
            [((depth.service, failing.reason), float(failing.pods)) for depth in depths for failing in depth.failing],
        )
        yield (
            families.QUEUE_GROUPS,
            [
                ((depth.service, state), float(count))
                for depth in depths
                if (groups := depth.groups) is not None
                for state, count in (("Complete", groups.complete), ("Incomplete", groups.incomplete))
            ],
        )
        yield (
            families.QUEUE_OLDEST,
            [((depth.service, depth.sla_class), float(depth.oldest_seconds)) for depth in depths if depth.sla_class],
        )
        yield (
            families.QUEUE_PAUSED,
            [((depth.service,), float(depth.paused is not None)) for depth in depths if depth.sla_class],
        )

    def histograms(self) -> Iterable[tuple[Family, list[tuple[tuple[str, ...], Durations]]]]:
        """Return the histograms with their series."""
        found = (families.QUEUE_WAIT, self._waits), (families.QUEUE_LATENCY, self._latencies)
        return [(family, _list_series(by_class)) for family, by_class in found if by_class]


def _list_series(by_class: Mapping[str, Durations]) -> list[tuple[tuple[str, ...], Durations]]:
    return [((name,), durations) for name, durations in list(by_class.items())]
