"""A server behind a proxy: its files, the proxy and its callers, and the headers of proxies."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import KeyPair
from tests.harness.identity import IDENTITIES, Pki, der
from tests.harness.server_process import POLICY, Files

HEADER = "X-Forwarded-Client-Cert"
PROXY = "edge-proxy"
BEHIND_A_PROXY = f"""{IDENTITIES}
- role: proxy
  certificate: {{commonName: {PROXY}}}
"""


def pem(credentials: KeyPair) -> str:
    return credentials.certificate.public_bytes(Encoding.PEM).decode()


def encode(text: str) -> str:
    """Encode as Envoy and nginx do."""
    return quote(text, safe="")


def digest(credentials: KeyPair) -> str:
    return sha256(der(credentials)).hexdigest()


def format_forwarded(caller: KeyPair) -> str:
    """Return Envoy's header value with `cert: true`."""
    return f'Hash={digest(caller)};Cert="{encode(pem(caller))}"'


@dataclass
class Forwarding:
    """A server's files, the proxy before it, and the authority of the callers before that one."""

    files: Files
    proxy: KeyPair
    callers: Pki
    caller: KeyPair

    @classmethod
    def create(cls, folder: Path, policy: str = POLICY) -> "Forwarding":
        files = Files.create(folder, policy)
        (folder / "identities.yaml").write_text(BEHIND_A_PROXY)
        callers = Pki.create(folder / "callers", "callers-ca")
        return cls(files, files.pki.client(PROXY), callers, callers.client())

    @property
    def arguments(self) -> Sequence[str]:
        return ("--client-identity", "forwarded", "--forwarded-ca", str(self.callers.folder / "ca.crt"))
