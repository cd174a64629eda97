"""Metrics of slots, which servers give, and of the Pods of variants, which only the leader knows."""

from collections.abc import Iterable, Mapping

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.family import Family

_Counts = Mapping[tuple[str, str], int]


class SlotTotals:
    """What slots cost. `service` is "" for one that left the policy."""

    def __init__(self) -> None:
        self._claims, self._lists = Totals(families.SLOT_CLAIMS), Totals(families.SLOT_LISTS)
        self.totals = (self._claims, self._lists)

    def count_claim(self, service: str) -> None:
        self._claims.add(service)

    def count_list(self, service: str, reason: str) -> None:
        self._lists.add(service, reason)


class VariantPodMetrics:
    """The gauges have no value in a process that does not lead."""

    def __init__(self) -> None:
        self._evictions = Totals(families.VARIANT_EVICTIONS)
        self.totals = (self._evictions,)
        self._pods: _Counts = {}
        self._fell_back: _Counts = {}

    def count_eviction(self, service: str, variant: str) -> None:
        self._evictions.add(service, variant)

    def set_counts(self, pods: _Counts, fell_back: _Counts) -> None:
        """Set how many Pods each variant has, and how many of its slots have Pods of another; both are replaced."""
        self._pods, self._fell_back = pods, fell_back

    def keep(self, services: frozenset[str]) -> None:
        """Remove the gauges of services that are gone; `Metrics` handles the counters."""
        self._pods = {owner: count for owner, count in self._pods.items() if owner[0] in services}
        self._fell_back = {owner: count for owner, count in self._fell_back.items() if owner[0] in services}

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        for family, counts in ((families.VARIANT_PODS, self._pods), (families.VARIANT_FELL_BACK, self._fell_back)):
            yield family, [(labels, float(count)) for labels, count in counts.items()]
