"""Descriptions of certificates: names, usages, validity, and the given CA that signed them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import may_sign
from certs.lifetimes import compute_renewal

_USAGES = {ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth", ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth"}
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Description:
    """Description of one certificate."""

    subject: str
    sans: tuple[str, ...]
    issuer: str
    serial: str
    fingerprint_sha256: str
    is_ca: bool
    usages: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    days_left: float
    """Negative once it has expired."""
    is_expired: bool
    is_early: bool
    """Not valid yet."""
    renewal: datetime | None
    """When a rotation renews it; None for a CA."""
    verified_by: str | None
    """Subject of the given CA that signed it, None if none of them did."""


def describe(certificate: x509.Certificate, issuers: Sequence[x509.Certificate], now: datetime) -> Description:
    signer = next((issuer for issuer in issuers if is_signed_by(certificate, issuer)), None)
    return Description(
        subject=certificate.subject.rfc4514_string(),
        sans=_list_sans(certificate),
        issuer=certificate.issuer.rfc4514_string(),
        serial=f"{certificate.serial_number:x}",
        fingerprint_sha256=certificate.fingerprint(hashes.SHA256()).hex(),
        is_ca=may_sign(certificate),
        usages=_list_usages(certificate),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        days_left=round((certificate.not_valid_after_utc - now).total_seconds() / _DAY_SECONDS, 2),
        is_expired=certificate.not_valid_after_utc <= now,
        is_early=now < certificate.not_valid_before_utc,
        renewal=None if may_sign(certificate) else compute_renewal(certificate),
        verified_by=signer.subject.rfc4514_string() if signer else None,
    )


def is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether `issuer` is a CA and has signed `certificate`. Validity periods are not checked."""
    try:
        certificate.verify_directly_issued_by(issuer)
        return may_sign(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False


def _list_sans(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(_format_name(name) for name in names)


def _format_name(name: x509.GeneralName) -> str:
    match name:
        case x509.DNSName():
            return f"dns:{name.value}"
        case x509.IPAddress():
            return f"ip:{name.value}"
        case x509.UniformResourceIdentifier():
            return f"uri:{name.value}"
    return f"{type(name).__name__}:{name.value}"


def _list_usages(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(_USAGES.get(usage, usage.dotted_string) for usage in usages)
