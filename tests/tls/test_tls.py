import asyncio
import errno
import os
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Authority, KeyPair
from certs.files import write_key_pair
from tests.harness.identity import Pki
from tests.harness.loopback import loopback
from tests.server.listener import exchange, hello
from tests.timeouts import HANG_SECONDS
from webhook.errors import UserError
from webhook.tls.context import TlsFiles, TlsPaths, load, make_server_context
from webhook.tls.server_context import ServerContext


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.create(tmp_path / "pki")


def test_unreadable_key_is_named(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is simulated, because root may read every file."""
    original_open = Path.open

    def refuse_to_open(path: Path, *arguments: Any, **keywords: Any) -> Any:
        if path == pki.paths.key:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return original_open(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", refuse_to_open)
    with pytest.raises(UserError, match=r"server\.key: cannot be read: Permission denied"):
        TlsFiles(pki.paths)


def test_invalid_file_is_named_with_its_error(pki: Pki, tmp_path: Path) -> None:
    other = Pki.create(tmp_path / "other")
    client, text = pki.client(), tmp_path / "text"
    pki.context(client)
    client_crt = next(path for path in pki.folder.glob("*.crt") if path.stem not in ("ca", "server"))
    text.write_text("text")
    valid_paths = pki.paths
    for paths, message in (
        (TlsPaths(tmp_path / "none", valid_paths.key, valid_paths.client_ca), "none: cannot be read"),
        (TlsPaths(text, valid_paths.key, valid_paths.client_ca), "text: holds no certificate in PEM"),
        (TlsPaths(valid_paths.certificate, text, valid_paths.client_ca), "make no certificate with its key"),
        (TlsPaths(valid_paths.certificate, other.paths.key, valid_paths.client_ca), "make no certificate with its key"),
        (TlsPaths(client_crt, client_crt.with_suffix(".key"), valid_paths.client_ca), "not made for a server"),
        (TlsPaths(valid_paths.certificate, valid_paths.key, text), "text: holds no certificate in PEM"),
        (TlsPaths(valid_paths.certificate, valid_paths.key, valid_paths.certificate), "is not a CA certificate"),
    ):
        with pytest.raises(UserError) as refused:
            TlsFiles(paths)
        assert message in str(refused.value)


def test_serving_certificate_with_invalid_extensions_is_named(pki: Pki) -> None:
    valid_certificate = pki.renew_server().certificate
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(valid_certificate.subject)
        .issuer_name(valid_certificate.issuer)
        .serial_number(1)
    )
    builder = builder.not_valid_before(valid_certificate.not_valid_before_utc).not_valid_after(
        valid_certificate.not_valid_after_utc
    )
    garbled = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.37"), b"\x01\x02\x03")
    builder = builder.public_key(key.public_key()).add_extension(garbled, critical=False)
    leaf = KeyPair(builder.sign(pki.authority.key_pair.key, hashes.SHA256()), key)
    write_key_pair(leaf, pki.paths.certificate, pki.paths.key, replace=True)
    with pytest.raises(UserError, match=r"server\.crt: its extension extKeyUsage is malformed: "):
        TlsFiles(pki.paths)


def _issue(pki: Pki, days_ago: int) -> int:
    """Replace the serving certificate by one with a lifetime of one day; return its expiry."""
    issued_at = datetime.now(UTC) - timedelta(days=days_ago)
    leaf = pki.authority.issue_server("localhost", (), timedelta(days=1), now=issued_at)
    write_key_pair(leaf, pki.paths.certificate, pki.paths.key, replace=True)
    return int(leaf.certificate.not_valid_after_utc.timestamp())


def test_expired_serving_certificate_does_not_replace_a_valid_one(pki: Pki) -> None:
    files = TlsFiles(pki.paths)
    before = files.context
    _issue(pki, 2)
    files.reload()
    assert files.context is before
    assert "not now" in str(files.error)


def test_initially_expired_serving_certificate_is_replaced_only_by_a_valid_one(pki: Pki) -> None:
    expiry_seconds = _issue(pki, 3)
    files = TlsFiles(pki.paths)
    assert files.value.leaf_not_after_seconds == expiry_seconds
    _issue(pki, 2)
    files.reload()
    assert files.value.leaf_not_after_seconds == expiry_seconds, (
        "an expired certificate does not replace an expired one"
    )
    renewed_seconds = _issue(pki, 0)
    files.reload()
    assert (files.value.leaf_not_after_seconds, files.error) == (renewed_seconds, None)


def test_serving_certificate_that_is_not_yet_valid_fails_the_start(pki: Pki) -> None:
    _issue(pki, -1)
    with pytest.raises(UserError, match="not now"):
        TlsFiles(pki.paths)


def test_context_requires_tls_1_3_and_client_certificates_and_sends_no_tickets(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.num_tickets == 0
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE, "the client chooses"


async def test_handshakes_are_measured_also_those_that_fail(pki: Pki) -> None:
    context = make_server_context(pki.paths)
    assert isinstance(context, ServerContext)
    async with loopback(hello, lambda: context) as running:
        assert await _is_refused(running.port, pki.context())
        await running.wait_until(lambda: context.handshake_seconds > 0)
        failed_seconds = context.handshake_seconds
        context.handshake_seconds = 0.0
        assert not await _is_refused(running.port, pki.context(pki.client()))
        assert 0 < context.handshake_seconds < 1
        assert 0 < failed_seconds < 1


def test_expiry_is_shown(pki: Pki) -> None:
    files = TlsFiles(pki.paths)
    leaf = pki.renew_server().certificate
    files.reload()
    assert files.value.leaf_not_after_seconds == int(leaf.not_valid_after_utc.timestamp())
    ca = pki.authority.key_pair.certificate
    assert files.value.client_ca_not_after_seconds == int(ca.not_valid_after_utc.timestamp())


def test_mismatched_certificate_and_key_keep_the_last_good_context(pki: Pki) -> None:
    messages: list[str | None] = []
    files = TlsFiles(pki.paths, messages.append)
    before, key = files.context, pki.paths.key.read_bytes()
    pki.renew_server()
    new_key = pki.paths.key.read_bytes()
    pki.paths.key.write_bytes(key)  # the certificate is new, its key is still the old one
    files.reload()
    files.reload()
    assert files.context is before
    assert (files.generation, messages) == (1, [None, files.error])
    assert "make no certificate with its key" in str(files.error)
    pki.paths.key.write_bytes(new_key)
    files.reload()
    assert files.context is not before
    assert files.generation == 2
    assert files.error is None
    assert messages[2:] == [None]


def test_restored_files_are_reported_as_good_again(pki: Pki) -> None:
    messages: list[str | None] = []
    files, valid_key = TlsFiles(pki.paths, messages.append), pki.paths.key.read_bytes()
    pki.paths.key.write_text("spoilt")
    files.reload()
    pki.paths.key.write_bytes(valid_key)
    files.reload()
    files.reload()
    assert [error is None for error in messages] == [True, False, True]
    assert files.generation == 1


def test_files_that_change_before_openssl_reads_them_are_rejected(pki: Pki, tmp_path: Path) -> None:
    """OpenSSL reads the files a second time. It must load the certificate and the CAs that were checked."""
    paths = pki.paths
    assert paths.client_ca is not None
    contents = [path.read_bytes() for path in (paths.certificate, paths.key, paths.client_ca)]
    load(paths, contents)
    pki.renew_server()
    with pytest.raises(UserError, match=r"server\.crt: changed while it was read"):
        load(paths, contents)
    contents[0] = paths.certificate.read_bytes()
    paths.client_ca.write_bytes(contents[2] + (Pki.create(tmp_path / "other").folder / "ca.crt").read_bytes())
    with pytest.raises(UserError, match=r"ca\.crt: changed while it was read"):
        load(paths, contents)


async def test_files_replaced_during_a_read_are_read_again(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str | None] = []
    files = TlsFiles(pki.paths, messages.append)
    before = files._read()
    pki.renew_server()
    after = files._read()
    torn = (before[0], *after[1:])
    readings = iter((torn, after, after))
    monkeypatch.setattr(files, "_read", lambda: next(readings))
    reload_task = asyncio.create_task(files.run(0))
    async with asyncio.timeout(HANG_SECONDS):
        while files.generation == 1:  # noqa: ASYNC110 - another task changes it
            await asyncio.sleep(0)
    reload_task.cancel()
    assert messages == [None, None]


def test_bundle_of_expired_cas_does_not_replace_one_with_valid_cas(pki: Pki, tmp_path: Path) -> None:
    expired = Authority.create("dead", timedelta(days=1), datetime.now(UTC) - timedelta(days=2)).key_pair.certificate
    bundle = tmp_path / "bundle.crt"
    bundle.write_bytes(expired.public_bytes(Encoding.PEM))
    paths = TlsPaths(pki.paths.certificate, pki.paths.key, bundle)
    files, expiry_seconds = TlsFiles(paths), int(expired.not_valid_after_utc.timestamp())
    assert files.value.callers_end_seconds == expiry_seconds, "the initial bundle is accepted even if expired"
    valid_ca = pki.authority.key_pair.certificate
    bundle.write_bytes(expired.public_bytes(Encoding.PEM) + (pki.folder / "ca.crt").read_bytes())
    files.reload()
    assert files.value.client_ca_not_after_seconds == expiry_seconds
    assert files.value.callers_end_seconds == int(valid_ca.not_valid_after_utc.timestamp())
    bundle.write_bytes(expired.public_bytes(Encoding.PEM))
    files.reload()
    assert "bundle.crt: all its CAs have expired" in str(files.error)
    assert files.value.callers_end_seconds == int(valid_ca.not_valid_after_utc.timestamp())


async def test_without_client_cas_no_client_certificate_is_required(pki: Pki) -> None:
    files = TlsFiles(TlsPaths(pki.paths.certificate, pki.paths.key, None))
    async with loopback(hello, lambda: files.context) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=pki.context())
        assert (await exchange(reader, writer)).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()


async def test_new_certificate_applies_to_new_connections_and_keeps_existing_ones(pki: Pki) -> None:
    files = TlsFiles(pki.paths)
    context = pki.context(pki.client())
    async with loopback(hello, lambda: files.context) as running:
        existing_connection = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
        before = existing_connection[1].get_extra_info("ssl_object").getpeercert()["serialNumber"]
        renewed = pki.renew_server().certificate.serial_number
        files.reload()
        new_connection = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
        serial_on_new_connection = new_connection[1].get_extra_info("ssl_object").getpeercert()["serialNumber"]
        assert int(serial_on_new_connection, 16) == renewed != int(before, 16)
        assert (await exchange(*existing_connection)).startswith(b"HTTP/1.1 200")
        assert (await exchange(*new_connection)).startswith(b"HTTP/1.1 200")
        for _, writer in (existing_connection, new_connection):
            writer.close()
            await writer.wait_closed()


async def test_clients_of_a_removed_ca_are_refused(pki: Pki, tmp_path: Path) -> None:
    clients = Pki.create(tmp_path / "clients")
    paths = TlsPaths(pki.paths.certificate, pki.paths.key, tmp_path / "bundle.crt")
    bundle = tmp_path / "bundle.crt"
    old, new = (clients.folder / "ca.crt").read_bytes(), (pki.folder / "ca.crt").read_bytes()
    bundle.write_bytes(old + new)
    files = TlsFiles(paths)
    context = pki.context()
    client = clients.client()
    write_key_pair(client, tmp_path / "c.crt", tmp_path / "c.key")
    context.load_cert_chain(tmp_path / "c.crt", tmp_path / "c.key")
    async with loopback(hello, lambda: files.context) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
        assert (await exchange(reader, writer)).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()
        bundle.write_bytes(new)
        files.reload()
        assert await _is_refused(running.port, context)
        await running.wait_until(lambda: bool(running.refused))
        assert running.reasons == ["handshake_certificate_foreign"]


async def _is_refused(port: int, context: ssl.SSLContext) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            return await exchange(reader, writer) == b""
        finally:
            writer.close()
    except OSError:
        return True


def test_no_session_can_be_resumed(pki: Pki) -> None:
    async def main() -> tuple[bool, bool]:
        context = make_server_context(pki.paths)
        async with loopback(hello, lambda: context) as running:
            return await asyncio.to_thread(_resume, running.port, pki.context(pki.client()))

    assert asyncio.run(main()) == (False, False)


def _resume(port: int, context: ssl.SSLContext) -> tuple[bool, bool]:
    """Try to resume a session; return whether it has a ticket, and whether it was resumed."""
    session = None
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as client,
        ):
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            session = client.session
            reused = bool(client.session_reused)
    assert session is not None
    return session.has_ticket, reused


def test_key_unusable_with_tls_1_3_fails_the_trial_handshake(pki: Pki, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256K1())  # OpenSSL loads it without an error
    valid_certificate = pki.renew_server().certificate
    builder = x509.CertificateBuilder(extensions=list(valid_certificate.extensions))
    builder = (
        builder.subject_name(valid_certificate.subject)
        .issuer_name(valid_certificate.issuer)
        .serial_number(1)
        .public_key(key.public_key())
    )
    builder = builder.not_valid_before(valid_certificate.not_valid_before_utc).not_valid_after(
        valid_certificate.not_valid_after_utc
    )
    leaf = KeyPair(builder.sign(pki.authority.key_pair.key, hashes.SHA256()), key)
    paths = TlsPaths(tmp_path / "s.crt", tmp_path / "s.key", pki.paths.client_ca)
    write_key_pair(leaf, paths.certificate, paths.key)
    with pytest.raises(UserError, match=r"s\.crt: no TLS 1\.3 handshake succeeds"):
        TlsFiles(paths)
