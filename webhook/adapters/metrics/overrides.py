"""Metrics of overrides: when each service's end, and whether the newest document is in force."""

from collections.abc import Callable, Mapping, Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row
from webhook.adapters.metrics.families import Family
from webhook.core.overrides import Override


class OverrideGauges:
    """Gauges of the overrides in force. `is_good` is None until a document is loaded or known to be missing."""

    def __init__(self) -> None:
        self.is_good: bool | None = None
        self._live: dict[str, Sequence[Override]] = {}
        self._until_seconds: Mapping[str, float] = {}

    def changed(self, service: str, former: Override | None, now: Override | None) -> None:
        live = [entry for entry in self._live.get(service, ()) if entry != former]
        self._live[service] = live = [*live, *([now] if now is not None else ())]
        others = {name: at for name, at in self._until_seconds.items() if name != service}
        last = {service: max(entry.until_us for entry in live) / 1_000_000} if live else {}
        # Replaced, never changed in place: a scrape may be reading it.
        self._until_seconds = {**others, **last}

    def rows(self, is_known: Callable[[str], object]) -> Sequence[tuple[Family, list[Row]]]:
        """Return the gauges; a service that is not in the policy has no series."""
        ends: list[Row] = [((name,), at) for name, at in self._until_seconds.items() if is_known(name)]
        last_good: list[Row] = [] if self.is_good is None else [((), float(self.is_good))]
        return [(families.OVERRIDE_UNTIL, ends), (families.OVERRIDES_LAST_GOOD, last_good)]
