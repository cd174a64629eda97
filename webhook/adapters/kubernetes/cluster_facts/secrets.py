"""Certificates and tokens in Podgate's Secrets, and the serving certificate that a server presents.

The library of certificates is imported where one is read: `podgate explain` reads none.
"""

import base64
import binascii
import json
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from webhook.core.checks.facts import CertificateFact, Json, TrustFact
from webhook.core.document.configmap import NAMESPACE
from webhook.core.json_depth import bound_depth

if TYPE_CHECKING:
    from cryptography import x509

_CONNECT_SECONDS = 5
_READ_BYTES = 65_536


def fetch_certificate(url: str) -> bytes:
    """Return the certificate, DER; OSError.

    The client disconnects before it would have to present a certificate: a refused handshake would raise an alert.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    received, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(received, to_server)
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 443), timeout=_CONNECT_SECONDS) as connection:
        while (certificate := _continue_handshake(client)) is None:
            connection.sendall(to_server.read())
            if not (data := connection.recv(_READ_BYTES)):
                raise ConnectionResetError("the server ended the handshake")
            received.write(data)
    return certificate


def _continue_handshake(client: ssl.SSLObject) -> bytes | None:
    """Continue the handshake; return the server's certificate once it is received."""
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return None
    return client.getpeercert(binary_form=True)


SERVING, _SCHEDULER = "podgate-tls", "podgate-scheduler-tls"
SECRETS = (SERVING, "podgate-apiserver", "podgate-extender-tls", _SCHEDULER)
_CERTIFICATE, _TOKEN, _SERVING_CA = "tls.crt", "token", "serving-ca.crt"
_SEGMENTS = 3
Chain = Sequence["x509.Certificate"]


def list_secret_facts(name: str, data: Mapping[str, str]) -> tuple[CertificateFact, ...]:
    """Return the certificate and the token in a Secret; either is left out if it cannot be decoded."""
    place = f"Secret {NAMESPACE}/{name}"
    found = [_make_certificate_fact(f"{place} {_CERTIFICATE}", leaf) for leaf in parse_chain(data)[:1]]
    token = _parse_claims(_decode(data.get(_TOKEN, "")))
    expires = token.get("exp")
    if isinstance(expires, int | float):
        issued = token.get("iat", expires)
        found.append(CertificateFact(f"{place} {_TOKEN}", (), _to_us(issued), _to_us(expires)))
    return tuple(found)


def list_scheduler_cas(secrets: Mapping[str, Mapping[str, str]]) -> tuple[CertificateFact, ...]:
    """Return the CAs by which kube-scheduler verifies the extender; cert-manager's Secret has one key for all CAs."""
    data = secrets.get(_SCHEDULER, {})
    bundle = _decode(data.get(_SERVING_CA, "") or data.get("ca.crt", ""))
    return tuple(
        _make_certificate_fact(f"Secret {NAMESPACE}/{_SCHEDULER} {_SERVING_CA}", ca)
        for ca in _parse_certificates(bundle)
    )


def parse_chain(data: Mapping[str, str]) -> Chain:
    """Return the certificate in a Secret, followed by its intermediates; empty if there is none."""
    return _parse_certificates(_decode(data.get(_CERTIFICATE, "")))


def fetch_chain(url: str) -> Chain:
    """Return the certificate that a server outside the cluster presents; OSError."""
    from cryptography import x509  # noqa: PLC0415  see above

    return [x509.load_der_x509_certificate(fetch_certificate(url))]


def make_served_fact(url: str, chain: Chain) -> CertificateFact:
    parts = urlsplit(url)
    return _make_certificate_fact(f"certificate at {parts.hostname}:{parts.port or 443}", chain[0])


def list_trust_facts(webhooks: Iterable[tuple[str, Json]], chain: Chain) -> list[TrustFact]:
    """Verify the serving certificate by each caBundle; without one, only whether the bundle holds a certificate."""
    known: dict[str, str] = {}
    found = []
    for name, webhook in webhooks:
        bundle = _read_bundle(webhook)
        if bundle not in known:
            known[bundle] = _find_error(_parse_certificates(_decode(bundle)), chain)
        found.append(TrustFact(name, webhook["name"], known[bundle]))
    return found


def _read_bundle(webhook: Json) -> str:
    return str(webhook["clientConfig"].get("caBundle") or "")


def _find_error(trusted: Chain, chain: Chain) -> str:
    if not trusted:
        return "holds no certificate: no call can succeed"
    if not chain:
        return ""
    current, rest = chain[0], list(chain[1:])
    while True:
        if current in trusted or any(_is_issued_by(current, ca) for ca in trusted):
            return ""
        issuer = next((ca for ca in rest if _is_issued_by(current, ca)), None)
        if issuer is None:
            return f"does not verify the serving certificate, which {chain[0].issuer.rfc4514_string()} has signed"
        rest.remove(issuer)
        current = issuer


def _is_issued_by(certificate: "x509.Certificate", issuer: "x509.Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  see above

    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _make_certificate_fact(place: str, certificate: "x509.Certificate") -> CertificateFact:
    from cryptography import x509  # noqa: PLC0415  see above

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        listed = tuple(str(name.value) for name in names)
    except (x509.ExtensionNotFound, ValueError):
        listed = ()
    start, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    return CertificateFact(place, listed, _to_us(start), _to_us(end))


def _parse_certificates(text: bytes) -> Chain:
    """Return certificates whose names can be read; none of others."""
    from cryptography import x509  # noqa: PLC0415  see above

    try:
        found = x509.load_pem_x509_certificates(text)
        for certificate in found:
            certificate.subject, certificate.issuer  # noqa: B018  they are read only now
    except (ValueError, TypeError):
        return ()
    return found


def _parse_claims(token: bytes) -> Json:
    segments = token.strip().split(b".")
    if len(segments) != _SEGMENTS:
        return {}
    try:
        text = base64.urlsafe_b64decode(segments[1] + b"=" * (-len(segments[1]) % 4))
        claims = bound_depth(json.loads(text))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _to_us(seconds: float) -> int:
    return int(seconds * 1_000_000)
