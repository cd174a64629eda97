"""Metrics of certificates that the leader maintains in the cluster: renewals, restored CA bundles, failures, expiry."""

from collections.abc import Mapping, Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.families import Family


class CertificateTotals:
    """Totals and expiry times, reported by the certificate authority's loop."""

    def __init__(self) -> None:
        self._made = Totals(families.CERTIFICATES_MADE)
        self._mended = Totals(families.TRUST_MENDED)
        self._troubles = Totals(families.CERTIFICATE_TROUBLES)
        self.totals = (self._made, self._mended, self._troubles)
        self._ends_seconds: Mapping[str, float] = {}

    def made(self, secret: str) -> None:
        """Count a new CA, or a leaf certificate issued or renewed."""
        self._made.add(secret)

    def mended(self, place: str) -> None:
        """Count a CA bundle restored after a foreign change."""
        self._mended.add(place)

    def troubled(self) -> None:
        """Count a failure, once until recovery."""
        self._troubles.add()

    def kept(self, ends_seconds: Mapping[str, float]) -> None:
        """Set when each maintained certificate expires, in seconds since the Unix epoch, by its Secret."""
        self._troubles.add(count=0)  # from 0 on, so that the first is an increase
        self._ends_seconds = dict(ends_seconds)

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        return [(families.KEPT_EXPIRY, [((name,), at) for name, at in self._ends_seconds.items()])]
