"""Recheck of an open connection's client certificate against the current CAs."""

import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from webhook.authentication.certificate_identity import UNREADABLE, read_certificate
from webhook.authentication.client_leaf import find_leaf_fault
from webhook.authentication.reasons import AuthFailure, refuse
from webhook.errors import AuthenticationError

_DER = 2  # _ssl.ENCODING_DER


class TrustedCas:
    """The client CAs by name and key: a CA that was renewed with the same key still verifies the same leaves."""

    def __init__(self, authorities: Iterable[x509.Certificate] = ()) -> None:
        self._expiry_seconds: dict[bytes, float] = {}
        for authority in authorities:
            known = self._expiry_seconds.get(_digest_identity(authority), 0.0)
            self._expiry_seconds[_digest_identity(authority)] = max(known, _read_expiry_seconds(authority))

    def find_end_seconds(self, issuers: Iterable[x509.Certificate]) -> float:
        """Return the end of a chain's validity (seconds since the Unix epoch), 0 if it is not trusted.

        `issuers` begins with the leaf's issuer.
        """
        until_seconds = float("inf")
        for issuer in issuers:
            trusted_until_seconds = self._expiry_seconds.get(_digest_identity(issuer))
            if trusted_until_seconds is not None:
                return min(until_seconds, trusted_until_seconds)
            until_seconds = min(until_seconds, _read_expiry_seconds(issuer))
        return 0.0


@dataclass(frozen=True, slots=True)
class _PeerCheck:
    trust: TrustedCas
    until_seconds: float
    refusal: tuple[AuthFailure, str] | None = None


class Peer:
    """The client of one TLS connection: its certificate, and the last check of it."""

    __slots__ = ("certificate_der", "last_check", "tls")

    def __init__(self, tls: ssl.SSLObject) -> None:
        self.tls = tls
        self.certificate_der = tls.getpeercert(binary_form=True)
        """None in reduced mode, which asks for none."""
        self.last_check: _PeerCheck | None = None
        """Set by PeerRecheck."""


class PeerRecheck:
    """Checks a connection once for each set of CAs.

    The handshake has verified the signatures of the chain; only the set of trusted CAs changes afterwards. Leaf
    certificates that OpenSSL accepts and Podgate does not are rejected here, where an HTTP response is possible.
    """

    def __init__(self, trust: Callable[[], TrustedCas], now_seconds: Callable[[], float] = time.time) -> None:
        self.trust = trust
        """Returns the current CAs: a new object after each change."""
        self._now_seconds = now_seconds

    def check(self, peer: Peer) -> tuple[TrustedCas, float]:
        """Return by which CAs this peer is trusted, and until when, in seconds since the Unix epoch.

        AuthenticationError: it is not, or no longer, trusted. The leaf's expiry is not checked.
        """
        trust, judged = self.trust(), peer.last_check
        if judged is None or judged.trust is not trust:
            judged = peer.last_check = _judge(peer.tls, trust)
        if judged.refusal is not None:
            refuse(*judged.refusal)
        if self._now_seconds() >= judged.until_seconds:
            detail = "the CA of its certificate was removed, or expired, while its connection was open"
            raise AuthenticationError(AuthFailure.CERTIFICATE_UNTRUSTED, detail)
        return trust, judged.until_seconds


def _judge(tls: ssl.SSLObject, trust: TrustedCas) -> _PeerCheck:
    # A public method of SSLObject from Python 3.13 on; None without a client certificate.
    chain = tls._sslobj.get_verified_chain() or ()  # type: ignore[attr-defined]  # noqa: SLF001  exists since 3.10
    try:
        leaf, *issuers = [x509.load_der_x509_certificate(certificate.public_bytes(_DER)) for certificate in chain]
        if (fault := find_leaf_fault(leaf)) is not None:
            name = read_certificate(leaf.public_bytes(Encoding.DER), b"").name
            return _PeerCheck(trust, 0.0, (AuthFailure.CERTIFICATE_PURPOSE, f"{name!r}: {fault}"))
        return _PeerCheck(trust, trust.find_end_seconds(issuers))
    except (UnsupportedAlgorithm, *UNREADABLE) as error:
        return _PeerCheck(trust, 0.0, (AuthFailure.CERTIFICATE_AMBIGUOUS, f"cannot be read: {error}"))


def _digest_identity(certificate: x509.Certificate) -> bytes:
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return sha256(certificate.subject.public_bytes() + key).digest()


def _read_expiry_seconds(certificate: x509.Certificate) -> float:
    return certificate.not_valid_after_utc.timestamp()
