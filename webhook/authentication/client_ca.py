"""Client CAs from a PEM file: a CA that cannot sign client certificates is reported when the file is read."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from webhook.authentication.certificate_errors import find_ca_fault, find_malformed_extension
from webhook.authentication.certificate_identity import UNREADABLE
from webhook.authentication.certificates.weak_rsa_keys import find_weakness
from webhook.core.plain_text import escape_line
from webhook.errors import UserError

_REMEDY = "give the CA that issues the clients' certificates, not one of these"
REISSUE_REMEDY = "issue it anew with valid extensions"
_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


def parse_certificates(path: Path, content: bytes) -> list[x509.Certificate]:
    """Return all certificates of a PEM file; UserError if there is none, or if one cannot be read."""
    try:
        return x509.load_pem_x509_certificates(content)
    except UNREADABLE:
        raise UserError(f"{path}: holds no certificate in PEM", "give a file with BEGIN CERTIFICATE blocks") from None


def parse_authorities(path: Path, content: bytes, *, may_have_expired: bool) -> list[x509.Certificate]:
    """Return all CAs of a PEM file; UserError if one is not a CA, or if all have expired and must not have."""
    authorities = parse_certificates(path, content)
    for number, authority in enumerate(authorities, 1):
        if (malformed := find_malformed_extension(authority)) is not None:
            raise UserError(
                f"{path}: certificate {number} in it, {format_subject(authority)}: {malformed}", REISSUE_REMEDY
            )
        try:
            fault = _find_fault(authority) or find_ca_fault(authority)
        except (UnsupportedAlgorithm, *UNREADABLE) as error:
            raise UserError(f"{path}: certificate {number} in it cannot be read: {error}", _REMEDY) from None
        if fault is not None:
            raise UserError(f"{path}: {format_subject(authority)} {fault}", _REMEDY)
    now = datetime.now(UTC)
    if not may_have_expired and all(authority.not_valid_after_utc <= now for authority in authorities):
        raise UserError(f"{path}: all its CAs have expired, so no client can be authenticated", "give a current CA")
    return authorities


def format_subject(certificate: x509.Certificate) -> str:
    """Return the subject for messages: OpenSSL and the parser accept any bytes in it."""
    try:
        return escape_line(certificate.subject.rfc4514_string()) or "without a subject"
    except UNREADABLE:
        return "whose subject cannot be read"


def _find_fault(certificate: x509.Certificate) -> str | None:
    key = certificate.public_key()  # raises for unknown kinds
    constraints, usage = find_extension(certificate, x509.BasicConstraints), find_extension(certificate, x509.KeyUsage)
    if constraints is None or not constraints.ca:
        return "is not a CA certificate"
    if usage is not None and not usage.key_cert_sign:
        return "is not made to sign certificates (no key usage keyCertSign)"
    return f"has {weak}" if (weak := find_weakness(key)) is not None else None


def find_extension(certificate: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    """Return the value of a certificate's extension; None if it lacks that."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
