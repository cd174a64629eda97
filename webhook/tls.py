"""TLS contexts: TLS 1.3 with client certificates, proved by a handshake before use, replaced when the files change."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from webhook.errors import UserError
from webhook.reloading import Reloading

_FILE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsPaths:
    """Where the serving certificate (leaf first), its key and the CAs of the clients lie. PEM."""

    certificate: Path
    key: Path
    client_ca: Path


@dataclass(frozen=True, slots=True)
class Loaded:
    """A context that works, and until when what it is made of is valid (seconds since the Unix epoch)."""

    context: ssl.SSLContext
    leaf_not_after_seconds: int
    client_ca_not_after_seconds: int
    """Of the first of the clients' CAs to expire."""


class TlsFiles(Reloading[Loaded]):
    """The context in force. A connection keeps the one that it was accepted with: a change disturbs no live one."""

    def __init__(self, paths: TlsPaths, on_failure: Callable[[str], None] = lambda _: None) -> None:
        files = [paths.certificate, paths.key, paths.client_ca]
        super().__init__(files, _FILE_BYTES_MAX, lambda contents: load(paths, contents), on_failure)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self.value.context


def server_context(paths: TlsPaths) -> ssl.SSLContext:
    """Return a context that is known to work; UserError naming the file otherwise."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # a resumed session would bypass a changed trust store; and a handshake costs a third less
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(paths.certificate, paths.key, password="")  # never ask on a terminal for one
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"{paths.certificate} and {paths.key} make no certificate with its key: {_reason(error)}",
            "give a PEM certificate and the key (without a passphrase) that it was issued for",
        ) from None
    try:
        context.load_verify_locations(paths.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"{paths.client_ca}: {_reason(error)}", "give the CAs of the clients in PEM") from None
    _try(context, paths)
    return context


def _try(context: ssl.SSLContext, paths: TlsPaths) -> None:
    """Shake hands in memory, up to where the client has seen the certificate and a signature made with its key."""
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    try:
        for side in (client, server, client):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
        presented = client.getpeercert(binary_form=True)
    except (ssl.SSLError, ValueError) as error:
        raise UserError(
            f"{paths.certificate}: no TLS 1.3 handshake succeeds with it: {_reason(error)}",
            "use a P-256, RSA (2048 bits or more) or Ed25519 certificate",
        ) from None
    if presented != _certificates(paths.certificate, paths.certificate.read_bytes())[0].public_bytes(Encoding.DER):
        raise UserError(f"{paths.certificate}: changed while it was read", "replace certificate and key in one step")


def load(paths: TlsPaths, contents: tuple[bytes, ...]) -> Loaded:
    """Check what was read, in the words of people, and make the context of it."""
    leaf = _certificates(paths.certificate, contents[0])[0]
    authorities = _certificates(paths.client_ca, contents[2])
    _check_leaf(paths.certificate, leaf)
    for authority in authorities:
        if not _is_ca(authority):
            raise UserError(
                f"{paths.client_ca}: {authority.subject.rfc4514_string()} is not a CA certificate",
                "give the CA that issues the clients' certificates, not one of these",
            )
    return Loaded(
        context=server_context(paths),
        leaf_not_after_seconds=int(leaf.not_valid_after_utc.timestamp()),
        client_ca_not_after_seconds=min(int(authority.not_valid_after_utc.timestamp()) for authority in authorities),
    )


def _check_leaf(path: Path, leaf: x509.Certificate) -> None:
    now = datetime.now(UTC)
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        raise UserError(
            f"{path}: valid from {leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} "
            f"to {leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}, not now",
            "issue a new one, or set the clock",
        )
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if ExtendedKeyUsageOID.SERVER_AUTH not in usages:
        raise UserError(f"{path}: not made for a server (no extended key usage serverAuth)", "issue a serving one")


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _certificates(path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise UserError(f"{path}: holds no certificate in PEM", "give a file with BEGIN CERTIFICATE blocks") from None


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)).lower().replace("_", " ")
