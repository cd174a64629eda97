"""The CAs of clients in a PEM file: one that could vouch for nobody is named when it is read, not at every call."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from webhook.authentication.certificates.certificate_identity import UNREADABLE
from webhook.authentication.certificates.weak_rsa_keys import weakness
from webhook.errors import UserError

_REMEDY = "give the CA that issues the clients' certificates, not one of these"
_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


def certificates_of(path: Path, content: bytes) -> list[x509.Certificate]:
    """Return all in a PEM file, at least one; UserError."""
    try:
        return x509.load_pem_x509_certificates(content)
    except UNREADABLE:
        raise UserError(f"{path}: holds no certificate in PEM", "give a file with BEGIN CERTIFICATE blocks") from None


def authorities_of(path: Path, content: bytes, *, may_have_expired: bool) -> list[x509.Certificate]:
    """Return all, each of them a CA; UserError, also where all have expired and may not have."""
    authorities = certificates_of(path, content)
    for number, authority in enumerate(authorities, 1):
        try:
            fault = _fault(authority)
        except (UnsupportedAlgorithm, *UNREADABLE) as error:
            raise UserError(f"{path}: certificate {number} in it cannot be read: {error}", _REMEDY) from None
        if fault is not None:
            raise UserError(f"{path}: {authority.subject.rfc4514_string()} {fault}", _REMEDY)
    now = datetime.now(UTC)
    if not may_have_expired and all(authority.not_valid_after_utc <= now for authority in authorities):
        raise UserError(f"{path}: all CAs in it have expired: nobody could call", "give the present one")
    return authorities


def _fault(certificate: x509.Certificate) -> str | None:
    key = certificate.public_key()  # of a kind that we know: else it raises
    constraints, usage = extension(certificate, x509.BasicConstraints), extension(certificate, x509.KeyUsage)
    if constraints is None or not constraints.ca:
        return "is not a CA certificate"
    if usage is not None and not usage.key_cert_sign:
        return "is not made to sign certificates (no key usage keyCertSign)"
    return f"has {weak}" if (weak := weakness(key)) is not None else None


def extension(certificate: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    """Return what a certificate says in one extension, None where it does not have it."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
