"""Certificate authority: creates a CA and issues serving and client certificates, in memory."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from certs.errors import CertsError

BACKDATED = timedelta(hours=1)
"""Clocks differ: a verifier whose clock is behind would reject a certificate that is valid only from now on."""

CA_LIFETIME = timedelta(days=1825)
LEAF_LIFETIME = timedelta(days=30)
_OF_EACH_LEAF = frozenset(
    {
        *(ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE),
        *(ExtensionOID.SUBJECT_KEY_IDENTIFIER, ExtensionOID.AUTHORITY_KEY_IDENTIFIER),
        ExtensionOID.PRECERT_SIGNED_CERTIFICATE_TIMESTAMPS,
    }
)
"""Extensions that follow from a leaf's own key and its CA: a renewed one does not keep the former ones."""
_COMMON_NAME_LENGTH_MAX = 64  # RFC 5280, ub-common-name
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[!-~]+")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that signs leaf certificates only (pathlen 0)."""

    key_pair: KeyPair

    @classmethod
    def create(
        cls, common_name: str = "podgate-ca", lifetime: timedelta = CA_LIFETIME, now: datetime | None = None
    ) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        # Two generations of one CA are in a bundle together while it rotates: their names must differ.
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        name = _build_subject(f"{common_name}-{identifier.digest.hex()[:8]}")
        start = now or datetime.now(UTC)
        builder = _create_builder(name, key, start, start + lifetime).issuer_name(name)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_build_key_usage(signs_certificates=True), critical=True)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        return cls(KeyPair(builder.sign(key, hashes.SHA256()), key))

    @classmethod
    def from_key_pair(cls, key_pair: KeyPair) -> "Authority":
        """Return an authority that signs with this key pair; CertsError if verifiers would not accept it as a CA."""
        certificate = key_pair.certificate
        if certificate.public_key() != key_pair.key.public_key():
            raise CertsError(
                f"the CA's certificate ({certificate.subject.rfc4514_string()}) and its key do not match",
                "give the key that was made with this certificate",
            )
        if not may_sign(certificate):
            raise CertsError(
                f"{certificate.subject.rfc4514_string()} is not a CA certificate",
                "give a certificate with basicConstraints CA:TRUE, and keyCertSign where it has a keyUsage",
            )
        return cls(key_pair)

    def issue_server(
        self,
        name: str,
        sans: tuple[x509.GeneralName, ...],
        lifetime: timedelta = LEAF_LIFETIME,
        now: datetime | None = None,
    ) -> KeyPair:
        return self._issue(name, sans, ExtendedKeyUsageOID.SERVER_AUTH, lifetime, now)

    def issue_client(
        self,
        common_name: str,
        uri: str | None = None,
        lifetime: timedelta = LEAF_LIFETIME,
        now: datetime | None = None,
    ) -> KeyPair:
        if not 0 < len(common_name) <= _COMMON_NAME_LENGTH_MAX:
            raise CertsError(
                f"the common name {common_name!r} has {len(common_name)} characters",
                f"choose a name of 1 to {_COMMON_NAME_LENGTH_MAX} characters",
            )
        sans = (x509.UniformResourceIdentifier(uri),) if uri else ()
        return self._issue(common_name, sans, ExtendedKeyUsageOID.CLIENT_AUTH, lifetime, now)

    def renew(self, former: x509.Certificate, lifetime: timedelta, now: datetime) -> KeyPair:
        """Issue a leaf with a new key, and with the subject and extensions of another: names, usages and all others."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._start_leaf(former.subject, key, lifetime, now)
        for extension in former.extensions:
            if extension.oid not in _OF_EACH_LEAF:
                builder = builder.add_extension(extension.value, critical=extension.critical)
        return self._sign(builder, key)

    def _issue(
        self,
        name: str,
        sans: tuple[x509.GeneralName, ...],
        usage: x509.ObjectIdentifier,
        lifetime: timedelta,
        now: datetime | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        # A DNS name may be longer than a common name; the subject is then empty, the SANs critical (RFC 5280).
        subject = _build_subject(name) if len(name) <= _COMMON_NAME_LENGTH_MAX else x509.Name([])
        builder = self._start_leaf(subject, key, lifetime, now or datetime.now(UTC))
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=not list(subject))
        return self._sign(builder, key)

    def _start_leaf(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta, start: datetime
    ) -> x509.CertificateBuilder:
        ca = self.key_pair.certificate
        if ca.not_valid_after_utc <= start:
            raise CertsError(
                f"the CA {ca.subject.rfc4514_string()} expired at {ca.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
                "make a new CA in another folder, and distribute it to servers and clients before its certificates",
            )
        end = min(start + lifetime, ca.not_valid_after_utc)
        builder = _create_builder(subject, key, start, end).issuer_name(ca.subject)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_build_key_usage(signs_certificates=False), critical=True)
        return builder.add_extension(_build_issuer_identifier(ca), critical=False)

    def _sign(self, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> KeyPair:
        return KeyPair(builder.sign(self.key_pair.key, hashes.SHA256()), key)


def may_sign(certificate: x509.Certificate) -> bool:
    """Return whether verifiers accept it as an issuer."""
    try:
        if not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as missing:
        return missing.oid == x509.KeyUsage.oid  # an absent extension forbids nothing


def list_server_names(name: str) -> tuple[x509.GeneralName, ...]:
    """Return the SANs for a name; for the DNS name of a Service also its shorter and longer forms."""
    parts = name.split(".")
    if len(parts) == 3 and parts[2] == "svc":  # noqa: PLR2004 - service, namespace, svc
        service, namespace, _ = parts
        forms = (name, f"{name}.cluster.local", f"{service}.{namespace}", service)
        return tuple(map(parse_san, forms))
    return (parse_san(name),)


def parse_san(text: str) -> x509.GeneralName:
    """Read `dns:NAME`, `ip:ADDRESS`, or either without its prefix."""
    kind, _, value = text.partition(":") if text.startswith(("dns:", "ip:")) else ("", "", text)
    address = _parse_address(value)
    if kind != "dns" and address is not None:
        return x509.IPAddress(address)
    labels = value.removeprefix("*.").split(".")
    if kind == "ip" or not value.isascii() or not all(part.replace("-", "").isalnum() for part in labels):
        raise CertsError(f"{text!r} is not a valid SAN", "write dns:NAME (ASCII) or ip:ADDRESS")
    return x509.DNSName(value)


def check_uri(text: str) -> str:
    """Return `text` if it can be the URI SAN of a client; CertsError if it is not an absolute URI."""
    if not _URI.fullmatch(text):
        raise CertsError(f"{text!r} is not an absolute URI", "write SCHEME://HOST/PATH (ASCII)")
    return text


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    for family in (IPv4Address, IPv6Address):
        try:
            return family(text)
        except ValueError:
            continue
    return None


def _build_subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _create_builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _build_key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _build_issuer_identifier(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return the identifier that the CA carries: a foreign CA may have computed it differently."""
    try:
        own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key())  # type: ignore[arg-type]  # a CA key signs
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
