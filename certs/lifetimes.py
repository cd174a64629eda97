"""Lifetimes of a CA and its leaves, and the times at which each is to be replaced; no clock is read here."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from certs.authority import BACKDATED
from certs.dual_port_rollover import RENEWED_BEFORE_SECONDS

_RENEWED_AT = 2 / 3
_JITTER = 1 / 20
"""Share of the lifetime, to either side: certificates issued together are not all renewed at once."""
_SLOW_READER = timedelta(seconds=RENEWED_BEFORE_SECONDS)
"""The API server reloads its client certificate every five minutes; a mounted Secret is updated within two."""
_LEAST_OF_LIFE = 1 / 2
"""Share of a short lifetime that passes before an early renewal for slow readers."""
_SOONEST_SUCCESSION = 1 / 4
"""Least share of a CA's lifetime before its successor: bounds the number of CAs, whatever the lifetimes are."""
_LEAD = 1 / 10
"""Share of a CA's lifetime, besides settling: slack before a leaf's lifetime is cut short."""
_SETTLED_AFTER = 1 / 12
_LEAF_USUAL = timedelta(days=7), timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes of a CA and its leaves. `settle`: how long a new CA is published everywhere before it signs."""

    ca: timedelta
    leaf: timedelta
    settle: timedelta

    @classmethod
    def of(cls, ca: timedelta, leaf: timedelta, settle_max: timedelta) -> "Lifetimes":
        """Return lifetimes with a settling time that short lifetimes leave room for."""
        return cls(ca, leaf, min(settle_max, ca * _SETTLED_AFTER))

    def mistake(self) -> str:
        """Return why no rotation is possible with these lifetimes, "" if a rotation is."""
        if self.ca < 2 * self.leaf:
            return (
                f"a CA lifetime of {self.ca} is too short for leaves of {self.leaf}: it must be at least twice as long"
            )
        return ""

    def remarks(self) -> tuple[str, ...]:
        """Return warnings about unusual lifetimes."""
        shortest, longest = _LEAF_USUAL
        if self.leaf < shortest:
            return (
                f"leaf lifetime {self.leaf} is less than {shortest.days} days: little time to repair a failing renewal",
            )
        if self.leaf > longest:
            return (f"leaf lifetime {self.leaf} is more than {longest.days} days: a stolen key is usable that long",)
        return ()

    def succession(self, ca: x509.Certificate) -> datetime:
        """Return when to create the next CA: early enough to be trusted before this CA's end cuts leaves short."""
        issued_at, life = _issued_at(ca), _life(ca)
        usual = issued_at + life * _renewed_at(ca)
        latest = ca.not_valid_after_utc - self.leaf - self.settle - life * _LEAD
        return max(min(usual, latest), issued_at + life * _SOONEST_SUCCESSION)


def renewal(leaf: x509.Certificate) -> datetime:
    """Return when to renew a leaf: at about two thirds of its lifetime, but in time for slow readers."""
    issued_at, life = _issued_at(leaf), _life(leaf)
    latest = max(leaf.not_valid_after_utc - _SLOW_READER, issued_at + life * _LEAST_OF_LIFE)
    return min(issued_at + life * _renewed_at(leaf), latest)


def _renewed_at(certificate: x509.Certificate) -> float:
    """Return the share of its lifetime; derived from the serial number, so that it need not be stored."""
    return _RENEWED_AT + _JITTER * (certificate.serial_number % 2001 - 1000) / 1000


def _issued_at(certificate: x509.Certificate) -> datetime:
    return min(certificate.not_valid_before_utc + BACKDATED, certificate.not_valid_after_utc)


def _life(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - _issued_at(certificate)
