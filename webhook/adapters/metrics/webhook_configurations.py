"""Metrics of the webhook configurations: how many differ from the policy, writes, and failures."""

from collections.abc import Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.families import Family


class WebhookConfigurationMetrics:
    """Reported by the leader's loop. The gauge has no value until the first comparison."""

    def __init__(self) -> None:
        self._written = Totals(families.WEBHOOKS_WRITTEN)
        self._failures = Totals(families.WEBHOOKS_FAILED)
        self.totals = (self._written, self._failures)
        self._outdated: int | None = None

    def outdated(self, outdated: Sequence[str]) -> None:
        """Set the configurations that differ."""
        self._outdated = len(outdated)

    def begin(self) -> None:
        """Start the counters at 0, so that the first event is an increase."""
        self._written.add(count=0)
        self._failures.add(count=0)

    def end(self) -> None:
        """Remove the gauge: another process leads."""
        self._outdated = None

    def written(self) -> None:
        """Count a write."""
        self._written.add()

    def failed(self) -> None:
        """Count a failure."""
        self._failures.add()

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        outdated: list[Row] = [((), float(self._outdated))] if self._outdated is not None else []
        return [(families.WEBHOOKS_STALE, outdated)]
