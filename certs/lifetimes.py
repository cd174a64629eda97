"""How long a CA and its leaves live, and when each is to be replaced: moments, not waits; no clock is known here."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from certs.authority import BACKDATED

_RENEWED_AT = 2 / 3
_JITTER = 1 / 20
"""Of a life, to either side: certificates that were made together are not all renewed together."""
_SLOW_READER = timedelta(minutes=6)
"""The API server reads its client certificate again every five minutes; a mounted Secret is newer within two."""
_LEAST_OF_LIFE = 1 / 2
"""However short the life is, so much of it passes before it is renewed for a slow reader's sake."""
_SOONEST_SUCCESSION = 1 / 4
"""Of a CA's life: bounds how many CAs there are at once, however badly the lifetimes go together."""
_LEAD = 1 / 10
"""Of a CA's life, beside the settling: time to be late with everything before a leaf's life is cut."""
_SETTLED_AFTER = 1 / 12
_LEAF_USUAL = timedelta(days=7), timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Of one CA and what it signs. `settle` is how long after it was read back everywhere a new CA begins to sign."""

    ca: timedelta
    leaf: timedelta
    settle: timedelta

    @classmethod
    def of(cls, ca: timedelta, leaf: timedelta, settle_max: timedelta) -> "Lifetimes":
        """Return them with the settling that short lives leave time for."""
        return cls(ca, leaf, min(settle_max, ca * _SETTLED_AFTER))

    def mistake(self) -> str:
        """Say why nothing can be kept alive with these, "" where it can."""
        if self.ca < 2 * self.leaf:
            return f"a CA that lives {self.ca} cannot sign leaves of {self.leaf}: it must live twice as long as they do"
        return ""

    def remarks(self) -> tuple[str, ...]:
        """Say what is unusual, and what it costs."""
        shortest, longest = _LEAF_USUAL
        if self.leaf < shortest:
            return (f"leaves live {self.leaf}, less than {shortest.days} days: little time to mend what stops renewal",)
        if self.leaf > longest:
            return (f"leaves live {self.leaf}, more than {longest.days} days: so long is a stolen key of use",)
        return ()

    def succession(self, ca: x509.Certificate) -> datetime:
        """Return when the next CA is to be made: early enough to be trusted before this one's leaves are cut short."""
        born, life = _born(ca), _life(ca)
        usual = born + life * _renewed_at(ca)
        latest = ca.not_valid_after_utc - self.leaf - self.settle - life * _LEAD
        return max(min(usual, latest), born + life * _SOONEST_SUCCESSION)


def renewal(leaf: x509.Certificate) -> datetime:
    """Return when a leaf is to be renewed: at two thirds of its life, give or take, but in time for slow readers."""
    born, life = _born(leaf), _life(leaf)
    latest = max(leaf.not_valid_after_utc - _SLOW_READER, born + life * _LEAST_OF_LIFE)
    return min(born + life * _renewed_at(leaf), latest)


def _renewed_at(certificate: x509.Certificate) -> float:
    """Return the share of its life: always the same one of a certificate, so that nobody need remember it."""
    return _RENEWED_AT + _JITTER * (certificate.serial_number % 2001 - 1000) / 1000


def _born(certificate: x509.Certificate) -> datetime:
    return min(certificate.not_valid_before_utc + BACKDATED, certificate.not_valid_after_utc)


def _life(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - _born(certificate)
