"""Clients rejected for their certificate get a reason, counted and logged; one rule for all certificate sources."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from certs.authority import Authority, KeyPair
from certs.files import write_key_pair
from tests.harness.identity import Pki
from tests.harness.loopback import Loopback, loopback
from tests.harness.rsa_keys import roca_key
from tests.server.listener import hello
from webhook.authentication.chain_verifier import ClientChainVerifier, ForeignCertificateError
from webhook.authentication.peer_recheck import PeerRecheck
from webhook.errors import AuthenticationError
from webhook.server.http_messages import HttpRequest, HttpResponse
from webhook.tls import server_context as tls_context
from webhook.tls.context import TlsFiles, make_server_context

LOOPS = ("uvloop", "asyncio")
BODY = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.create(tmp_path)


def _call(port: int, context: ssl.SSLContext) -> str:
    """Call as the API server does, which sends its request before it is accepted; return the answer or error."""
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.settimeout(10)
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                with suppress(OSError):
                    client.sendall(BODY)
                return "an answer" if client.recv(1000) else "nothing"
        except ssl.SSLError as error:
            return error.reason
        except OSError as error:
            return type(error).__name__


def _old(pki: Pki, _: Pki) -> ssl.SSLContext:
    context = pki.context(pki.client())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def _foreign(pki: Pki, other: Pki) -> ssl.SSLContext:
    context = other.context(other.client())
    context.load_verify_locations(pki.folder / "ca.crt")
    return context


@pytest.mark.parametrize(
    ("client", "reason", "alert"),
    [
        (lambda pki, _: pki.context(), "handshake_no_certificate", "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        (_foreign, "handshake_certificate_foreign", "TLSV1_ALERT_UNKNOWN_CA"),
        (
            lambda pki, _: pki.context(pki.client(expired=True)),
            "handshake_certificate_expired",
            "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        ),
        (
            lambda pki, _: pki.context(pki.client(server_only=True)),
            "handshake_certificate_purpose",
            "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        ),
        (_old, "handshake_protocol", "TLSV1_ALERT_PROTOCOL_VERSION"),
    ],
    ids=["none", "foreign", "expired", "a server's", "TLS 1.2"],
)
async def test_rejected_client_receives_the_alert_with_the_reason(
    pki: Pki,
    tmp_path_factory: pytest.TempPathFactory,
    client: Callable[[Pki, Pki], ssl.SSLContext],
    reason: str,
    alert: str,
) -> None:
    other = Pki.create(tmp_path_factory.mktemp("other"), "other-ca")
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        assert await asyncio.to_thread(_call, running.port, client(pki, other)) == alert
        assert running.reasons == [reason]
        await running.wait_until(lambda: running.connections.count == 0)


async def test_rejected_client_that_stays_connected_is_closed(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            client.sendall(b"\x16\x03\x01\x00\x05hello")
            await running.wait_until(lambda: bool(running.refused))
            await running.wait_until(lambda: running.connections.count == 0)


async def test_beyond_the_handshake_limit_rejected_clients_get_no_alert(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_context, "SPARES_MAX", 1)
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        with socket.create_connection(("127.0.0.1", running.port)):  # it stalls, and uses the only slot
            await running.wait_until(lambda: running.connections.count == 1)
            reply = await asyncio.to_thread(_call, running.port, pki.context())
            assert reply != "TLSV13_ALERT_CERTIFICATE_REQUIRED"
            assert running.reasons == ["handshake_no_certificate"]
        await running.wait_until(lambda: running.connections.count == 0)
        assert await asyncio.to_thread(_call, running.port, pki.context()) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"


def leaf(authority: Authority, *extensions: x509.ExtensionType, key: rsa.RSAPrivateKey | None = None) -> KeyPair:
    """Return a certificate with the API server's name and only these extensions."""
    own_key = key or ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(extensions=[]).serial_number(x509.random_serial_number())
    builder = builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]))
    builder = builder.issuer_name(authority.key_pair.certificate.subject).public_key(own_key.public_key())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return KeyPair(builder.sign(authority.key_pair.key, hashes.SHA256()), own_key)  # type: ignore[arg-type]  # RSA works here too


def usage(**bits: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    names += ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: bits.get(name, False) for name in names})


CLIENT_AUTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
BOTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
END_ENTITY = x509.BasicConstraints(ca=False, path_length=None)
GOOD: dict[str, tuple[x509.ExtensionType, ...]] = {
    "kubeadm's": (usage(digital_signature=True, key_encipherment=True), CLIENT_AUTH, END_ENTITY),
    "an older kubeadm's": (usage(digital_signature=True, key_encipherment=True), CLIENT_AUTH),
    "cert-manager's for a client": (usage(digital_signature=True, key_encipherment=True), END_ENTITY, CLIENT_AUTH),
    "SPIRE's": (usage(digital_signature=True), BOTH, END_ENTITY),
    "one without a key usage": (CLIENT_AUTH,),
}
FAULTY: dict[str, tuple[tuple[x509.ExtensionType, ...], str]] = {
    "no extended key usage": ((usage(digital_signature=True), END_ENTITY), "no extended key usage clientAuth"),
    "a CA": ((CLIENT_AUTH, x509.BasicConstraints(ca=True, path_length=None)), "a CA is no client"),
    "a key usage that signs nothing": ((CLIENT_AUTH, usage(key_agreement=True)), "no key usage digitalSignature"),
}


async def _answer_over_tls(pki: Pki, client: KeyPair) -> tuple[str, Loopback]:
    """Call a TLS server with Podgate's checks of its clients; return the answer, and the server."""
    files = TlsFiles(pki.paths)
    peers = PeerRecheck(lambda: files.value.trust)

    async def answer(request: HttpRequest) -> HttpResponse:
        try:
            peers.check(request.peer)
        except AuthenticationError as error:
            return HttpResponse(200, f"{error.status} {error.reason}: {error.detail}".encode())
        return HttpResponse(200, b"good")

    stem = pki.folder / f"{client.certificate.serial_number:x}"
    write_key_pair(client, stem.with_suffix(".crt"), stem.with_suffix(".key"))
    context = pki.context()
    context.load_cert_chain(stem.with_suffix(".crt"), stem.with_suffix(".key"))
    async with loopback(answer, lambda: files.context) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        reply = (await reader.read()).partition(b"\r\n\r\n")[2].decode()
        writer.close()
        return reply, running


def _check_forwarded(pki: Pki, client: KeyPair) -> str:
    chains = ClientChainVerifier([pki.authority.key_pair.certificate])
    try:
        chains.check(client.certificate.public_bytes(Encoding.DER), datetime.now(UTC).timestamp())
    except ForeignCertificateError as error:
        return str(error)
    return "good"


@pytest.mark.parametrize("kind", GOOD)
async def test_usual_client_certificates_are_accepted_in_both_modes(pki: Pki, kind: str) -> None:
    client = leaf(pki.authority, *GOOD[kind])
    assert (await _answer_over_tls(pki, client))[0] == "good"
    assert _check_forwarded(pki, client) == "good"


@pytest.mark.parametrize("kind", FAULTY)
async def test_certificate_of_another_purpose_is_rejected_in_both_modes_alike(pki: Pki, kind: str) -> None:
    extensions, fault = FAULTY[kind]
    client = leaf(pki.authority, *extensions)
    reply, running = await _answer_over_tls(pki, client)
    assert reply.startswith("401 certificate_purpose: 'kube-apiserver': ")
    assert fault in reply
    assert running.refused == []
    assert reply.endswith(_check_forwarded(pki, client))


async def test_weak_key_is_rejected_in_both_modes(pki: Pki) -> None:
    client = leaf(pki.authority, CLIENT_AUTH, key=roca_key())
    reply, _ = await _answer_over_tls(pki, client)
    assert "CVE-2017-15361" in reply
    assert reply.endswith(_check_forwarded(pki, client))


async def test_names_that_are_not_utf_8_are_rejected_without_a_traceback(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    names = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("3005 8203 ff fe fd"))
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    reply, running = await _answer_over_tls(pki, leaf(pki.authority, CLIENT_AUTH, names))
    assert (running.refused, errors, caplog.records) == ([], [], [])
    assert reply.startswith("401 certificate_ambiguous: cannot be read: ")
