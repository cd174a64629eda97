"""Helpers of the `client_ca` tests that other tests use, too."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

KEY = ec.generate_private_key(ec.SECP256R1())


GARBAGE = b"\x01\x02\x03"


CA = x509.BasicConstraints(ca=True, path_length=None)


def authority(*extensions: x509.ExtensionType, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = KEY) -> bytes:
    """Return a self-signed certificate in DER."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")]), datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    builder = builder.serial_number(7)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def make_garbled_extension(oid: x509.ObjectIdentifier) -> x509.ExtensionType:
    return x509.UnrecognizedExtension(oid, GARBAGE)
