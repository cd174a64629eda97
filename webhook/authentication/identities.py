"""Which certificate may come with which token, and as whom: the identity tuples. How they are read: `identity_file`."""

from dataclasses import dataclass
from enum import StrEnum

SPIFFE = "spiffe://"


class Role(StrEnum):
    """What a caller may do: `apiserver` asks for reviews, `reporter` tells outcomes."""

    APISERVER = "apiserver"
    REPORTER = "reporter"


class CertificateField(StrEnum):
    """Which name of the certificate is compared."""

    COMMON_NAME = "commonName"
    URI = "uri"
    DNS_NAME = "dnsName"
    COMMON_NAME_IS_ISSUER = "commonNameIsIssuer"


class ClientIdSource(StrEnum):
    """Where the client id of audit and metrics comes from."""

    CLAIM = "claim"
    SUBJECT = "subject"
    ISSUER = "issuer"
    COMMON_NAME = "commonName"


@dataclass(frozen=True, slots=True)
class Proxy:
    """Who may say which certificate it was shown: a hop before us, known by its own certificate alone."""

    certificate_field: CertificateField
    certificate_name: str


@dataclass(frozen=True, slots=True)
class Identity:
    """One tuple: a caller is this one if certificate and token both fit."""

    role: Role
    certificate_field: CertificateField
    certificate_name: str
    """Empty under commonNameIsIssuer."""
    issuer: str | None
    """None only under commonNameIsIssuer: the certificate then says which issuer it must be."""
    audience: str
    subject: str
    """Exact, or a prefix with one trailing `*`."""
    client_id_source: ClientIdSource
    client_id_claim: str = ""

    def subject_fits(self, subject: str) -> bool:
        if self.subject.endswith("*"):
            return subject.startswith(self.subject[:-1])
        return subject == self.subject


@dataclass(frozen=True, slots=True)
class Identities:
    """What the file of identities holds."""

    callers: tuple[Identity, ...]
    proxies: tuple[Proxy, ...] = ()
