"""The cluster's CA: a client certificate for each user, a serving certificate, the service account key."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.authority import Authority, KeyPair, list_server_names, parse_san
from certs.files import write, write_key_pair
from certs.token_issuer import encode_key

_LIFETIME = timedelta(days=30)


@dataclass(frozen=True)
class ClusterAuthority:
    """The CA inside the cluster, which is not the CA that Podgate trusts."""

    folder: Path
    authority: Authority

    @classmethod
    def create(cls, folder: Path) -> "ClusterAuthority":
        authority = Authority.create("kubernetes")
        write_key_pair(authority.key_pair, folder / "ca.crt", folder / "ca.key")
        names = (
            *list_server_names("localhost"),
            *list_server_names("127.0.0.1"),
            *list_server_names("kubernetes.default.svc"),
        )
        server = authority.issue_server("kube-apiserver", (*names, parse_san("ip:10.0.0.1")))
        write_key_pair(server, folder / "apiserver.crt", folder / "apiserver.key")
        service_account_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        write(folder / "sa.key", encode_key(service_account_key), secret=True)
        public = service_account_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        write(folder / "sa.pub", public, secret=False)
        return cls(folder, authority)

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    def user(self, name: str, *groups: str) -> tuple[Path, Path]:
        """Return certificate and key of a user: CN is the name, each O a group."""
        stem = "-".join((name, *groups)).replace(":", "-").replace("/", "-")
        certificate, key = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        if not certificate.exists():
            write_key_pair(self._issue(name, groups), certificate, key)
        return certificate, key

    def _issue(self, name: str, groups: tuple[str, ...]) -> KeyPair:
        """Sign a certificate whose subject has O, which certs.authority does not support."""
        ca = self.authority.key_pair
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([*subject, x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(ca.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        )
        return KeyPair(builder.sign(ca.key, hashes.SHA256()), key)
