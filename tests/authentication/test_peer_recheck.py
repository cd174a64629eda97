"""Recheck of open connections after changes of the client CAs."""

import ssl
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from certs.authority import Authority, KeyPair
from certs.files import write_key_pair
from tests.harness.identity import Pki
from tests.harness.loopback import loopback
from tests.server.listener import exchange, open_connection
from webhook.authentication.peer_recheck import PeerRecheck, TrustedCas
from webhook.errors import AuthenticationError
from webhook.server.http_messages import HttpRequest, HttpResponse
from webhook.tls.context import TlsFiles

LOOPS = ("uvloop", "asyncio")


@dataclass
class RecheckSetup:
    """A server's files with a bundle that changes, and a clock that a test sets."""

    pki: Pki
    bundle: Path
    files: TlsFiles
    peers: PeerRecheck
    now_seconds: float

    @classmethod
    def create(cls, folder: Path, *trusted: Authority) -> "RecheckSetup":
        pki = Pki.create(folder / "pki")
        bundle = folder / "bundle.crt"
        _publish(bundle, pki.authority, *trusted)
        files = TlsFiles(replace(pki.paths, client_ca=bundle))
        peers = PeerRecheck(lambda: files.value.trust, lambda: setup.now_seconds)
        setup = cls(pki, bundle, files, peers, time.time())
        return setup

    def trust(self, *authorities: Authority) -> None:
        _publish(self.bundle, *authorities)
        self.files.reload()
        assert self.files.error is None

    async def answer(self, request: HttpRequest) -> HttpResponse:
        try:
            self.peers.check(request.peer)
        except AuthenticationError as error:
            return HttpResponse(200, f"{error.reason} hello".encode())  # `exchange` reads up to this word
        return HttpResponse(200, b"hello")

    def client(self, credentials: KeyPair, *chain: KeyPair) -> ssl.SSLContext:
        """Return the context of a client that sends its chain, too."""
        context = self.pki.context()
        stem = self.bundle.parent / f"{credentials.certificate.serial_number:x}"
        crt, key = stem.with_suffix(".crt"), stem.with_suffix(".key")
        write_key_pair(credentials, crt, key)
        with crt.open("ab") as stream:
            stream.writelines(authority.certificate.public_bytes(Encoding.PEM) for authority in chain)
        context.load_cert_chain(crt, key)
        return context


def _publish(bundle: Path, *authorities: Authority) -> None:
    pems = [authority.key_pair.certificate.public_bytes(Encoding.PEM) for authority in authorities]
    bundle.write_bytes(b"".join(pems))


async def test_open_connection_is_rejected_once_its_client_ca_is_removed(tmp_path: Path) -> None:
    removed_ca = Authority.create("leaving")
    setup = RecheckSetup.create(tmp_path, removed_ca)
    async with loopback(setup.answer, lambda: setup.files.context) as running:
        removed = await open_connection(running.port, setup.client(removed_ca.issue_client("kube-apiserver")))
        kept = await open_connection(running.port, setup.pki.context(setup.pki.client()))
        for connection in (removed, kept):
            assert (await exchange(*connection)).endswith(b"\r\n\r\nhello")
        setup.trust(setup.pki.authority)
        assert (await exchange(*removed)).endswith(b"\r\n\r\ncertificate_untrusted hello")
        assert (await exchange(*kept)).endswith(b"\r\n\r\nhello")
        assert running.kept == [True, True, False, False]  # both were accepted under the former CAs
        setup.trust(setup.pki.authority, removed_ca)
        assert (await exchange(*removed)).endswith(b"\r\n\r\nhello")
        for _, writer in (removed, kept):
            writer.transport.abort()


async def test_open_connection_is_rejected_once_its_client_ca_expires(tmp_path: Path) -> None:
    setup = RecheckSetup.create(tmp_path)
    ends_at = setup.pki.authority.key_pair.certificate.not_valid_after_utc.timestamp()
    async with loopback(setup.answer, lambda: setup.files.context) as running:
        connection = await open_connection(running.port, setup.pki.context(setup.pki.client()))
        for now_seconds, expected in ((ends_at - 1, b"\r\n\r\nhello"), (ends_at, b"certificate_untrusted hello")):
            setup.now_seconds = now_seconds
            assert (await exchange(*connection)).endswith(expected)
        connection[1].transport.abort()


async def test_chain_over_an_intermediate_is_rejected_once_any_part_is_invalid(tmp_path: Path) -> None:
    root = Authority.create("root")
    ends_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=10)
    intermediate = _issue_ca(root.key_pair, "middle", ends_at)
    setup = RecheckSetup.create(tmp_path, _remove_path_length(root.key_pair))
    leaf = Authority.from_key_pair(intermediate).issue_client("kube-apiserver")
    async with loopback(setup.answer, lambda: setup.files.context) as running:
        connection = await open_connection(running.port, setup.client(leaf, intermediate))
        for now_seconds, expected in (
            (setup.now_seconds, b"\r\n\r\nhello"),
            (ends_at.timestamp(), b"certificate_untrusted hello"),
        ):
            setup.now_seconds = now_seconds
            assert (await exchange(*connection)).endswith(expected)
        setup.now_seconds = time.time()
        setup.trust(setup.pki.authority)
        assert (await exchange(*connection)).endswith(b"certificate_untrusted hello")
        connection[1].transport.abort()


async def test_trusted_intermediate_ca_verifies_without_its_root_for_new_and_open_connections(tmp_path: Path) -> None:
    intermediate = Authority.from_key_pair(
        _issue_ca(Authority.create("root").key_pair, "middle", datetime.now(UTC) + timedelta(days=9))
    )
    setup = RecheckSetup.create(tmp_path, intermediate)
    context = setup.client(intermediate.issue_client("kube-apiserver"))
    async with loopback(setup.answer, lambda: setup.files.context) as running:
        connection = await open_connection(running.port, context)
        assert (await exchange(*connection)).endswith(b"\r\n\r\nhello")
        setup.now_seconds = intermediate.key_pair.certificate.not_valid_after_utc.timestamp()
        assert (await exchange(*connection)).endswith(b"certificate_untrusted hello")
        connection[1].transport.abort()


def test_ca_renewed_with_its_key_verifies_the_same_leaves() -> None:
    old = Authority.create("one", timedelta(days=1)).key_pair
    renewed = _issue_ca(old, _name(old), datetime.now(UTC) + timedelta(days=9), old.key)
    trust = TrustedCas([renewed.certificate])
    assert trust.find_end_seconds([old.certificate]) == renewed.certificate.not_valid_after_utc.timestamp()
    both = TrustedCas([renewed.certificate, old.certificate])
    assert both.find_end_seconds([old.certificate]) == renewed.certificate.not_valid_after_utc.timestamp()


@pytest.mark.parametrize("same", ["name", "key"])
def test_ca_with_only_the_same_name_or_key_is_a_different_one(same: str) -> None:
    original = Authority.create("one").key_pair
    ends_at = datetime.now(UTC) + timedelta(days=9)
    other = (
        _issue_ca(original, _name(original), ends_at)
        if same == "name"
        else _issue_ca(original, "other", ends_at, original.key)
    )
    assert TrustedCas([other.certificate]).find_end_seconds([original.certificate]) == 0


def test_without_trusted_cas_no_chain_verifies() -> None:
    assert TrustedCas().find_end_seconds([Authority.create().key_pair.certificate]) == 0
    assert TrustedCas([Authority.create().key_pair.certificate]).find_end_seconds([]) == 0


def _name(credentials: KeyPair) -> str:
    return str(credentials.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _remove_path_length(credentials: KeyPair) -> Authority:
    """Return the same authority without its limit on the length of chains."""
    return Authority(
        _issue_ca(credentials, _name(credentials), datetime.now(UTC) + timedelta(days=30), credentials.key)
    )


def _issue_ca(issuer: KeyPair, name: str, ends_at: datetime, key: ec.EllipticCurvePrivateKey | None = None) -> KeyPair:
    """Return a CA that the issuer signed; it is self-signed if the key is the same."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(extensions=[])
    builder = builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
    builder = builder.issuer_name(issuer.certificate.subject).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(datetime.now(UTC) - timedelta(hours=1)).not_valid_after(ends_at)
    builder = builder.public_key(key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return KeyPair(builder.sign(issuer.key, hashes.SHA256()), key)
