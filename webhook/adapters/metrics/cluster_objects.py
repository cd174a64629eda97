"""Metrics of objects that the leader maintains: certificates, CA bundles and webhook configurations."""

from collections.abc import Mapping, Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.family import Family


class CertificateTotals:
    """Totals and expiry times, reported by the certificate authority's loop."""

    def __init__(self) -> None:
        self._made = Totals(families.CERTIFICATES_MADE)
        self._mended = Totals(families.TRUST_MENDED)
        self._troubles = Totals(families.CERTIFICATE_TROUBLES)
        self.totals = (self._made, self._mended, self._troubles)
        self._ends_seconds: Mapping[str, float] = {}

    def count_issued(self, secret: str) -> None:
        """Count a new CA, or a leaf certificate issued or renewed."""
        self._made.add(secret)

    def count_mended(self, place: str) -> None:
        """Count a CA bundle restored after a foreign change."""
        self._mended.add(place)

    def count_trouble(self) -> None:
        """Count a failure, once until recovery."""
        self._troubles.add()

    def set_kept(self, ends_seconds: Mapping[str, float]) -> None:
        """Set when each maintained certificate expires, in seconds since the Unix epoch, by its Secret."""
        self._troubles.add(count=0)  # starts the series at 0, so that the first failure is an increase
        self._ends_seconds = dict(ends_seconds)

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        return [(families.KEPT_EXPIRY, [((name,), at) for name, at in self._ends_seconds.items()])]


class WebhookConfigurationMetrics:
    """Reported by the leader's loop. The gauge has no value until the first comparison."""

    def __init__(self) -> None:
        self._written = Totals(families.WEBHOOKS_WRITTEN)
        self._failures = Totals(families.WEBHOOKS_FAILED)
        self.totals = (self._written, self._failures)
        self._outdated: int | None = None

    def set_outdated(self, outdated: Sequence[str]) -> None:
        """Set the configurations that differ."""
        self._outdated = len(outdated)

    def begin(self) -> None:
        """Start the counters at 0, so that the first event is an increase."""
        self._written.add(count=0)
        self._failures.add(count=0)

    def end(self) -> None:
        """Remove the gauge: another process leads."""
        self._outdated = None

    def count_written(self) -> None:
        """Count a write."""
        self._written.add()

    def on_creation_failed(self) -> None:
        """Count a failure."""
        self._failures.add()

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        outdated: list[Row] = [((), float(self._outdated))] if self._outdated is not None else []
        return [(families.WEBHOOKS_STALE, outdated)]


class FailingWrites:
    """Objects that the leader writes, and whether their writes fail now."""

    def __init__(self) -> None:
        self._failing: Mapping[str, bool] = {}

    def set(self, name: str, *, fails: bool) -> None:
        """Set whether writes of these objects fail."""
        # Replaced, never changed in place: a scrape may be reading it.
        self._failing = {**self._failing, name: fails}

    def end(self) -> None:
        """Forget all: another process leads."""
        self._failing = {}

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        return [(families.WRITES_FAILING, [((name,), float(fails)) for name, fails in self._failing.items()])]
