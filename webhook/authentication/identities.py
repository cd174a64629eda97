"""Identities: permitted pairs of certificate and token, with the caller's role. `identity_file` reads them."""

from dataclasses import dataclass
from enum import StrEnum

SPIFFE = "spiffe://"


class Role(StrEnum):
    """Permission of a caller: `apiserver` sends reviews, `reporter` reports outcomes, `scheduler` asks for nodes."""

    APISERVER = "apiserver"
    REPORTER = "reporter"
    SCHEDULER = "scheduler"


class CertificateField(StrEnum):
    """The name in the certificate that is compared."""

    COMMON_NAME = "commonName"
    URI = "uri"
    DNS_NAME = "dnsName"
    COMMON_NAME_IS_ISSUER = "commonNameIsIssuer"


class ClientIdSource(StrEnum):
    """Source of the client id in audit annotations and metrics."""

    CLAIM = "claim"
    SUBJECT = "subject"
    ISSUER = "issuer"
    COMMON_NAME = "commonName"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that may forward client certificates, identified by its own certificate alone."""

    certificate_field: CertificateField
    certificate_name: str


@dataclass(frozen=True, slots=True)
class Identity:
    """One identity: a caller has it if both its certificate and its token match."""

    role: Role
    certificate_field: CertificateField
    certificate_name: str
    """Empty under commonNameIsIssuer."""
    issuer: str | None
    """None only under commonNameIsIssuer: the certificate's common name is then the issuer."""
    audience: str
    subject: str
    """Exact, or a prefix followed by `*`."""
    client_id_source: ClientIdSource
    client_id_claim: str = ""

    def matches_subject(self, subject: str) -> bool:
        if self.subject.endswith("*"):
            return subject.startswith(self.subject[:-1])
        return subject == self.subject


@dataclass(frozen=True, slots=True)
class Identities:
    """Content of the identity file."""

    callers: tuple[Identity, ...]
    proxies: tuple[Proxy, ...] = ()
