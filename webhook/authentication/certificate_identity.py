"""CertificateIdentity: the names in a client certificate whose chain has already been verified."""

from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

from webhook.authentication.identities import SPIFFE, CertificateField
from webhook.authentication.reasons import AuthFailure, refuse

UNREADABLE = (ValueError, TypeError, x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType)
"""Raised by cryptography for certificates that OpenSSL accepts."""


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """The certificate's part of an identity."""

    digest: bytes
    """SHA-256 of the DER form."""
    common_name: str | None
    """None if there is a SPIFFE ID, which is then the only name; the CN is free text."""
    spiffe_id: str | None
    dns_names: frozenset[str]
    expires_at_seconds: float
    """Seconds since the Unix epoch."""

    @property
    def name(self) -> str:
        """Name for display."""
        return self.spiffe_id or self.common_name or ", ".join(sorted(self.dns_names))

    def has_name(self, field: CertificateField, name: str) -> bool:
        """Return whether `name` is in that field. For commonNameIsIssuer, `name` is the token's issuer."""
        match field:
            case CertificateField.COMMON_NAME | CertificateField.COMMON_NAME_IS_ISSUER:
                return self.common_name == name
            case CertificateField.URI:
                return self.spiffe_id == name
            case CertificateField.DNS_NAME:
                return name in self.dns_names


def read_certificate(der: bytes, digest: bytes) -> CertificateIdentity:
    """Return the names in a certificate; AuthenticationError if they are ambiguous."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        common_names = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        uris, dns_names = _read_alternative_names(certificate)
    except UNREADABLE as error:
        refuse(AuthFailure.CERTIFICATE_AMBIGUOUS, f"cannot be read: {error}")
    spiffe_ids = [uri for uri in uris if uri.startswith(SPIFFE)]
    if len(spiffe_ids) > 1 or (spiffe_ids and len(uris) > 1):
        refuse(AuthFailure.CERTIFICATE_AMBIGUOUS, f"{len(uris)} URI names: a SPIFFE certificate has exactly one")
    if len(common_names) > 1:
        refuse(AuthFailure.CERTIFICATE_AMBIGUOUS, f"{len(common_names)} common names")
    return CertificateIdentity(
        digest=digest,
        common_name=common_names[0] if common_names and not spiffe_ids else None,
        spiffe_id=spiffe_ids[0] if spiffe_ids else None,
        dns_names=frozenset(name.lower() for name in dns_names),
        expires_at_seconds=certificate.not_valid_after_utc.timestamp(),
    )


def _read_alternative_names(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], []
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return uris, names.get_values_for_type(x509.DNSName)
