"""Identities for tests: a CA, leaf certificates, signing keys and tokens, valid and invalid."""

import base64
import json
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Authority, KeyPair, list_server_names
from certs.files import write_key_pair
from certs.token_issuer import PrivateKey, build_jwk, format_key_set, new_key, sign
from webhook.authentication.identities import Identities
from webhook.authentication.identity_file import parse_identities
from webhook.tls.context import TlsPaths

T = TypeVar("T")
AUDIENCE = "podgate"
ISSUER = "kube-apiserver"
SUBJECT = "kube-apiserver"
IDENTITIES = f"""
- role: apiserver
  certificate: {{commonName: kube-apiserver}}
  issuer: {ISSUER}
  audience: {AUDIENCE}
  subject: {SUBJECT}
- role: reporter
  certificate: {{commonName: prober}}
  issuer: prober
  audience: {AUDIENCE}
  subject: prober-*
  clientId: {{claim: client_id}}
"""


@dataclass(frozen=True)
class Signer:
    """A token issuer: one key. `token()` is good for the first of IDENTITIES; claims given replace, None removes."""

    algorithm: str = "ES256"
    issuer: str = ISSUER
    subject: str = SUBJECT
    kid: str | None = None
    key: PrivateKey = field(default_factory=lambda: new_key("ES256"))

    def claims(self, now: float | None = None, **changed: Any) -> dict[str, Any]:
        issued = int(now if now is not None else datetime.now(UTC).timestamp())
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": self.subject, "iat": issued, "exp": issued + 3600}
        return {name: value for name, value in {**claims, **changed}.items() if value is not None}

    def token(self, now: float | None = None, **changed: Any) -> str:
        return sign(self.key, self.claims(now, **changed), self.algorithm, self.kid)

    def jwk(self) -> dict[str, str]:
        return build_jwk(self.key.public_key(), self.algorithm, self.kid)


def signer(algorithm: str = "ES256", **named: Any) -> Signer:
    return Signer(algorithm=algorithm, key=new_key(algorithm), **named)


def jwks(*signers: Signer) -> str:
    return format_key_set([signer.jwk() for signer in signers])


def der(credentials: KeyPair) -> bytes:
    return credentials.certificate.public_bytes(Encoding.DER)


def make_unreadable(authority: Authority) -> dict[str, bytes]:
    """Return certificates for a kube-apiserver with oddities that OpenSSL accepts, in DER, by oddity."""
    name, one_name = x509.oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("3003820161")
    x400_address, other = bytes.fromhex("3002a300"), x509.ObjectIdentifier("2.5.29.117")
    plain, twice = _odd(authority), _odd(authority, (name, one_name), (other, one_name))
    return {
        "a name of a kind that nobody uses": _odd(authority, (name, x400_address)),
        "an extension twice": twice.replace(bytes.fromhex("0603551d75"), bytes.fromhex("0603551d11")),
        "a version that there is not": plain.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020105")),
    }


def _odd(authority: Authority, *extensions: tuple[x509.ObjectIdentifier, bytes]) -> bytes:
    like = authority.issue_client("kube-apiserver")
    builder = (
        x509.CertificateBuilder()
        .subject_name(like.certificate.subject)
        .issuer_name(like.certificate.issuer)
        .public_key(like.certificate.public_key())
        .serial_number(7)
        .not_valid_before(like.certificate.not_valid_before_utc)
        .not_valid_after(like.certificate.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    for oid, value in extensions:
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, value), critical=False)
    return builder.sign(authority.key_pair.key, hashes.SHA256()).public_bytes(Encoding.DER)


@dataclass
class Steady(Generic[T]):
    """A Kept value that tests change."""

    value: T
    generation: int = 1

    def set(self, value: T) -> None:
        self.value = value
        self.generation += 1


def identities(text: str = IDENTITIES) -> Steady[Identities]:
    return Steady(parse_identities(text.encode(), "identities.yaml"))


def segment(value: Any) -> str:
    """Encode one segment of a token: bytes as they are, all else as JSON."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass(frozen=True)
class Pki:
    """A CA, a server certificate for localhost and 127.0.0.1, and client certificates on request, in files."""

    folder: Path
    authority: Authority

    @classmethod
    def create(cls, folder: Path, name: str = "test-ca") -> "Pki":
        pki = cls(folder, Authority.create(name))
        write_key_pair(pki.authority.key_pair, folder / "ca.crt", folder / "ca.key")
        pki.renew_server()
        return pki

    @property
    def paths(self) -> TlsPaths:
        return TlsPaths(self.folder / "server.crt", self.folder / "server.key", self.folder / "ca.crt")

    def renew_server(self) -> KeyPair:
        leaf = self.authority.issue_server(
            "localhost", (*list_server_names("localhost"), *list_server_names("127.0.0.1"))
        )
        write_key_pair(leaf, self.paths.certificate, self.paths.key, replace=True)
        return leaf

    def client(
        self, common_name: str = "kube-apiserver", *, server_only: bool = False, expired: bool = False
    ) -> KeyPair:
        issued_at = datetime.now(UTC) - timedelta(days=2 if expired else 0)
        if server_only:
            return self.authority.issue_server(common_name, ())
        return self.authority.issue_client(common_name, lifetime=timedelta(days=1), now=issued_at)

    def context(self, client: KeyPair | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts this authority and presents `client`'s certificate."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if client is not None:
            context.load_cert_chain(*self.client_files(client))
        return context

    def client_files(self, client: KeyPair) -> tuple[Path, Path]:
        """Return the files of a client's certificate and key."""
        stem = f"{client.certificate.serial_number:x}"
        crt, key = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        if not crt.exists():
            write_key_pair(client, crt, key)
        return crt, key
