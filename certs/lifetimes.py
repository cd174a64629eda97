"""Lifetimes of a CA and its leaves, and the times at which each is to be replaced; no clock is read here."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from certs.authority import BACKDATED
from certs.dual_port_rollover import RENEWAL_LIFETIME_SECONDS_MIN

_RENEWED_AT = 2 / 3
_JITTER = 1 / 20
"""Share of the lifetime, to either side: certificates issued together are not all renewed at once."""
_SLOW_READER = timedelta(seconds=RENEWAL_LIFETIME_SECONDS_MIN)
"""The API server reloads its client certificate every five minutes; a mounted Secret is updated within two."""
_LIFETIME_SHARE_MIN = 1 / 2
"""Share of a short lifetime that passes before an early renewal for slow readers."""
_SUCCESSION_SHARE_MIN = 1 / 4
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
    def from_settle_max(cls, ca: timedelta, leaf: timedelta, settle_max: timedelta) -> "Lifetimes":
        """Return lifetimes with a settling time that short lifetimes leave room for."""
        return cls(ca, leaf, min(settle_max, ca * _SETTLED_AFTER))

    def find_mistake(self) -> str:
        """Return why no rotation is possible with these lifetimes, "" if a rotation is."""
        if self.ca < 2 * self.leaf:
            return (
                f"a CA lifetime of {self.ca} is too short for leaves of {self.leaf}: it must be at least twice as long"
            )
        return ""

    def list_remarks(self) -> tuple[str, ...]:
        """Return warnings about unusual lifetimes."""
        shortest, longest = _LEAF_USUAL
        if self.leaf < shortest:
            return (
                f"leaf lifetime {self.leaf} is less than {shortest.days} days: little time to repair a failing renewal",
            )
        if self.leaf > longest:
            return (f"leaf lifetime {self.leaf} is more than {longest.days} days: a stolen key is usable that long",)
        return ()

    def compute_succession(self, ca: x509.Certificate) -> datetime:
        """Return when to create the next CA: early enough to be trusted before this CA's end cuts leaves short."""
        issued_at, life = _compute_issue_time(ca), _compute_lifetime(ca)
        usual = issued_at + life * _compute_renewal_share(ca)
        latest = ca.not_valid_after_utc - self.leaf - self.settle - life * _LEAD
        return max(min(usual, latest), issued_at + life * _SUCCESSION_SHARE_MIN)


def compute_renewal(leaf: x509.Certificate) -> datetime:
    """Return when to renew a leaf: at about two thirds of its lifetime, but in time for slow readers."""
    issued_at, life = _compute_issue_time(leaf), _compute_lifetime(leaf)
    latest = max(leaf.not_valid_after_utc - _SLOW_READER, issued_at + life * _LIFETIME_SHARE_MIN)
    return min(issued_at + life * _compute_renewal_share(leaf), latest)


def _compute_renewal_share(certificate: x509.Certificate) -> float:
    """Return the share of its lifetime; derived from the serial number, so that it need not be stored."""
    return _RENEWED_AT + _JITTER * (certificate.serial_number % 2001 - 1000) / 1000


def _compute_issue_time(certificate: x509.Certificate) -> datetime:
    return min(certificate.not_valid_before_utc + BACKDATED, certificate.not_valid_after_utc)


def _compute_lifetime(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - _compute_issue_time(certificate)
