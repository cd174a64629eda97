"""Counters of outcomes: recorded by breakers, dropped, and rejected because the reporter may not push them."""

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Totals


class OutcomeTotals:
    """Totals of outcomes pushed by reporters or observed by the watch on Pods."""

    def __init__(self) -> None:
        self._recorded = Totals(families.OUTCOMES)
        self._dropped = Totals(families.OUTCOMES_DROPPED)
        # From 0 on, so that the first one is an increase.
        self._refused = Totals(families.OUTCOMES_REFUSED, *((word,) for word in families.OUTCOME_REFUSALS))
        self.totals = (self._recorded, self._dropped, self._refused)
        self._services: frozenset[str] | None = None

    def recorded(self, service: str, source: str, result: str, count: int = 1) -> None:
        """Count outcomes recorded by a breaker: `source` is `Pushed` or `PodStart`, `result` is `ok` or `error`."""
        self._recorded.add(self._of_policy(service), source, result, count=count)

    def dropped(self, service: str, reason: str, count: int = 1) -> None:
        """Count outcomes that no breaker recorded."""
        self._dropped.add(self._of_policy(service), reason, count=count)

    def refused(self, reason: str, count: int = 1) -> None:
        """Count rejected outcomes; `reason` is one of `families.OUTCOME_REFUSALS`."""
        self._refused.add(reason, count=count)

    def keep(self, services: frozenset[str]) -> None:
        """Set the policy's services; late outcomes of other services count under ""."""
        self._services = services

    def _of_policy(self, service: str) -> str:
        return service if self._services is None or service in self._services else ""
