"""Certificates and keys in PEM: refused with one remedy, or good for OpenSSL and for the verification of callers.

An input without PEM is the content of one block.
"""

import re
import ssl
import warnings
from base64 import encodebytes
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning

from certs.authority import Authority
from tests.fuzz.catalogue import Form
from tests.fuzz.oracles import check_message
from tests.harness.identity import der, make_unreadable
from webhook.authentication.certificate_identity import UNREADABLE, read_certificate
from webhook.authentication.chain_verifier import ClientChainVerifier, ForeignCertificateError, find_obstacle
from webhook.authentication.client_ca import parse_authorities
from webhook.errors import AuthenticationError, UserError
from webhook.policy_in_force.policy_signatures import parse_public_keys

FORM = Form.BYTES
WORDS = (
    "-----BEGIN CERTIFICATE-----\n",
    "-----END CERTIFICATE-----\n",
    "-----BEGIN PUBLIC KEY-----\n",
    "PRIVATE KEY",
    "=\n",
)
_PATH = Path("ca.crt")
_OIDS = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage, x509.SubjectAlternativeName)
_NOW_SECONDS = 1_800_000_000.0


def list_seeds() -> list[bytes]:
    authority = Authority.create("callers")
    client = authority.issue_client("kube-apiserver")
    key = ed25519.Ed25519PrivateKey.from_private_bytes(b"podgate, a key that fuzzing uses").public_key()
    ca_pem = authority.key_pair.certificate.public_bytes(Encoding.PEM)
    ca_der = authority.key_pair.certificate.public_bytes(Encoding.DER)
    public = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    odd = [each.replace(b"\x06\x03\x55\x04\x03\x0c", b"\x06\x03\x55\x04\x03\x03") for each in (ca_der, der(client))]
    words = [b"\x06" + bytes([len(oid)]) + oid for oid in _list_object_ids()]
    return [
        ca_pem,
        ca_der,
        der(client),
        ca_pem + ca_pem,
        public,
        ca_pem + public,
        *make_unreadable(authority).values(),
        *odd,
        *words,
    ]


def _list_object_ids() -> list[bytes]:
    """Return the object identifiers of extensions, as DER has them: 2.5.29.N."""
    return [bytes([0x55, 0x1D, int(kind.oid.dotted_string.rpartition(".")[2])]) for kind in _OIDS]


def check(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # of what a later version will refuse
        _check(data)


def _check(data: bytes) -> None:
    content = data if b"-----BEGIN" in data else wrap(data)
    _check_keys(content)
    try:
        authorities = parse_authorities(_PATH, content, may_have_expired=True)
    except UserError as error:
        _check_refusal(error, f"{_PATH}: ")
        _check_leaf(content)
        return
    assert authorities
    encoded = [authority.public_bytes(Encoding.DER) for authority in authorities]
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=b"".join(encoded))
    for authority in authorities:
        obstacle = find_obstacle(authority)
        assert obstacle is None or obstacle
    verifier = ClientChainVerifier(authorities)
    for each in encoded:
        try:
            verifier.check(each, _NOW_SECONDS)
        except ForeignCertificateError:
            continue
        raise AssertionError("a CA is no client")


def wrap(content: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + encodebytes(content) + b"-----END CERTIFICATE-----\n"


def _check_keys(content: bytes) -> None:
    try:
        keys = parse_public_keys(content, "keys.pem")
    except UserError as error:
        _check_refusal(error, "keys.pem: ")
        return
    assert keys
    assert not re.search(rb"-----BEGIN [A-Z0-9 ]*PRIVATE", content)


def _check_refusal(error: UserError, beginning: str) -> None:
    assert str(error).startswith(beginning)
    assert error.remedy
    check_message(str(error))


def _check_leaf(content: bytes) -> None:
    """Demand that a caller's certificate is read, or refused as the documentation says; that none verifies here."""
    try:
        leaf = x509.load_pem_x509_certificate(content).public_bytes(Encoding.DER)
    except UNREADABLE:
        return
    try:
        identity = read_certificate(leaf, sha256(leaf).digest())
    except AuthenticationError as error:
        assert error.status == 401
        return
    assert identity.spiffe_id is None or identity.common_name is None
    assert all(name == name.lower() for name in identity.dns_names)
    assert isinstance(identity.expires_at_seconds, float)
    try:
        _stranger.check(leaf, max(0.0, identity.expires_at_seconds - 1))
    except ForeignCertificateError:
        return
    raise AssertionError("a certificate of another CA")


_stranger = ClientChainVerifier([Authority.create("stranger").key_pair.certificate])
