"""TLS contexts of servers: from watched files, TLS 1.3 with client certificates, tested before use."""

import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from webhook.authentication.certificate_errors import find_malformed_extension
from webhook.authentication.certificate_identity import UNREADABLE
from webhook.authentication.certificates.weak_rsa_keys import find_weakness
from webhook.authentication.client_ca import REISSUE_REMEDY, find_extension, parse_authorities, parse_certificates
from webhook.authentication.peer_recheck import TrustedCas
from webhook.errors import UserError
from webhook.support.watched_file import WatchedFile
from webhook.tls.handshake_probe import describe_error, make_trusting_client, probe_handshake
from webhook.tls.server_context import ServerContext

_PATHS = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""OpenSSL looks for the default CAs there; https://docs.openssl.org/3.0/man3/SSL_CTX_load_verify_locations/."""


@contextmanager
def skip_default_cas() -> Iterator[None]:
    """Let OpenSSL find no default CAs within the block.

    When aiohttp is imported, it makes two contexts for clients that give none, and loads all CAs of the system twice.
    Each client of Podgate gives a context, so that a start need not wait for that.
    """
    before = {name: os.environ.get(name) for name in _PATHS}
    os.environ.update(dict.fromkeys(_PATHS, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_FILE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsPaths:
    """Paths of the serving certificate (leaf first), its key and the client CAs, all PEM.

    Without client CAs, no client certificate is requested.
    """

    certificate: Path
    key: Path
    client_ca: Path | None


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """A tested context, and the expiry of its certificates (seconds since the Unix epoch)."""

    context: ssl.SSLContext
    trust: TrustedCas
    """The client CAs."""
    leaf_not_after_seconds: int
    client_ca_not_after_seconds: int | None
    """Expiry of the first client CA to expire."""
    callers_end_seconds: int | None
    """Expiry of the last one: no client can connect after it."""


class TlsFiles(WatchedFile[LoadedTls]):
    """The current context. A change affects only new connections.

    Expired certificates are accepted at startup only, since this server may be the one that renews them.
    """

    def __init__(self, paths: TlsPaths, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        is_start = True

        def parse(contents: tuple[bytes, ...]) -> LoadedTls:
            nonlocal is_start
            loaded = load(paths, contents, may_have_expired=is_start)
            is_start = False
            return loaded

        files = [file for file in (paths.certificate, paths.key, paths.client_ca) if file is not None]
        super().__init__(files, _FILE_BYTES_MAX, parse, on_reading)

    @property
    def context(self) -> ssl.SSLContext:
        """TLS context for the next connection."""
        return self.value.context


def make_server_context(paths: TlsPaths) -> ssl.SSLContext:
    """Return a context made from these files; UserError names the invalid one."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a resumed session would bypass a changed trust store
    # The client knows which cipher is the cheapest one; all of TLS 1.3 are strong.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(paths.certificate, paths.key, password="")  # never prompt for a passphrase
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"{paths.certificate} and {paths.key} make no certificate with its key: {describe_error(error)}",
            "give a PEM certificate and the key (without a passphrase) that it was issued for",
        ) from None
    if paths.client_ca is None:
        return context
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # accept an intermediate CA without its root
    try:
        context.load_verify_locations(paths.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"{paths.client_ca}: {describe_error(error)}", "give the CAs of the clients in PEM") from None
    return context


def load(paths: TlsPaths, contents: Sequence[bytes], *, may_have_expired: bool = False) -> LoadedTls:
    """Check the files' contents, make a context and test it; UserError."""
    leaf = parse_certificates(paths.certificate, contents[0])[0]
    _check_leaf(paths.certificate, leaf, may_have_expired=may_have_expired)
    authorities: list[x509.Certificate] = []
    if paths.client_ca is not None:
        authorities = parse_authorities(paths.client_ca, contents[2], may_have_expired=may_have_expired)
    context = make_server_context(paths)
    try:
        presented = probe_handshake(context, make_trusting_client())
    except (ssl.SSLError, ValueError) as error:
        raise UserError(
            f"{paths.certificate}: no TLS 1.3 handshake succeeds with it: {describe_error(error)}",
            "use a P-256, RSA (2048 bits or more) or Ed25519 certificate",
        ) from None
    # OpenSSL reads the files itself, slightly later.
    if presented != _encode_der(leaf):
        raise UserError(f"{paths.certificate}: changed while it was read", "replace certificate and key in one step")
    if set(context.get_ca_certs(binary_form=True)) != {_encode_der(authority) for authority in authorities}:
        raise UserError(f"{paths.client_ca}: changed while it was read", "replace it in one step")
    return LoadedTls(
        context=context,
        trust=TrustedCas(authorities),
        leaf_not_after_seconds=_find_expiry_seconds(leaf),
        client_ca_not_after_seconds=min(map(_find_expiry_seconds, authorities), default=None),
        callers_end_seconds=max(map(_find_expiry_seconds, authorities), default=None),
    )


def _check_leaf(path: Path, leaf: x509.Certificate, *, may_have_expired: bool) -> None:
    now = datetime.now(UTC)
    if now < leaf.not_valid_before_utc or (now >= leaf.not_valid_after_utc and not may_have_expired):
        raise UserError(
            f"{path}: valid from {leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} "
            f"to {leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}, not now",
            "issue a new one, or set the clock",
        )
    if (malformed := find_malformed_extension(leaf)) is not None:
        raise UserError(f"{path}: {malformed}", REISSUE_REMEDY)
    try:
        usages, weak = find_extension(leaf, x509.ExtendedKeyUsage), find_weakness(leaf.public_key())
    except (UnsupportedAlgorithm, *UNREADABLE) as error:
        raise UserError(f"{path}: its extensions or its key cannot be read: {error}", "issue a new one") from None
    if weak is not None:
        raise UserError(f"{path}: has {weak}", "issue one for a new key")
    if usages is not None and ExtendedKeyUsageOID.SERVER_AUTH not in usages:
        raise UserError(f"{path}: not made for a server (no extended key usage serverAuth)", "issue a serving one")


def _encode_der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def _find_expiry_seconds(certificate: x509.Certificate) -> int:
    return int(certificate.not_valid_after_utc.timestamp())
